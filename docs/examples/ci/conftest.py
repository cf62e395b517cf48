"""Fixtures for tests on the `fake` device. The settings are read once, so they are set before torch_backend is imported."""

import os

# Two devices with memory that the host cannot access, a limit, and random pauses that expose missing synchronization.
for name, value in {
    "HAL_FAKE_DEVICES": "2",
    "HAL_FAKE_MEMORY": "256M",
    "HAL_FAKE_PROTECT": "1",
    "HAL_FAKE_DELAY": "200",
}.items():
    os.environ.setdefault(name, value)

import pytest  # noqa: E402
import torch  # noqa: E402
import torch_backend  # noqa: E402


@pytest.fixture(scope="session")
def device():
    """Returns the device type: `fake`, or the plugin of TORCH_BACKEND."""
    torch_backend.use(os.environ.get("TORCH_BACKEND", "fake"))
    return torch_backend.device_name()


@pytest.fixture(autouse=True)
def finished(device):
    """Waits for the work of each test, so that its failure is not reported by a later test."""
    yield
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
