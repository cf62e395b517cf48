"""Registers the opened plugins' devices with torch: extension, device type name, device module, tensor methods, exit."""

from __future__ import annotations

import atexit
import os
import sys

import torch

# The extension's C++ registrations happen here; ._activation has checked that they cannot fail.
from . import _C, _data_parallel, _device_lists, _dlpack, _multiprocessing, _optimizers, _profiler, _serialization, backend
from .backend import amp, graphs, leaks, memory, nvtx, random, sparse, streams, tensors
from .distributed import _backend as distributed
from .distributed import _torch as of_torch
from .dynamo import registration as dynamo
from .integrations import _notice
from .triton import _registration as triton


def register(name: str) -> None:
    """Registers `name` as a device type of torch, with torch.<name> as its module."""
    torch.utils.rename_privateuse1_backend(name)
    backend.__name__ = f"torch.{name}"  # TorchDynamo looks the module up by this name
    torch._register_device_module(name, backend)
    for module in (amp, graphs, memory, nvtx, random, sparse, streams):
        sys.modules[f"torch.{name}.{module.__name__.rpartition('.')[2]}"] = module
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    backend._register_with_inductor = _load_inductor
    _C.register_graphs()
    _C.register_package_runner()
    tensors.install(backend._types)
    dynamo.install(_computes_on_host)
    _data_parallel.install()
    _device_lists.install()
    distributed.install()
    of_torch.install(name)
    _dlpack.install(streams.get_stream_from_external)
    _multiprocessing.install(streams.Event, streams.default_stream)
    _optimizers.install(graphs.is_current_stream_capturing)
    _profiler.install(name)
    _serialization.install()
    triton.install()
    if leaks.wanted():
        atexit.register(leaks.release_reachable, name)  # after all other functions
    atexit.register(_quiesce)
    atexit.register(_notice.tell)  # runs before the functions registered earlier


def _load_inductor() -> None:
    """Imports the modules that register the device with inductor, at its first use, because importing inductor takes
    seconds.
    """
    from . import inductor

    inductor.register()


def _computes_on_host() -> bool:
    """Returns whether inductor's kernels for the device are those of the host. Called while inductor is in use."""
    from .inductor import _ways

    return _ways.computes_on_host()


def _quiesce() -> None:
    """Runs before the interpreter ends: waits until autograd's device threads no longer need the GIL, and until queued
    work is done.
    """
    # A forked child has neither those threads nor the devices: torch's engine must not wait 10 s for them
    if _C.in_bad_fork():
        os.environ.setdefault("TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT", "0")
        return
    seconds = float(os.environ.get("TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT", "10"))  # torch's own limit for the same wait
    if not _C.quiesce_autograd(seconds):
        print(f"torch_backend: a backward pass is still running after {seconds:g} s; exiting without waiting for it", file=sys.stderr)
    _C.drain_devices()
