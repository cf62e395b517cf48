"""Per-operator counters of calls that ran on the CPU because the device has no kernel for them."""

from __future__ import annotations

from typing import NamedTuple

from ._extension import extension as _c


class Row(NamedTuple):
    """An operator and the number of its fallbacks."""

    op: str
    count: int


def report() -> list[Row]:
    """Returns the operators that fell back since the start or the last `reset`, the most frequent first."""
    return sorted((Row(*row) for row in _c().fallback_counts()), key=lambda row: (-row.count, row.op))


def reset() -> None:
    """Sets all counts to zero."""
    _c().fallback_reset()


class strict:
    """Makes every fallback raise NotImplementedError, for the whole process.

    ``strict(True)`` and ``strict(False)`` switch immediately; ``with strict():`` restores the previous mode at its end.
    """

    def __init__(self, enabled: bool = True):
        self._previous = _c().set_fallback_strict(bool(enabled))

    def __enter__(self) -> "strict":
        return self

    def __exit__(self, *_) -> None:
        _c().set_fallback_strict(self._previous)


def is_strict() -> bool:
    """Returns whether fallbacks raise."""
    return _c().fallback_strict()


class force:
    """Makes operators use the fallback although the device has kernels for them, for the whole process.

    Use it to find out whether a wrong result comes from a kernel. ``names`` are those of `torch_backend.ops.report`
    (``"sort.stable"``), or their first parts (``"sort"``). Waits for the devices' work; no other thread may run
    operators meanwhile. ``with force("sort"):`` enables the kernels again at its end; ``force("sort")`` alone leaves
    them disabled. The setting ``HAL_DISABLE_OPS=sort,cumsum`` has the same effect from the start of the process.

    Raises:
        ValueError: no operator has such a name.
    """

    def __init__(self, *names: str):
        forms = [{name, name.split(".")[0]} for name in _c().operator_names()]
        self._ops = [op for op, form in enumerate(forms) if not form.isdisjoint(names)]
        missing = set(names).difference(*forms)
        if missing:
            raise ValueError(f"unknown operator {', '.join(sorted(missing))}; expected a name such as \"sort\" or \"sort.stable\"")
        self._set(False)

    def _set(self, enabled: bool) -> None:
        for device in range(_c().device_count()):
            if _c().is_initialized(device):
                _c().synchronize(device)
        for op in self._ops:
            _c().set_operator_enabled(op, enabled)

    def __enter__(self) -> "force":
        return self

    def __exit__(self, *_) -> None:
        self._set(True)
