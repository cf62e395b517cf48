"""Reports of each step in a file or on standard error, and the analysis at the end of the program, if environment
variables enable them.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

from ..core import _devices

__all__ = ["analyse_at_exit", "print_step", "save_metrics"]

_lock = threading.Lock()
_step = 0
_printed = None  # the last compilation that was printed
_DEBUG = ("PT_XLA_DEBUG", "PT_LTC_DEBUG", "LTC_DEBUG")


def _file() -> str | None:
    return os.environ.get("XLA_METRICS_FILE") or os.environ.get("LTC_METRICS_FILE")


def save_metrics(metrics_file: str | None = None) -> None:
    """Appends the report to a file. mark_step calls it.

    `metrics_file`: "STDERR", "STDOUT", or a path, to which ".N" is appended for replica N. Default: XLA_METRICS_FILE
    or LTC_METRICS_FILE of the environment; if neither is set, nothing is written.
    """
    global _step
    path = metrics_file or _file()
    if not path:
        return
    from . import metrics

    with _lock:
        text = f"[MetricsData; step={_step}]\n{metrics.metrics_report()}\n"
        _step += 1
        if path in ("STDERR", "STDOUT"):
            print(text, file=getattr(sys, path.lower()), flush=True)
            return
        with open(f"{path}.{_devices.get_local_ordinal()}", "a") as file:
            file.write(text)


def _print_block(kind: str, lines: list[str]) -> None:
    if lines:
        text = ["=" * 80, f"{kind} Cause", *(f"  {line}" for line in lines), "-" * 80]
        print("\n".join(f"{kind} Analysis: {line}" for line in text), file=sys.stderr, flush=True)


def print_step() -> None:
    """Prints to standard error, with lines, the causes of compilations since the last call (PT_XLA_DEBUG_LEVEL=1), and
    also those of submissions (2). mark_step and the end of the program call it.
    """
    global _printed
    from torch_backend import lazy

    level = lazy.debug_level()
    if not level:
        return
    with _lock:
        found = lazy.compilations()
        known = next((number + 1 for number, one in enumerate(found) if one is _printed), 0)
        _printed = found[-1] if found else None
    _print_block("Compilation", [str(one) for one in found[known:]])
    _print_block("Execution", [f"step {step}: {cause}" for step, cause in lazy.take_executions()])


def _analyse() -> None:
    from torch_backend import lazy

    from . import metrics

    if lazy.metrics()["recorded"]:
        print("\n".join(metrics.analysis() or ["pt-xla-profiler: nothing found"]), file=sys.stderr)


def _print_rest() -> None:
    from torch_backend import _registry

    if _registry.is_active():
        print_step()


def analyse_at_exit() -> None:
    """Registers functions for the end of the program, which print to standard error. They print the analysis if
    PT_XLA_DEBUG or PT_LTC_DEBUG is set and not 0, and the last steps if PT_XLA_DEBUG_LEVEL is set.
    """
    atexit.unregister(_print_rest)
    atexit.register(_print_rest)
    if any(os.environ.get(name, "0") not in ("", "0") for name in _DEBUG):
        atexit.unregister(_analyse)
        atexit.register(_analyse)
