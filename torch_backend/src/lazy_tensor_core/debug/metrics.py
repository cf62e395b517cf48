"""Counters and measurements of lazy work, as values, as a report, and what they tell: torch_backend.xla.debug.metrics."""

from torch_backend.xla.debug.metrics import *  # noqa: F403
