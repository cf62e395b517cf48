"""Choosing plugins and making their devices known to torch, once per process.

Order matters: everything that may fail comes before the first thing that cannot be undone (loading the extension, whose
static registrations fill torch's PrivateUse1 tables, and naming the device type).
"""

from __future__ import annotations

import functools
import os
import re
import sys
import warnings
from pathlib import Path

from . import _builds, _hal, _registry

_stand_ins: list[str] = []


def plugins() -> list[_hal.Plugin]:
    """Describes the active plugins, in the order of their devices."""
    return _hal.plugins() if _registry.is_active() else []


def _are_active(plugin: str) -> bool:
    """Whether a list means the active plugins, each by its name, its path, or the name of its file: libhal_cuda.so is "cuda" and "nvgpu"."""
    wanted = [name.strip() for name in plugin.split(",") if name.strip()]
    known = [(one.name, one.path, Path(one.path).stem.removeprefix("libhal_")) for one in _hal.plugins()]
    return len(wanted) == len(known) and all(name in names for name, names in zip(wanted, known))


def use(plugin: str) -> None:
    """Activates a plugin by name or absolute path, or a comma list of them; the first one names the device type.

    May be called again with the same list. One process has one set of plugins for its whole life.
    """
    if not isinstance(plugin, str) or not plugin.strip(", "):
        raise ValueError(f"torch_backend.use: expected the name or absolute path of a plugin, such as 'fake', got {plugin!r}")
    with _registry.lock:
        if _registry.is_active():
            active, requested = _registry.device_name(), _registry.requested()
            if plugin in (requested, active) or _are_active(plugin):
                return
            raise RuntimeError(
                f"torch_backend.use({plugin!r}): '{requested}' is already active as torch.{active}, and a process keeps its "
                "plugins for life. Start another process, or name all plugins at once, as in TORCH_BACKEND=a,b."
            )
        _activate(plugin)
        _registry.set_choice(f"the program asked for {plugin!r} by torch_backend.use")


def autoload() -> None:
    """Activates what TORCH_BACKEND names, or else a hardware plugin that finds its hardware. Never raises.

    torch calls this at the end of ``import torch``; any exception would break that import for everybody.
    """
    names = os.environ.get("TORCH_BACKEND", "").strip()
    try:
        with _registry.lock:
            if _registry.is_active() or _registry.errors():
                return
            if names:
                _activate(names)
                _registry.set_choice(f"TORCH_BACKEND={names} asks for it")
            elif own := _accelerator_of_torch():
                _registry.set_choice(f"torch has an accelerator of its own, '{own}', so that no plugin is looked for; "
                                     "TORCH_BACKEND=NAME chooses one")
            else:
                _activate(None)
                found = f"'{_registry.device_name()}' is the first plugin that finds" if _registry.is_active() else "no plugin finds"
                _registry.set_choice(f"TORCH_BACKEND is not set, torch has no accelerator of its own, and {found} its hardware")
    except Exception as error:
        _registry.set_errors([*_registry.errors(), f"{error}" if names else f"Looking for hardware plugins failed: {error}"])
        if names:
            _warn(names, error)


def register_process_groups(plugin: str | None = None) -> None:
    """Registers the backend of process groups. torch 2.14 and later call this for the name of a backend that is not registered: they find it by
    the entry points of the group "torch.distributed.backends". `plugin`: the one to activate where none is active; None: as autoload does.
    """
    if not _registry.is_active():
        use(plugin) if plugin else autoload()
    if errors := _registry.errors():
        raise RuntimeError(errors[0])


register_nvgpu, register_npu, register_ocl = (functools.partial(register_process_groups, name) for name in ("nvgpu", "npu", "ocl"))


def _warn(names: str, error: Exception) -> None:
    """Reports that a request in the environment failed: now, and at each use of the missing device module."""
    name = names.split(",")[0].strip()
    message = f"TORCH_BACKEND={names}: {error}"
    try:
        _stand_in(name, message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except Exception:  # warnings turned into errors
        print(message, file=sys.stderr)


class _Unavailable:
    """Stands as torch.<name> for a plugin that could not be loaded, and tells why."""

    def __init__(self, message: str):
        self._message = message

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def __getattr__(self, attribute: str):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise RuntimeError(self._message)


def _stand_in(name: str, message: str) -> None:
    torch = sys.modules["torch"]
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) and not hasattr(torch, name):
        setattr(torch, name, _Unavailable(message))
        _stand_ins.append(name)


def _accelerator_of_torch() -> str:
    """Gives the type of a working accelerator of this torch's own, "" when there is none, without starting its driver."""
    import torch

    if torch.version.cuda or torch.version.hip:
        return "cuda" if torch.cuda.device_count() > 0 else ""  # asks NVML; cuda.is_available() would poison fork
    own = torch.accelerator.current_accelerator(check_available=True)
    return own.type if own is not None else ""


def _activate(names: str | None) -> None:
    """Opens the plugins and registers their devices with torch. With None: a hardware plugin, or nothing."""
    import torch

    _refuse_other_backend(torch)
    _refuse_other_torch(torch)
    wanted_name = os.environ.get("TORCH_BACKEND_NAME")
    if wanted_name:
        _valid_name(torch, wanted_name)
    offered, left_out = _offered(names)
    if names:
        resolved = _resolve(names, offered, left_out)
        # What only the environment asks for is passed on as such: the HAL ignores paths in it in privileged processes.
        _hal.open_plugins(None if resolved == os.environ.get("TORCH_BACKEND") else resolved, folders())
    else:
        _hal.open_plugins(None, [*{str(Path(path).parent): None for path in offered.values()}, *folders()])
    # In a list, a plugin left out was wanted; in the search for hardware only one that is broken is told.
    failed = [*left_out, *_hal.problems()]
    opened = _hal.plugins()
    if not opened:
        _registry.set_errors(failed)
        return
    name = _valid_name(torch, wanted_name or opened[0].name)
    for stand_in in _stand_ins:
        delattr(torch, stand_in)
    _stand_ins.clear()
    _builds.select(torch.__version__)
    _registry.rename(name)
    from . import _register  # loads the extension, whose registrations cannot be undone

    _register.register(name)
    _registry.activate(names or opened[0].name)
    _registry.set_errors(failed)
    _enable_integrations(os.environ.get("TORCH_BACKEND_INTEGRATIONS", "").strip())
    for function in _registry.take_waiting():
        function()


def _enable_integrations(wanted: str) -> None:
    """1 means all libraries, otherwise a comma list of them."""
    if wanted not in ("", "0"):
        from . import integrations

        integrations.enable(*([] if wanted == "1" else (name.strip() for name in wanted.split(","))))


def folders() -> list[str]:
    """Folders of plugins, the last one is searched first: other packages' plugins, then our own."""
    beside = _hal.PACKAGE.parent / "torch_backend_plugins"
    return [str(folder) for folder in (beside, _hal.PACKAGE / "plugins") if folder.is_dir()]


def _offered(names: str | None) -> tuple[dict[str, str], list[str]]:
    """Gives the paths of plugins that other packages offer (entry points of "torch_backend.plugins"), by name.

    With `names`, only those in the list are asked. One that cannot answer is left out, with the cause.
    """
    from importlib.metadata import entry_points

    found = entry_points()
    select = getattr(found, "select", None)
    group = select(group="torch_backend.plugins") if select else found.get("torch_backend.plugins", ())
    wanted = None if names is None else {part.strip() for part in names.split(",")}
    paths, causes = {}, []
    for point in group:
        if wanted is not None and point.name not in wanted:
            continue
        try:
            path = str(point.load()())
            if not os.path.isabs(path):
                raise ValueError(f"it gave {path!r}, which is not an absolute path")
            paths[point.name] = path
        except Exception as error:
            causes.append(
                f"{point.name}: the entry point {point.value} of torch_backend.plugins failed: {error}; update its package"
            )
    return paths, causes


def _resolve(names: str, offered: dict[str, str], left_out: list[str]) -> str:
    """Replaces the names that other packages offer by their paths; raises when nothing else is left of the list."""
    failed = {cause.partition(":")[0] for cause in left_out}
    parts = [part.strip() for part in names.split(",") if part.strip()]
    if failed.issuperset(parts):
        raise RuntimeError(" ".join(left_out))
    if names == os.environ.get("TORCH_BACKEND", "").strip() and _hal.is_privileged():
        # The HAL refuses a list with paths as a whole when it comes from the environment, but cannot tell these from ours.
        refused = [part for part in parts if part.startswith("/")]
        left_out += [f"{part}: a path in TORCH_BACKEND is ignored in a set-user-id process; name a plugin" for part in refused]
        parts = [part for part in parts if part not in refused]
    return ",".join(offered.get(part, part) for part in parts if part not in failed)


def _refuse_other_backend(torch) -> None:
    """Two backends on PrivateUse1 end the process in torch's C++; so look before anything is registered.

    Kernels that are registered are ours where a program imported `torch_backend._C` by itself.
    """
    name = torch._C._get_privateuse1_backend_name()
    taken = f"{__package__}._C" not in sys.modules and (
        torch._C._dispatch_has_kernel_for_dispatch_key("aten::empty.memory_format", "PrivateUse1")
        or torch._C._dispatch_has_backend_fallback("PrivateUse1")
    )
    if name != "privateuseone" or taken:
        raise RuntimeError(
            f"another PyTorch backend ('{name}') already uses the PrivateUse1 device type, which only one can have in a "
            "process. Keep it from loading, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the one you want."
        )


def _refuse_other_torch(torch) -> None:
    """An extension is built for one minor version of torch; another one has other C++ classes."""
    problem = _builds.problem(torch.__version__)
    if problem:
        raise RuntimeError(problem)


def name_problem(torch, name: str) -> str:
    """Says why a device type cannot be called `name`, empty when it can: torch would accept some that break it later.

    `torch` may be None; what depends on its own names is then not seen.
    """
    if not re.fullmatch(r"[a-z][a-z_]*", name):  # torch.device("acme2") is an error of torch's parser
        return "it must be lower-case letters and '_', beginning with a letter; torch reads no digits in a device's name"
    if name.startswith(("cpu", "cuda")):
        return "it must not begin with 'cpu' or 'cuda'"
    if torch is not None and name not in _stand_ins and hasattr(torch, name):
        return f"torch.{name} exists already"
    if torch is not None and _is_device_type(torch, name):
        return "torch has a device type of this name"
    return ""


def _valid_name(torch, name: str) -> str:
    problem = name_problem(torch, name)
    if problem:
        raise RuntimeError(f"'{name}' cannot name a device type: {problem}. Choose one with TORCH_BACKEND_NAME.")
    return name


def _is_device_type(torch, name: str) -> bool:
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True
