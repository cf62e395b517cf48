"""Reports of each step in a file, and the analysis at the end of the program, where the environment asks for them."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from ..core import _devices

__all__ = ["analyse_at_exit", "save_metrics"]

_lock = threading.Lock()
_step = 0
_DEBUG = ("PT_XLA_DEBUG", "PT_LTC_DEBUG", "LTC_DEBUG")


def _file() -> str | None:
    return os.environ.get("XLA_METRICS_FILE") or os.environ.get("LTC_METRICS_FILE")


def save_metrics(metrics_file: str | None = None) -> None:
    """Appends the report to a file: "STDERR", "STDOUT", or a path, behind which ".N" of the replica stands. Default: XLA_METRICS_FILE or LTC_METRICS_FILE of the environment,
    without which nothing is written. mark_step calls it."""
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


def _analyse() -> None:
    from torch_backend import lazy

    from . import metrics

    if lazy.metrics()["recorded"]:
        print("\n".join(metrics.analysis() or ["pt-xla-profiler: nothing found"]), file=sys.stderr)


def analyse_at_exit() -> None:
    """Has the analysis printed to standard error when the program ends, if PT_XLA_DEBUG or PT_LTC_DEBUG is set and not 0."""
    if any(os.environ.get(name, "0") not in ("", "0") for name in _DEBUG):
        atexit.unregister(_analyse)
        atexit.register(_analyse)
