"""torch_xla's functions over the device type "lazy".

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

`install_as()` lets programs say `import torch_xla`. Devices are "lazy:0", "lazy:1" ...: the names are torch_xla's, the work is that of
torch_backend.lazy.
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

from . import runtime
from .core import xla_model as xm
from .debug import metrics_saver as _metrics_saver

__version__ = _builds.version()

_device.enable_when_active()
_metrics_saver.analyse_at_exit()


def device(index: int | None = None) -> torch.device:
    """A device, by default this replica's; it becomes the current one."""
    return xm.xla_device(index)


def devices() -> list[torch.device]:
    """All devices of this process."""
    return [torch.device(name) for name in xm.get_xla_supported_devices()]


def real_devices() -> list[str]:
    """What they stand for, such as "FAKE:0"."""
    return xm.xla_real_devices()


def device_count() -> int:
    """How many there are."""
    return len(devices())


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Queues what was put off: `xla_model.mark_step`."""
    xm.mark_step(wait=wait, reset_scope=reset_scope)


@contextlib.contextmanager
def step():
    """A block that is a step: what was put off before it and in it is queued at its beginning and end."""
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
    """Calls `fn(index, *args)` in a process for each device, or with `debug_single_process` in this one."""
    from .distributed import xla_multiprocessing

    return xla_multiprocessing.spawn(fn, args, nprocs=1 if debug_single_process else None, start_method=start_method)


def compile(f=None, full_graph: bool = False, name: str | None = None, max_different_graphs: int | None = None, num_different_graphs_allowed: int | None = None):
    """Makes each call of a function a step of its own; also a decorator with or without arguments.

    `full_graph`: raises RuntimeError when something in it needs results, so that it was queued in several pieces (the pieces that keep a device busy do not count).
    `max_different_graphs` (or `num_different_graphs_allowed`): raises RuntimeError when more calls than that had to compile something, with what and why. `name`: of the function in these."""
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
                f"{known}: results were needed {needed} times inside (item(), printing, copies to the host, operators that the CPU computes), but full_graph=True was asked for"
            )
        if lazy.metrics()["compiled"] > before["compiled"]:
            graphs += 1
            if allowed is not None and graphs > allowed:
                causes = "".join(f"\n  {one.line + ': ' if one.line else ''}{one.cause}" for one in lazy.compilations()[seen:][-3:])
                raise RuntimeError(f"{known}: {graphs} calls had to compile something, {allowed} are allowed:{causes}")
        return result

    return wrapped


_MODULES = (
    "core", "core.xla_model", "debug", "debug.metrics", "debug.metrics_saver", "distributed", "distributed.data_parallel", "distributed.parallel_loader",
    "distributed.xla_multiprocessing", "runtime", "utils", "utils.serialization", "utils.utils",
)  # fmt: skip


def install_as(name: str = "torch_xla") -> None:
    """Lets `import torch_xla` in this process, and in those that `spawn` starts with it installed again, find this package. Raises RuntimeError when there is another package of that name."""
    here = sys.modules[__name__]
    if sys.modules.get(name) is here:
        return
    other = sys.modules.get(name)
    spec = other.__spec__ if other is not None else importlib.util.find_spec(name)
    if other is not None or spec is not None:
        where = getattr(spec, "origin", None) or "in memory"
        raise RuntimeError(f"install_as({name!r}): there is a package of that name ({where}), which programs that import it mean")
    sys.modules[name] = here
    for module in _MODULES:
        sys.modules[f"{name}.{module}"] = importlib.import_module(f"{__name__}.{module}")


__all__ = ["compile", "device", "device_count", "devices", "install_as", "launch", "manual_seed", "real_devices", "runtime", "step", "sync"]
