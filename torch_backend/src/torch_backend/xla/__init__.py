"""torch_xla's functions for the device type "lazy".

::

    import torch_backend.xla as torch_xla
    import torch_backend.xla.core.xla_model as xm

    device = xm.xla_device()
    model = Network().to(device)
    for data, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(data.to(device)), target.to(device))
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)

`install_as()` enables `import torch_xla` in programs. Devices are "lazy:0", "lazy:1" and so on. The names are those
of torch_xla; torch_backend.lazy implements the work.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys

import torch
from torch_backend import _builds, lazy
from torch_backend.lazy import device as _device

from . import _missing, runtime
from .core import xla_model as xm
from .debug import metrics_saver as _metrics_saver

__version__ = _builds.version()

_device.enable_when_active()
_missing.report(__name__)
_metrics_saver.analyse_at_exit()


def device(index: int | None = None) -> torch.device:
    """Returns a device, by default that of this replica, and makes it the current one."""
    return xm.xla_device(index)


def devices() -> list[torch.device]:
    """Returns all devices of this process."""
    return [torch.device(name) for name in xm.get_xla_supported_devices()]


def real_devices() -> list[str]:
    """Returns the names of the hardware devices, such as "FAKE:0"."""
    return xm.xla_real_devices()


def device_count() -> int:
    """Returns the number of devices."""
    return len(devices())


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Submits deferred work: `xla_model.mark_step`."""
    xm.mark_step(wait=wait, reset_scope=reset_scope)


@contextlib.contextmanager
def step():
    """Makes a block one step: deferred work is submitted at its beginning and at its end."""
    sync()
    try:
        yield
    finally:
        sync()


def manual_seed(seed: int, device=None) -> None:
    """Seeds the generators of all devices, or of one."""
    for one in [device] if device is not None else devices():
        xm.set_rng_state(seed, one)


def launch(fn, args=(), start_method: str = "spawn", debug_single_process: bool = False):
    """Calls `fn(index, *args)` in a process for each device, or in this process with `debug_single_process`."""
    from .distributed import xla_multiprocessing

    return xla_multiprocessing.spawn(fn, args, nprocs=1 if debug_single_process else None, start_method=start_method)


def compile(f=None, full_graph: bool = False, name: str | None = None, max_different_graphs: int | None = None, num_different_graphs_allowed: int | None = None):
    """Makes each call of a function a step; also a decorator with or without arguments.

    `full_graph`: raises RuntimeError if the function needs results inside, so that it is submitted in several parts.
    Parts that are submitted early to keep the device busy do not count. `max_different_graphs` (or
    `num_different_graphs_allowed`): raises RuntimeError if more calls than that compile something, with the causes.
    `name`: the name of the function in these messages.
    """
    allowed = max_different_graphs if max_different_graphs is not None else num_different_graphs_allowed
    if f is None:
        return functools.partial(compile, full_graph=full_graph, name=name, max_different_graphs=allowed)
    known = name or getattr(f, "__name__", repr(f))
    graphs = 0

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        nonlocal graphs
        sync()
        before, seen = lazy.metrics(), len(lazy.compilations())
        result = f(*args, **kwargs)
        needed = lazy.metrics()["needed"] - before["needed"]
        sync()
        if full_graph and needed:
            raise RuntimeError(
                f"{known}: full_graph=True, but results were needed {needed} times inside (by item(), printing, copies to the host, or operators computed by the CPU)"
            )
        if lazy.metrics()["compiled"] > before["compiled"]:
            graphs += 1
            if allowed is not None and graphs > allowed:
                causes = "".join(f"\n  {one.line + ': ' if one.line else ''}{one.cause}" for one in lazy.compilations()[seen:][-3:])
                raise RuntimeError(f"{known}: {graphs} calls compiled something, {allowed} are allowed:{causes}")
        return result

    return wrapped


_MODULES = (
    "amp", "amp.syncfree", "core", "core.xla_model", "debug", "debug.metrics", "debug.metrics_saver", "debug.profiler", "distributed",
    "distributed.data_parallel", "distributed.parallel_loader", "distributed.xla_multiprocessing", "runtime", "stablehlo", "utils",
    "utils.serialization", "utils.utils",
)  # fmt: skip


def install_as(name: str = "torch_xla") -> None:
    """Makes this package importable as `torch_xla` in this process, and in those that `spawn` starts.

    Raises RuntimeError if another package has that name.
    """
    here = sys.modules[__name__]
    if sys.modules.get(name) is here:
        return
    other = sys.modules.get(name)
    spec = other.__spec__ if other is not None else importlib.util.find_spec(name)
    if other is not None or spec is not None:
        where = getattr(spec, "origin", None) or "in memory"
        raise RuntimeError(f"install_as({name!r}): another package has that name ({where})")
    sys.modules[name] = here
    _missing.report(name)
    for module in _MODULES:
        sys.modules[f"{name}.{module}"] = importlib.import_module(f"{__name__}.{module}")


__all__ = ["compile", "device", "device_count", "devices", "install_as", "launch", "manual_seed", "real_devices", "runtime", "step", "sync"]
