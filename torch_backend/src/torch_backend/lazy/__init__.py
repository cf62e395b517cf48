"""Lazy mode: work queued inside `record()` is deferred, optimized, and queued together.

::

    with torch_backend.lazy.record():
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            torch_backend.lazy.mark_step()

Tensors are the device's ordinary ones. Shapes, addresses, in-place writes, views and random numbers are real, and
every operator is supported. Adjacent element-wise operators run as one kernel, and unused results are eliminated.
Reading values, synchronizing, an event or a wait of another stream queues the work it needs. So a program is correct
without `mark_step`, which only determines where to queue without waiting.
"""

from __future__ import annotations

from . import device  # noqa: F401  torch_backend.lazy.device
from ._recordings import (
    PERCENTS,  # noqa: F401  of `Measurement`
    Compilation,
    Measurement,
    compilations,
    fuse,
    is_fusing,
    is_recording,
    mark_step,
    measurements,
    metrics,
    operators,
    record,
    reset_metrics,
    start,
    stop,
    take_executions,  # noqa: F401  for torch_backend.xla
    text,
)
from ._settings import debug_level  # noqa: F401  for torch_backend.xla
from ._stats import Stats, plot, stats

__all__ = [
    "Compilation", "Measurement", "Stats", "compilations", "fuse", "is_fusing", "is_recording", "mark_step", "measurements", "metrics", "operators", "plot", "record",
    "reset_metrics", "start", "stats", "stop", "text",
]  # fmt: skip
