"""Processes, or threads, that train together, one for each device."""

from __future__ import annotations

import contextlib
import os
import threading

import torch
import torch.multiprocessing

from torch_backend import _activation, _registry
from torch_backend.distributed import _backend

from ..core import _replicas
from ..core import xla_model as xm
from ..utils import utils

__all__ = ["MpModelWrapper", "MpSerialExecutor", "spawn"]


def _begin(index: int, count: int, plugin: str, name: str, fn, args) -> None:
    """Runs in the new process: sets its numbers, activates the plugin, creates the group, and calls the program's
    function.
    """
    for key in ("RANK", "LOCAL_RANK"):
        os.environ[key] = str(index)
    for key in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ[key] = str(count)
    _activation.use(plugin)
    if _registry.device_name() != name:
        raise RuntimeError(f"process {index} has the device '{_registry.device_name()}', but its parent process has '{name}'")
    # Its collectives of CPU tensors use Gloo
    torch.distributed.init_process_group(_backend.NAME, rank=index, world_size=count)
    try:
        xm.xla_device()
        fn(index, *args)
        xm.mark_step(wait=True)
    finally:
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _environment(**values):
    """Sets variables that started processes inherit, until the end of a block."""
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


def _run_thread(index: int, replicas, fn, args, errors: list) -> None:
    try:
        xm.set_replication(replicas.devices[index], replicas)
        fn(index, *args)
        xm.mark_step(wait=True)
    except BaseException as error:
        errors.append(error)
        replicas.leave()  # the waits of the others end
    finally:
        with contextlib.suppress(Exception):
            xm.set_replication(None, [])


def _spawn_threads(count: int, fn, args) -> None:
    replicas, errors = _replicas.Replicas(xm.get_xla_supported_devices()), []
    threads = [threading.Thread(target=_run_thread, args=(index, replicas, fn, args, errors)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def spawn(fn, args=(), nprocs: int | None = None, join: bool = True, daemon: bool = False, start_method: str = "spawn"):
    """Calls `fn(index, *args)` in `nprocs` processes, by default one for each device. Each process has its own device
    as the current one, and torch.distributed with the backend of the device.

    `nprocs=1` calls it in this process, and returns None. `join`: waits for all processes; otherwise torch's
    ProcessContext is returned. `start_method="thread"`: threads of this process, for devices that one process has, such
    as those of `pjrt`; collectives are those of xla_model, torch.distributed has no default group, and the first
    exception of a thread is raised. Raises ValueError unless the number is 1 or that of the devices, for threads with
    join=False, and torch.multiprocessing.ProcessRaisedException with the text of an exception in a process.
    """
    devices = len(xm.get_xla_supported_devices())
    count = devices if nprocs is None else nprocs
    if count == 1:
        fn(0, *args)
        return None
    if count != devices:
        raise ValueError(f"Unsupported nprocs ({nprocs}): expected 1, or None or {devices} for one process for each device")
    if start_method == "thread":
        if not join:
            raise ValueError('start_method="thread" needs join=True: threads end with the call')
        return _spawn_threads(count, fn, args)
    plugin, name = _registry.requested(), _registry.device_name()
    with _environment(
        TORCH_BACKEND=plugin, MASTER_ADDR=os.environ.get("MASTER_ADDR", "127.0.0.1"), MASTER_PORT=os.environ.get("MASTER_PORT") or str(utils.get_free_tcp_ports()[0])
    ):
        return torch.multiprocessing.start_processes(
            _begin, args=(count, plugin, name, fn, args), nprocs=count, join=join, daemon=daemon, start_method=start_method
        )


def _new_lock():
    """Returns a lock that can be passed to processes of every start method, also as an argument."""
    return torch.multiprocessing.get_context("spawn").Lock()


class MpSerialExecutor:
    """Runs functions of all threads and processes one after the other, for example downloads of the same file, or
    models that need much host memory.
    """

    def __init__(self):
        self._lock = _new_lock()

    def run(self, fn):
        """Returns the value of `fn()`. No other thread or process is in `run` meanwhile."""
        with self._lock:
            return fn()


class MpModelWrapper:
    """A network that processes copy to their devices one after the other, so that the host's memory has only one
    additional copy at a time.
    """

    def __init__(self, model: torch.nn.Module):
        self._model, self._lock = model, _new_lock()

    def to(self, device) -> torch.nn.Module:
        """Returns the network on a device."""
        with self._lock:
            self._model.to(device)
        return self._model


