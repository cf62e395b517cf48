"""Fixtures of the device tests: scripts on plugins of vendors' drivers, run in separate processes; the device type
`lazy`."""

import pytest

from torch_backend import lazy


@pytest.fixture
def run(run_python, settings, request):
    """Runs a script after the file's HEAD, with the settings of the file's fixture of that name."""
    head = getattr(request.module, "HEAD", "")
    return lambda script, **more: run_python(head + script, timeout=300, **{**settings, **more})


@pytest.fixture
def lazy_type():
    """The device type `lazy`, for this test only."""
    lazy.device.enable()
    yield
    lazy.device.stop()
