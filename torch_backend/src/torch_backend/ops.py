"""Which operators ran natively on the device and which fell back to the CPU, and which would, without running them."""

from __future__ import annotations

from typing import NamedTuple

from ._coverage import Coverage, coverage
from ._extension import extension as _c

__all__ = ["Coverage", "Row", "coverage", "report", "reroutes", "reset"]


class Row(NamedTuple):
    """Numbers of calls of an operator.

    `native` calls ran the plugin's own operator (`plugin` of them) or a portable kernel. `fallback` calls ran the
    CPU's kernel. `composed` calls ran other operators of the device, which are counted separately.
    """

    op: str
    native: int
    fallback: int
    plugin: int = 0
    composed: int = 0

    @property
    def portable(self) -> int:
        """The number of calls that ran portable kernels."""
        return self.native - self.plugin

    @property
    def kinds(self) -> tuple:
        """The kinds of kernels that ran, as in `coverage`, the most frequent first: "plugin", "portable", "composite",
        "fallback".
        """
        calls = {"plugin": self.plugin, "portable": self.portable, "composite": self.composed, "fallback": self.fallback}
        return tuple(sorted((kind for kind, count in calls.items() if count), key=lambda kind: -calls[kind]))


def report() -> list[Row]:
    """Returns the calls since the start or the last `reset`, the most frequent first.

    A native row has the name of the operator's entry (codegen/operators), a fallback row that of the ATen operator.
    """
    rows = {name: [plugin + portable, 0, plugin, 0] for name, plugin, portable, _ in _c().operator_counts() if plugin + portable}
    for name, count in _c().fallback_counts():
        rows.setdefault(name.rpartition("aten::")[2], [0, 0, 0, 0])[1] += count
    for name, count in _c().composed_counts():
        rows.setdefault(name, [0, 0, 0, 0])[3] += count
    return sorted((Row(op, *calls) for op, calls in rows.items()), key=lambda row: (-row.native - row.fallback - row.composed, row.op))


def reset() -> None:
    """Sets all counters to zero, including those of the fallback."""
    _c().operator_reset()
    _c().fallback_reset()


class reroutes:
    """Enables or disables, for the whole process, that operators of torch call those of custom libraries
    (docs/custom-operators.md).

    ``reroutes(False)`` and ``reroutes(True)`` switch immediately; ``with reroutes(False):`` restores the previous
    state at its end.
    """

    def __init__(self, enabled: bool = True):
        self._previous = _c().set_reroutes(bool(enabled))

    def __enter__(self) -> "reroutes":
        return self

    def __exit__(self, *_) -> None:
        _c().set_reroutes(self._previous)
