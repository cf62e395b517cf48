"""Steps: submission of deferred work, and functions that are called after it."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import warnings

import torch

from torch_backend import lazy

from . import _devices, _exchange

# .closures: those of this thread's step, as (closure, arguments, whether another thread runs it)
_state = threading.local()
_runner = None  # the thread that runs asynchronous closures
_runner_lock = threading.Lock()
_marked = False  # whether the program marks steps
_warned = False


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Submits the deferred work of all devices, then runs the closures of the thread's step. `wait`: waits for the
    work; LTC_SYNC_WAIT=1 makes it always wait.
    """
    global _marked
    lazy.device.enable()
    _marked = True
    lazy.mark_step(wait=wait or os.environ.get("LTC_SYNC_WAIT", "0") not in ("", "0"))
    closures, _state.closures = getattr(_state, "closures", []), []
    for closure, args, is_async in closures:
        if is_async:
            _runner_pool().submit(_reported, closure, args)
        else:
            closure(*args)
    _report()


def _runner_pool() -> concurrent.futures.ThreadPoolExecutor:
    global _runner
    with _runner_lock:
        if _runner is None:
            _runner = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="step closures")
        return _runner


def _reported(closure, args) -> None:
    """Runs a closure, and reports an exception as a warning, because no caller can catch it."""
    try:
        closure(*args)
    except Exception as error:
        warnings.warn(f"an asynchronous step closure failed: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=1)


def _report() -> None:
    from ..debug import metrics_saver

    metrics_saver.save_metrics()
    metrics_saver.print_step()


def add_step_closure(closure, args=(), run_async: bool = False) -> None:
    """Makes the thread's next mark_step call `closure(*args)`, for example to print values without an additional step.

    `run_async`: a separate thread runs the closures, one after the other.
    """
    if not hasattr(_state, "closures"):
        _state.closures = []
    _state.closures.append((closure, tuple(args), run_async))


def wait_device_ops(devices=()) -> None:
    """Submits the deferred work of `devices` ("lazy:0" and so on; by default all) and waits for it."""
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
    """Averages gradients over replicas, runs `optimizer.step(**optimizer_args)` and returns its value.

    `barrier`: marks a step after it. Without it the program must mark steps, by a loader of parallel_loader or
    mark_step.
    """
    reduce_gradients(optimizer, groups)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    else:
        _warn_of_endless_step()
    return loss


def _warn_of_endless_step() -> None:
    """Warns once, at the second optimizer step of a program that marks no steps."""
    global _warned, _marked
    if _marked or _warned:
        return
    _warned = _steps_without_mark() > 1
    if _warned:
        warnings.warn(
            "optimizer_step(barrier=False): the program does not mark steps, so deferred work accumulates up to its limit. "
            "Use barrier=True, mark_step(), or a loader of parallel_loader.", UserWarning, stacklevel=3,
        )  # fmt: skip


def _steps_without_mark() -> int:
    _state.unmarked = getattr(_state, "unmarked", 0) + 1
    return _state.unmarked
