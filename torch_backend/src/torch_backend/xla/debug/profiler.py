"""torch_xla's profiler interface, by torch.profiler: traces are files for chrome://tracing and Perfetto."""

from __future__ import annotations

import contextlib
import functools
import os

import torch

from torch_backend import lazy

__all__ = ["StepTrace", "Trace", "start_server", "start_trace", "stop_trace", "trace", "trace_me"]

_running: tuple | None = None


class Trace(contextlib.ContextDecorator):
    """Names a block, or the calls of a function, in the trace."""

    def __init__(self, name: str, **kwargs):
        self.name, self.values = name, kwargs
        self._block = None

    def __enter__(self):
        values = ",".join(f"{name}={value}" for name, value in self.values.items())
        self._block = torch.profiler.record_function(f"{self.name}#{values}#" if values else self.name)
        self._block.__enter__()
        return self

    def __exit__(self, *failure) -> None:
        self._block.__exit__(*failure)


class StepTrace(Trace):
    """A block that is one step of a loop: deferred work is submitted at its end. `step_num` is its number."""

    def __exit__(self, *failure) -> None:
        try:
            if failure[0] is None:
                from ..core import xla_model

                xla_model.mark_step()
        finally:
            super().__exit__(*failure)


def trace_me(name: str):
    """Returns a decorator that names the calls of a function in the trace."""

    def decorate(function):
        @functools.wraps(function)
        def traced(*args, **kwargs):
            with Trace(name):
                return function(*args, **kwargs)

        return traced

    return decorate


def start_trace(log_dir: str) -> None:
    """Starts a trace of this process. Raises RuntimeError if one is running."""
    global _running
    if _running is not None:
        raise RuntimeError("start_trace: a trace is running already; call stop_trace() first")
    os.makedirs(log_dir, exist_ok=True)
    profile = torch.profiler.profile(on_trace_ready=torch.profiler.tensorboard_trace_handler(os.fspath(log_dir)))
    profile.start()
    _running = (profile,)


def stop_trace() -> None:
    """Ends the trace, and writes its file to the folder. Raises RuntimeError if none is running."""
    global _running
    if _running is None:
        raise RuntimeError("stop_trace: no trace is running; call start_trace(folder) first")
    (profile,), _running = _running, None
    lazy.mark_step()
    profile.stop()


def start_server(port: int, only_on_master: bool = True):
    """Raises NotImplementedError: a process is traced by `start_trace` and `stop_trace`, not through a server."""
    raise NotImplementedError(f"start_server({port}): profiles are taken in the process; call start_trace(folder) and stop_trace()")


def trace(service_addr: str, logdir: str, duration_ms: int = 1000, **options) -> None:
    """Raises NotImplementedError, as `start_server`."""
    raise NotImplementedError(f"trace({service_addr!r}): there is no profiling server; call start_trace(folder) and stop_trace() in the process")
