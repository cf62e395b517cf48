"""Fixtures of the device tests: scripts on plugins of vendors' drivers, run in separate processes; the device type
`lazy`."""

import subprocess
import sys

import pytest
import warm_interpreter

from torch_backend import lazy


@pytest.fixture
def run(run_python, settings, request):
    """Runs a script after the file's HEAD, with the settings of the file's fixture of that name."""
    head = getattr(request.module, "HEAD", "")
    return lambda script, **more: run_python(head + script, timeout=300, **{**settings, **more})


@pytest.fixture
def run_file(request):
    """Runs a script with an environment, from which a value of None removes a variable; returns the finished process. The
    interpreter may have imported torch, unless the test has the mark `fresh_interpreter`."""
    is_fresh = request.node.get_closest_marker("fresh_interpreter") is not None

    def run(script, environment, folder):
        environment = {name: value for name, value in environment.items() if value is not None}
        path = folder / "script.py"
        path.write_text(script)
        command = [sys.executable, "-P", str(path)]
        if is_fresh:
            return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=400)
        return warm_interpreter.run(command, env=environment, cwd=folder, timeout=400)

    return run


@pytest.fixture
def lazy_type():
    """The device type `lazy`, for this test only."""
    lazy.device.enable()
    yield
    lazy.device.stop()
