"""The command `doctor`: checks for common problems and prints how to solve them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from ._output import colored, print_json

# The settings of docs/settings.md; test_command_line.py checks that both lists agree.
_SETTINGS = {"TORCH_BACKEND", "TORCH_BACKEND_NAME", "TORCH_BACKEND_INTEGRATIONS", "TORCH_BACKEND_AUTOGRAD_THREADS", "TORCH_BACKEND_FUSE", "TORCH_BACKEND_DEFER", "TORCH_BACKEND_INDUCTOR_TRITON", "TORCH_BACKEND_COLLECTIVES", "TORCH_BACKEND_COLLECTIVES_COMPARE", "TORCH_BACKEND_COLLECTIVES_REGISTER", "TORCH_BACKEND_COLLECTIVES_BLOCKING_WAIT", "TORCH_BACKEND_COLLECTIVES_LOG", "TORCH_BACKEND_COLLECTIVES_LOG_SIGNAL", "HAL_PLUGIN_PATH", "HAL_PLUGIN_TRIAL", "HAL_VISIBLE_DEVICES",
             "HAL_ALLOW_UNSAFE_PLUGINS", "HAL_LAYERS", "HAL_FAULT", "HAL_LOG", "HAL_DISABLE_OPS", "HAL_CACHE_DIR", "HAL_HOST_ISA", "HAL_LAZY_COMPILE"}  # fmt: skip


class Finding(NamedTuple):
    """The result of one check: `problem` and `cure` are empty if it passed."""

    check: str
    problem: str = ""
    cure: str = ""


def _versions():
    import torch

    from torch_backend import _builds

    problem, _, cure = _builds.problem(torch.__version__).partition(". ")
    return Finding("torch's version", problem, cure)


def _other_backends():
    """Other packages that torch loads automatically may use PrivateUse1, the only device type for extensions."""
    from importlib.metadata import entry_points

    found = entry_points()
    group = found.select(group="torch.backends") if hasattr(found, "select") else found.get("torch.backends", ())
    others = sorted({point.value for point in group if not point.value.startswith("torch_backend:")})
    if not others:
        return Finding("other backends")
    import torch

    from torch_backend import _registry

    name = torch._C._get_privateuse1_backend_name()
    if name in ("privateuseone", _registry.type_name()):  # they do not use the device type
        return Finding(f"other backends: torch also loads {', '.join(others)}")
    return Finding("other backends", f"torch also loads {', '.join(others)}, and the device type PrivateUse1, which only one package can have, is '{name}'",
                   "uninstall them, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you need")  # fmt: skip


def _settings():
    import torch_backend
    from torch_backend import _activation

    installed = [path for folder in (*_activation.folders(), *_plugin_folders()) for path in Path(folder).glob("libhal_*.so")]
    names = {path.stem.removeprefix("libhal_") for path in (*installed, *(Path(plugin.path) for plugin in torch_backend.plugins()))}
    plugins = tuple(f"HAL_{name.upper()}_" for name in names)
    unknown = sorted(name for name in os.environ if name.startswith(("TORCH_BACKEND", "HAL_")) and name not in _SETTINGS
                     and not name.startswith(plugins))  # fmt: skip
    if unknown:
        return Finding("settings", f"unknown: {', '.join(unknown)}", f"known are {', '.join(sorted(_SETTINGS))} and HAL_<PLUGIN>_*")
    return Finding("settings")


def _plugin_folders() -> list[str]:
    return list(filter(None, os.environ.get("HAL_PLUGIN_PATH", "").split(":")))


def _plugin_path():
    for folder in _plugin_folders():
        path = Path(folder)
        if not path.is_absolute():
            return Finding("HAL_PLUGIN_PATH", f"{folder} is not absolute", "write the absolute path; relative paths are ignored")
        if not path.is_dir():
            return Finding("HAL_PLUGIN_PATH", f"{folder} is not a folder", "remove it, or install the plugins there")
        if path.stat().st_mode & stat.S_IWOTH:  # the HAL also checks groups
            return Finding("HAL_PLUGIN_PATH", f"other users may write to {folder}", f"chmod go-w {folder}")
    return Finding("HAL_PLUGIN_PATH")


def _plugins():
    import torch_backend
    from torch_backend import _hal

    causes = list(dict.fromkeys((*torch_backend.errors(), *_hal.problems())))
    if causes:
        return Finding("plugins", " ".join(causes), "follow the error message; HAL_LAYERS=trace shows the calls before it")
    if not torch_backend.is_active() and os.environ.get("TORCH_BACKEND", "").strip():
        return Finding("plugins", "none is active", "set TORCH_BACKEND=fake, or call torch_backend.use('fake')")
    if not torch_backend.is_active():  # no plugin was requested, so finding none is not an error
        return Finding("plugins: none is active, and no device is checked; set TORCH_BACKEND=fake or call torch_backend.use('fake') to choose one")
    return Finding("plugins")


def _choice() -> list:
    """Returns why these plugins were chosen, and a finding for each plugin that the search skipped."""
    from torch_backend import _hal, _registry

    chosen = ", ".join(plugin.name for plugin in _hal.plugins()) if _registry.is_active() else "no plugin"
    passed = [line for line in _hal.report().splitlines() if line and line not in _hal.problems()]
    return [Finding(f"choice of {chosen}: {_registry.choice()}"), *(Finding(f"skipped: {line}") for line in passed)]


def _integrations() -> list:
    """Returns one finding for each installed library that needs to be patched for the device."""
    from torch_backend import integrations

    findings = []
    for state in integrations.status():
        if not state.version:
            continue
        check = f"integration of {state.library} {state.version}"
        if state.enabled and state.sentence:
            findings.append(Finding(check, state.sentence, "install a supported version, or update torch_backend"))
        elif state.enabled:
            findings.append(Finding(f"{check}: enabled, {len(state.patches)} patches"))
        else:
            off = "not enabled; TORCH_BACKEND_INTEGRATIONS=1 makes it choose the device automatically" if state.known else state.sentence
            findings.append(Finding(f"{check}: {off}"))
    return findings


def _device(index: int):
    """Allocates, copies to the device, computes, waits and copies back."""
    import torch

    import torch_backend

    name = f"{torch_backend.device_name()}:{index}"
    try:
        x = torch.arange(1000, dtype=torch.float32)
        y = x.to(name) * 2 + 1
        torch.accelerator.synchronize(torch.device(name))
        if not torch.equal(y.cpu(), x * 2 + 1):
            return Finding(name, "x * 2 + 1 differs from the CPU's", "run the plugin under HAL_LAYERS=validate and report it to its vendor")
    except Exception as error:
        return Finding(name, str(error).splitlines()[0], "run again with HAL_LOG=debug and HAL_LAYERS=trace to see the failing call")
    return Finding(name)


def _versions_of(index: int) -> list:
    """Returns the versions of a device's driver and firmware, if the plugin reports them."""
    import torch_backend
    from torch_backend import backend

    facts = backend.get_device_properties(index)
    versions = [f"{what} {version}" for what, version in (("driver", facts.driver_version), ("firmware", facts.firmware_version)) if version]
    return [Finding(f"{torch_backend.device_name()}:{index} has {', '.join(versions)}")] if versions else []


def collect() -> list:
    """Runs all checks; starts the devices."""
    import torch_backend

    findings = [check() for check in (_versions, _other_backends, _settings, _plugin_path, _plugins)]
    findings += _choice()
    findings += [Finding(f"plugin {plugin.name} {plugin.version}: {plugin.path}") for plugin in torch_backend.plugins()]
    findings += _integrations()
    if torch_backend.is_active():
        from torch_backend import backend

        for index in range(backend.device_count()):
            finding = _device(index)
            findings += [finding] if finding.problem else [finding, *_versions_of(index)]
    return findings


def add_arguments(parser) -> None:
    """Declares the command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def _verdict(findings: list) -> str:
    """Returns one line: how many problems there are, or which devices work."""
    problems = sum(bool(finding.problem) for finding in findings)
    if problems:
        return colored(f"{problems} problem{'s' if problems > 1 else ''}", "red")
    import torch_backend

    if not torch_backend.is_active():
        return colored("no problems; no plugin is active", "yellow")
    from torch_backend import backend

    count = backend.device_count()
    return colored(f"no problems: {torch_backend.device_name()} works, {count} device{'s' if count != 1 else ''}", "green")


def run(arguments) -> int:
    """Prints the verdict, each problem with its cure, and the checks that passed. Returns 1 if there is a problem."""
    findings = collect()
    problems = [finding for finding in findings if finding.problem]
    if arguments.json:
        print_json([finding._asdict() for finding in findings])
        return 1 if problems else 0
    print(_verdict(findings))
    for finding in problems:
        print(f"{colored('PROBLEM', 'red')}  {finding.check}: {finding.problem}")
        if finding.cure:
            print(f"         cure: {finding.cure}")
    for finding in findings:
        if not finding.problem:
            print(f"{colored('ok', 'green')}       {finding.check}")
    return 1 if problems else 0
