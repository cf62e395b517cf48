"""The pytest plugin of `torch-backend upstream`: runs tests of PyTorch for one device, and writes each result to a file at
once, so that a crash loses none. TORCH_BACKEND_UPSTREAM names a file with what runs (_upstream_run.py).

A line of the file is JSON: {"start": test} or {"end": test, "outcome": ..., "message": ..., "seconds": ...}.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import threading
from pathlib import Path

_SETTINGS = json.loads(Path(os.environ["TORCH_BACKEND_UPSTREAM"]).read_text())  # what runs (_upstream_run.py)
_reports: dict = {}  # of the test that runs, by name
_CONFIGURATION = ("op_overrides", "op_allowlist", "test_exclusions")  # parameters of set_test_configs


def _write(**line):
    with open(_SETTINGS["log"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _configured(path) -> dict:
    """Returns the parameters of set_test_configs that the file `path` defines.

    ValueError: the file defines another public name, other than a module or a function, or none of them.
    """
    defined = {name: value for name, value in runpy.run_path(path).items() if not name.startswith("_")}
    found = {name: defined[name] for name in _CONFIGURATION if name in defined}
    if not found:
        raise ValueError(f"{path} defines none of {', '.join(_CONFIGURATION)}")
    return found


def _end_with_the_run():
    """Ends this process, and those that it started, when the process that runs the files has ended."""
    os.read(_SETTINGS["alive"], 1)
    os.killpg(0, signal.SIGKILL)


def pytest_configure(config):
    """Makes the device the one that the tests are instantiated for."""
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    import torch
    import torch_backend
    from torch.testing._internal.common_device_type import PrivateUse1TestBase

    _SETTINGS["type"] = "cpu"
    if _SETTINGS["device"] != "cpu":
        torch_backend.use(_SETTINGS["device"])
        # Without this call the first class would have another name than the following ones.
        PrivateUse1TestBase.setUpClass()
        PrivateUse1TestBase.bypass_device_restrictions = _SETTINGS["all"]
        if _SETTINGS["config"]:
            PrivateUse1TestBase.set_test_configs(**_configured(_SETTINGS["config"]))
        _SETTINGS["type"] = torch._C._get_privateuse1_backend_name()
    if _SETTINGS["openreg"]:
        from torch_backend.cli import _upstream_openreg

        _upstream_openreg.install()


def _named(nodeid: str) -> str:
    """Returns "file.class.test" for pytest's name of a test."""
    path, *names = nodeid.split("::")
    return ".".join([Path(path).stem, *names])


def _is_selected(item) -> bool:
    """Returns whether a test is of the device, and one of those that were named."""
    if not _SETTINGS["openreg"] and getattr(item.cls, "device_type", None) != _SETTINGS["type"]:
        return False
    return not _SETTINGS["only"] or _named(item.nodeid) in _SETTINGS["only"]


def pytest_collection_modifyitems(config, items):
    _SETTINGS["only"], done = set(_SETTINGS["only"]), set(_SETTINGS["done"])
    mine = [item for item in items if _is_selected(item)][_SETTINGS["share"] :: _SETTINGS["shares"]]
    kept = [item for item in mine if _named(item.nodeid) not in done]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def _message(report) -> str:
    """Returns the error without torch's hint how to repeat the test, or the reason of a skip."""
    if report.skipped:
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(getattr(report, "wasxfail", ""))
        return reason.removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = text.partition("\n\nTo execute this test")[0].strip().splitlines()
    return " ".join(lines)[:300] if lines else ""


def pytest_runtest_logstart(nodeid, location):
    _write(start=_named(nodeid))


def pytest_runtest_logreport(report):
    _reports.setdefault(report.nodeid, []).append(report)


def pytest_runtest_logfinish(nodeid, location):
    """Writes the worst of a test's phases."""
    reports = _reports.pop(nodeid, [])
    worst = next((r for r in reports if r.failed), next((r for r in reports if r.skipped), None))
    outcome = "passed" if worst is None else "failed" if worst.failed else "skipped"
    _write(end=_named(nodeid), outcome=outcome, message="" if worst is None else _message(worst),
           seconds=round(sum(r.duration for r in reports), 3))  # fmt: skip
