"""The rate of a training loop."""

from __future__ import annotations

import time

from ..utils import utils


class RateTracker:
    """Measures samples per second.

    `rate()` is the rate since its last call, smoothed exponentially: `smooth_factor` (RATE_TRACKER_SMOOTHING, 0.4) is the
    share of the previous rates. `global_rate()` is the rate since the creation.
    """

    def __init__(self, smooth_factor: float | None = None):
        self._smooth_factor = utils.getenv_as("RATE_TRACKER_SMOOTHING", float, 0.4) if smooth_factor is None else smooth_factor
        self._begin = self._last = time.monotonic()
        self._count = self._recent = 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        """Adds processed samples."""
        self._count += count
        self._recent += count

    def rate(self) -> float:
        """Returns the smoothed rate."""
        now = time.monotonic()
        if now > self._last:
            current = self._recent / (now - self._last)
            share = 0.0 if self._rate is None else self._smooth_factor
            self._rate = current * (1 - share) + (self._rate or 0.0) * share
            self._last, self._recent = now, 0.0
        return self._rate or 0.0

    def global_rate(self) -> float:
        """Returns the rate since the creation."""
        passed = time.monotonic() - self._begin
        return self._count / passed if passed > 0 else 0.0
