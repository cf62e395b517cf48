"""PyTorch's own tests of torch.distributed, as tests of this device.

They are in torch's wheel (torch.testing._internal) and written for CUDA and NCCL. This module loads their source with
other names (sources.py). Tests check `BACKEND == "nccl"` to find out what a device supports, so BACKEND remains "nccl".
"""

import os
import sys
import types

os.environ.setdefault("TORCH_BACKEND", "fake")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("HAL_FAKE_DEVICES", os.environ["WORLD_SIZE"])
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["BACKEND"] = "nccl"

import torch

import sources

DEVICE = torch.accelerator.current_accelerator().type


def _device_module():
    """The names of torch.cuda that the tests use, of this device."""
    module = types.ModuleType("upstream_device")
    ours = torch.get_device_module(DEVICE)
    module.__getattr__ = lambda name: getattr(ours, name)
    module.autocast = lambda *arguments, **named: torch.amp.autocast(DEVICE, *arguments, **named)
    module.nccl = types.SimpleNamespace(version=lambda: (9, 0, 0))  # tests request a new one
    return module


def _load(name, original, **replaced):
    """Loads a module of torch under another name, with the rules of sources.py; `replaced` are values that it gets
    afterwards."""
    file, code = sources.compiled(original, DEVICE)
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    exec(code, module.__dict__)
    module.__dict__.update(replaced)
    return module


sys.modules["upstream_device"] = sys.modules["torch.upstream_device"] = _device_module()
_load("upstream_common_distributed", sources.COMMON, TEST_CUDA=True)
distributed_test = _load("upstream_distributed_test", sources.TESTS)
