"""Chooses plugins and registers their devices with torch, once per process.

Order matters: every step that may fail comes before the first step that cannot be undone. Those are loading the
extension, whose static registrations fill torch's PrivateUse1 tables, and naming the device type.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import warnings
from pathlib import Path

from . import _builds, _hal, _registry

_placeholders: list[str] = []


def plugins() -> list[_hal.Plugin]:
    """Returns the active plugins in the order of their devices."""
    return _hal.plugins() if _registry.is_active() else []


def _are_active(plugin: str) -> bool:
    """Returns whether a list names the active plugins, each by its name, its path, or its file name: "cuda" and "nvgpu"
    both name the plugin of libhal_cuda.so.
    """
    wanted = [name.strip() for name in plugin.split(",") if name.strip()]
    known = [(one.name, one.path, Path(one.path).stem.removeprefix("libhal_")) for one in _hal.plugins()]
    return len(wanted) == len(known) and all(name in names for name, names in zip(wanted, known))


def use(plugin: str) -> None:
    """Activates a plugin, or a comma-separated list of plugins, by name or absolute path. The first one names the
    device type.

    A second call with the same list does nothing: the set of plugins of a process cannot change.
    """
    if not isinstance(plugin, str) or not plugin.strip(", "):
        raise ValueError(f"torch_backend.use: expected the name or absolute path of a plugin, such as 'fake', got {plugin!r}")
    with _registry.lock:
        if _registry.is_active():
            active, requested = _registry.device_name(), _registry.requested()
            if plugin in (requested, active) or _are_active(plugin):
                return
            raise RuntimeError(
                f"torch_backend.use({plugin!r}): '{requested}' is already active as torch.{active}, and the plugins of a process cannot "
                "be changed. Start another process, or name all plugins at once, as in TORCH_BACKEND=a,b."
            )
        _activate(plugin)
        _registry.set_choice(f"the program called torch_backend.use({plugin!r})")


def autoload() -> None:
    """Activates the plugins in TORCH_BACKEND, or else a hardware plugin that finds its hardware. Never raises.

    torch calls this at the end of ``import torch``; an exception would make that import fail for every user.
    """
    names = os.environ.get("TORCH_BACKEND", "").strip()
    try:
        with _registry.lock:
            if _registry.is_active() or _registry.errors():
                return
            if names:
                _activate(names)
                _registry.set_choice(f"TORCH_BACKEND={names} requests it")
            elif own := _accelerator_of_torch():
                _registry.set_choice(f"torch has its own accelerator, '{own}', so plugins are not searched for hardware; "
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
    """Registers the process group backend of the active plugin.

    torch 2.14 and later call this for the name of an unregistered backend. They find it in the entry point group
    "torch.distributed.backends". `plugin` is the plugin to activate if none is active; with None, the choice is that
    of `autoload`.
    """
    if not _registry.is_active():
        use(plugin) if plugin else autoload()
    if errors := _registry.errors():
        raise RuntimeError(errors[0])


register_nvgpu, register_npu, register_ocl, register_vk = (
    functools.partial(register_process_groups, name) for name in ("nvgpu", "npu", "ocl", "vk"))


def _warn(names: str, error: Exception) -> None:
    """Reports that a plugin requested in the environment failed: now, and at each use of the missing device module."""
    name = names.split(",")[0].strip()
    message = f"TORCH_BACKEND={names}: {error}"
    try:
        _placeholder(name, message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except Exception:  # warnings are turned into errors
        print(message, file=sys.stderr)


class _Unavailable:
    """The value of torch.<name> for a plugin that could not be loaded; each use raises an error with the cause."""

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


def _placeholder(name: str, message: str) -> None:
    torch = sys.modules["torch"]
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) and not hasattr(torch, name):
        setattr(torch, name, _Unavailable(message))
        _placeholders.append(name)


def _accelerator_of_torch() -> str:
    """Returns the type of a working accelerator of torch itself, or "" if there is none, without starting its driver.
    """
    import torch

    if torch.version.cuda or torch.version.hip:
        # queries NVML; cuda.is_available() would initialize CUDA, which breaks a later fork
        return "cuda" if torch.cuda.device_count() > 0 else ""
    own = torch.accelerator.current_accelerator(check_available=True)
    return own.type if own is not None else ""


def _activate(names: str | None) -> None:
    """Opens the plugins and registers their devices with torch. With None: opens a hardware plugin if its hardware is
    present.
    """
    import torch

    _refuse_other_backend(torch)
    _refuse_other_torch(torch)
    wanted_name = os.environ.get("TORCH_BACKEND_NAME")
    if wanted_name:
        _valid_name(torch, wanted_name)
    offered, left_out = _offered(names)
    if names:
        resolved = _resolve(names, offered, left_out)
        # A list that only the environment names is passed as None: in privileged processes the HAL ignores paths in the
        # environment.
        _hal.open_plugins(None if resolved == os.environ.get("TORCH_BACKEND") else resolved, folders())
    else:
        _hal.open_plugins(None, [*{str(Path(path).parent): None for path in offered.values()}, *folders()])
    # A plugin of a list was requested, so its failure is reported. A search for hardware reports only broken plugins.
    failed = [*left_out, *_hal.problems()]
    opened = _hal.plugins()
    if not opened:
        _registry.set_errors(failed)
        return
    name = _valid_name(torch, wanted_name or opened[0].name)
    for placeholder in _placeholders:
        delattr(torch, placeholder)
    _placeholders.clear()
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
    """Enables integrations: "1" means all libraries, otherwise a comma-separated list of them."""
    if wanted not in ("", "0"):
        from . import integrations

        integrations.enable(*([] if wanted == "1" else (name.strip() for name in wanted.split(","))))


def folders() -> list[str]:
    """Returns the folders of plugins: those of other packages, then that of this package, which is searched first."""
    beside = _hal.PACKAGE.parent / "torch_backend_plugins"
    return [str(folder) for folder in (beside, _hal.PACKAGE / "plugins") if folder.is_dir()]


def _offered(names: str | None) -> tuple[dict[str, str], list[str]]:
    """Returns the paths of plugins that other packages offer (entry points of "torch_backend.plugins"), by name.

    With `names`, only the entry points in that list are loaded. One that fails is omitted, and its error is in the
    second result.
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
                raise ValueError(f"it returned {path!r}, which is not an absolute path")
            paths[point.name] = path
        except Exception as error:
            causes.append(
                f"{point.name}: the entry point {point.value} of torch_backend.plugins failed: {error}; update its package"
            )
    return paths, causes


def _resolve(names: str, offered: dict[str, str], left_out: list[str]) -> str:
    """Replaces names that other packages offer by their paths. Raises if the list is empty after failed plugins are
    omitted.
    """
    failed = {cause.partition(":")[0] for cause in left_out}
    parts = [part.strip() for part in names.split(",") if part.strip()]
    if failed.issuperset(parts):
        raise RuntimeError(" ".join(left_out))
    if names == os.environ.get("TORCH_BACKEND", "").strip() and _hal.is_privileged():
        # From the environment the HAL refuses a list that contains any path, and it cannot distinguish those paths from
        # paths found here.
        refused = [part for part in parts if part.startswith("/")]
        left_out += [f"{part}: a path in TORCH_BACKEND is ignored in a set-user-id process; name a plugin" for part in refused]
        parts = [part for part in parts if part not in refused]
    return ",".join(offered.get(part, part) for part in parts if part not in failed)


def _refuse_other_backend(torch) -> None:
    """Raises if another backend uses PrivateUse1. A second registration would end the process in torch's C++ code, so
    this check comes before any registration.

    Registered kernels belong to this package if the program imported `torch_backend._C` directly.
    """
    name = torch._C._get_privateuse1_backend_name()
    taken = f"{__package__}._C" not in sys.modules and (
        torch._C._dispatch_has_kernel_for_dispatch_key("aten::empty.memory_format", "PrivateUse1")
        or torch._C._dispatch_has_backend_fallback("PrivateUse1")
    )
    if name != "privateuseone" or taken:
        raise RuntimeError(
            f"another PyTorch backend ('{name}') already uses the PrivateUse1 device type, which only one backend can have in a "
            "process. Uninstall it or disable its loading, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the one you need."
        )


def _refuse_other_torch(torch) -> None:
    """Raises if the package is not built for this minor version of torch, whose C++ classes differ."""
    problem = _builds.problem(torch.__version__)
    if problem:
        raise RuntimeError(problem)


def name_problem(torch, name: str) -> str:
    """Returns why `name` is invalid as a device type, or "" if it is valid. torch accepts some names that fail later.

    `torch` may be None; names of the module torch are then not checked.
    """
    if not re.fullmatch(r"[a-z][a-z_]*", name):  # torch.device("acme2") is an error of torch's parser
        return "it must consist of lower-case letters and '_' and begin with a letter; torch accepts no digits in a device type"
    if name.startswith(("cpu", "cuda")):
        return "it must not begin with 'cpu' or 'cuda'"
    if torch is not None and name not in _placeholders and hasattr(torch, name):
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
