"""The ledger of operators that ran on the CPU because the device has no kernel for them."""

from __future__ import annotations

from typing import NamedTuple

from ._activation import device_name


class Row(NamedTuple):
    """An operator and how often it fell back."""

    op: str
    count: int


def _c():
    device_name()  # a clear error when nothing is active
    from . import _C

    return _C


def report() -> list[Row]:
    """Gives the operators that fell back since the start or the last `reset`, the most frequent first."""
    return sorted((Row(*row) for row in _c().fallback_counts()), key=lambda row: (-row.count, row.op))


def reset() -> None:
    """Sets all counts to zero."""
    _c().fallback_reset()


class strict:
    """Makes every fallback raise NotImplementedError, for the whole process.

    ``strict(True)`` and ``strict(False)`` switch at once; ``with strict():`` restores the mode that was before.
    """

    def __init__(self, enabled: bool = True):
        self._previous = _c().set_fallback_strict(bool(enabled))

    def __enter__(self) -> "strict":
        return self

    def __exit__(self, *_) -> None:
        _c().set_fallback_strict(self._previous)


def is_strict() -> bool:
    """Tells whether fallbacks raise."""
    return _c().fallback_strict()
