"""Counters and measurements of lazy work, as values and as a report with advice: torch_backend.xla.debug.metrics."""

from torch_backend.xla.debug.metrics import *  # noqa: F403
