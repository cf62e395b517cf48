"""Steps: where the work that was put off is queued, and what is called behind it."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import warnings

import torch

from torch_backend import lazy

from . import _devices, _exchange

_state = threading.local()  # .closures: of this thread's step, (closure, arguments, whether another thread runs it)
_runner = None  # the thread of closures that run beside the program
_runner_lock = threading.Lock()
_marked = False  # whether somebody marks steps
_warned = False


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Queues what was put off on all devices, then runs the closures of the thread's step. `wait`: until it is done; always so with LTC_SYNC_WAIT=1."""
    global _marked
    lazy.device.enable()
    _marked = True
    lazy.mark_step(wait=wait or os.environ.get("LTC_SYNC_WAIT", "0") not in ("", "0"))
    closures, _state.closures = getattr(_state, "closures", []), []
    for closure, args, beside in closures:
        if beside:
            _beside().submit(_reported, closure, args)
        else:
            closure(*args)
    _tell()


def _beside() -> concurrent.futures.ThreadPoolExecutor:
    global _runner
    with _runner_lock:
        if _runner is None:
            _runner = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="step closures")
        return _runner


def _reported(closure, args) -> None:
    """An exception beside the program has nobody to go to: it is told as a warning."""
    try:
        closure(*args)
    except Exception as error:
        warnings.warn(f"a step closure that runs beside the program failed: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=1)


def _tell() -> None:
    from ..debug import metrics_saver

    metrics_saver.save_metrics()
    metrics_saver.print_step()


def add_step_closure(closure, args=(), run_async: bool = False) -> None:
    """Has `closure(*args)` called by the thread's next mark_step: to print values without a step of their own. `run_async`: by a thread of its own, one closure
    after the other."""
    if not hasattr(_state, "closures"):
        _state.closures = []
    _state.closures.append((closure, tuple(args), run_async))


def wait_device_ops(devices=()) -> None:
    """Queues what was put off on devices ("lazy:0" ...; none: all) and waits for it."""
    lazy.device.enable()
    for device in devices or [None]:
        lazy.mark_step(device, wait=True)


def reduce_gradients(optimizer: torch.optim.Optimizer, groups=None, cctx=None, pin_layout: bool = True) -> None:
    """Replaces the gradients of an optimizer's parameters by their mean over replicas."""
    count = len(groups[0]) if groups else _devices.xrt_world_size()
    if count > 1:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        _exchange.all_reduce(_exchange.REDUCE_SUM, gradients, scale=1.0 / count, groups=groups)


def optimizer_step(optimizer, barrier: bool = False, optimizer_args=None, groups=None, pin_layout: bool = True):
    """Takes the mean of gradients over replicas, runs `optimizer.step(**optimizer_args)` and gives its value. `barrier`: marks a step behind it; without it somebody
    else must, a loader of parallel_loader or mark_step."""
    reduce_gradients(optimizer, groups)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    else:
        _warn_of_endless_step()
    return loss


def _warn_of_endless_step() -> None:
    """Once, for the second optimizer step of a program that marks none."""
    global _warned, _marked
    if _marked or _warned:
        return
    _warned = _steps_without_mark() > 1
    if _warned:
        warnings.warn(
            "optimizer_step(barrier=False): nobody marks steps, so what is put off grows until its limit. Use barrier=True, mark_step(), or a loader of "
            "parallel_loader.", UserWarning, stacklevel=3,
        )  # fmt: skip


def _steps_without_mark() -> int:
    _state.unmarked = getattr(_state, "unmarked", 0) + 1
    return _state.unmarked
