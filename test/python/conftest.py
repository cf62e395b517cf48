"""What the tests share: the fake device with two devices, and a way to run a script in a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest

os.environ.setdefault("HAL_FAKE_DEVICES", "2")  # before the plugin is opened: device ranges are fixed then

import torch

import torch_backend

torch_backend.use("fake")

SETTINGS = ("TORCH_BACKEND", "TORCH_BACKEND_NAME", "TORCH_DEVICE_BACKEND_AUTOLOAD", "HAL_PLUGIN_PATH", "HAL_LAYERS", "HAL_LOG",
            "HAL_FAKE_DEVICES", "HAL_FAKE_MEMORY", "PYTORCH_ALLOC_CONF")  # fmt: skip


@pytest.fixture
def device():
    """The device type's name."""
    return torch_backend.device_name()


@pytest.fixture
def module():
    """The device module, torch.fake."""
    return torch.get_device_module(torch_backend.device_name())


@pytest.fixture
def run_python(tmp_path):
    """Runs a script in a fresh interpreter with only the given settings; returns the finished process."""

    def run(script, *, timeout=120, check=True, arguments=(), **settings):
        environment = {key: value for key, value in os.environ.items() if key not in SETTINGS}
        environment.update({key: str(value) for key, value in settings.items()})
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(script))
        command = [sys.executable, *arguments, str(path)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=timeout)
        if check:
            assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(autouse=True)
def same_state_after_each_test():
    """A test leaves the current device, the current streams and the fallback's mode as it found them."""
    module = torch.get_device_module(torch_backend.device_name())
    yield
    module.synchronize()
    assert module.current_device() == 0
    assert all(module.current_stream(index) == module.default_stream(index) for index in range(module.device_count()))
    assert not torch_backend.fallback.is_strict()
