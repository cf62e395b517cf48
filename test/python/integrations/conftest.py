"""Shared fixtures of the tests of libraries: patches in force, no downloads, and a check which device ran the
operators."""

import contextlib
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before a library is imported: models are created from configurations
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

import pytest
import torch

import torch_backend
from torch_backend import integrations


@pytest.fixture(scope="module", autouse=True)
def enabled():
    """Patches all libraries for the tests of a file."""
    integrations.enable()
    yield
    integrations.disable()


@pytest.fixture
def native():
    """`with native(): ...` fails if an operator fell back to the CPU's kernel, or if none ran on the device."""

    @contextlib.contextmanager
    def check():
        torch.accelerator.synchronize()
        torch_backend.ops.reset()
        yield
        torch.accelerator.synchronize()
        rows = torch_backend.ops.report()
        assert sum(row.native for row in rows) > 0, "nothing ran on the device"
        assert not [row for row in rows if row.fallback]

    return check


@pytest.fixture
def fresh_accelerate():
    """accelerate stores its device for the process; each test decides again."""
    state = pytest.importorskip("accelerate.state")
    state.AcceleratorState._reset_state(True)
    yield
    state.AcceleratorState._reset_state(True)
