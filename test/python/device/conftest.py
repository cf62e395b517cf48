"""What tests of devices share: scripts of plugins over vendors' drivers run in processes of their own; the device type `lazy`."""

import pytest

from torch_backend import lazy


@pytest.fixture
def run(run_python, settings, request):
    """Runs a script behind the file's HEAD, with the settings of the file's fixture of that name."""
    head = getattr(request.module, "HEAD", "")
    return lambda script, **more: run_python(head + script, timeout=300, **{**settings, **more})


@pytest.fixture
def lazy_type():
    """The device type `lazy`, of this test alone."""
    lazy.device.enable()
    yield
    lazy.device.stop()
