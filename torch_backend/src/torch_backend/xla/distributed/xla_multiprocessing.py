"""Processes that train together, one for each device."""

from __future__ import annotations

import contextlib
import os

import torch
import torch.multiprocessing

from torch_backend import _activation, _registry
from torch_backend.distributed import _backend

from ..core import xla_model as xm
from ..utils import utils

__all__ = ["MpModelWrapper", "MpSerialExecutor", "spawn"]


def _begin(index: int, count: int, plugin: str, name: str, fn, args) -> None:
    """In the new process: its numbers, the plugin, the group, and then the program's function."""
    for key in ("RANK", "LOCAL_RANK"):
        os.environ[key] = str(index)
    for key in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ[key] = str(count)
    _activation.use(plugin)
    if _registry.device_name() != name:
        raise RuntimeError(f"process {index} has the device '{_registry.device_name()}', the one that started it '{name}'")
    torch.distributed.init_process_group(_backend.NAME, rank=index, world_size=count)  # whose CPU tensors go to Gloo
    try:
        xm.xla_device()
        fn(index, *args)
        xm.mark_step(wait=True)
    finally:
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _environment(**values):
    """Variables that started processes inherit."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def spawn(fn, args=(), nprocs: int | None = None, join: bool = True, daemon: bool = False, start_method: str = "spawn"):
    """Calls `fn(index, *args)` in `nprocs` processes (None: one for each device), each with a device of its own as the current one, and torch.distributed with
    the backend of the device.

    `nprocs=1` calls it in this process, and gives None. `join`: waits for all; else gives torch's ProcessContext. Raises ValueError for a number that is neither 1 nor that of
    the devices, and torch.multiprocessing.ProcessRaisedException with the text of what a process raised."""
    devices = len(xm.get_xla_supported_devices())
    count = devices if nprocs is None else nprocs
    if count == 1:
        fn(0, *args)
        return None
    if count != devices:
        raise ValueError(f"Unsupported nprocs ({nprocs}): there are {devices} devices, a process for each (None) or 1 process is possible")
    plugin, name = _registry.requested(), _registry.device_name()
    with _environment(
        TORCH_BACKEND=plugin, MASTER_ADDR=os.environ.get("MASTER_ADDR", "127.0.0.1"), MASTER_PORT=os.environ.get("MASTER_PORT") or str(utils.get_free_tcp_ports()[0])
    ):
        return torch.multiprocessing.start_processes(
            _begin, args=(count, plugin, name, fn, args), nprocs=count, join=join, daemon=daemon, start_method=start_method
        )


def _new_lock():
    """Of the kind that goes to processes of every start method, as an argument too."""
    return torch.multiprocessing.get_context("spawn").Lock()


class MpSerialExecutor:
    """Runs functions one after the other, whatever thread or process they are of: downloads that all would make, or models that are large on the host."""

    def __init__(self):
        self._lock = _new_lock()

    def run(self, fn):
        """The value of `fn()`, while nobody else is in `run`."""
        with self._lock:
            return fn()


class MpModelWrapper:
    """A network whose copies go to their devices one after the other, so that the host's memory holds one more at a time."""

    def __init__(self, model: torch.nn.Module):
        self._model, self._lock = model, _new_lock()

    def to(self, device) -> torch.nn.Module:
        """The network on a device."""
        with self._lock:
            self._model.to(device)
        return self._model


