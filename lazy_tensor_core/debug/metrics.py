"""Counters of lazy work, under Lazy Tensors Core's names."""

from __future__ import annotations

from torch_backend import fallback, lazy

_NAMES = {"MarkStep": "steps", "UncachedCompile": "compiled", "CachedCompile": "cached", "SyncedOps": "queued", "FusedOps": "fused", "DroppedOps": "dropped"}


def _counters() -> dict[str, int]:
    counts = lazy.metrics()
    found = {name: counts[key] for name, key in _NAMES.items()}
    return {**found, **{row.op: row.count for row in fallback.report()}}  # aten::<op>: computed by the CPU


def counter_names() -> list[str]:
    """The counters that are not zero."""
    return sorted(name for name, value in _counters().items() if value)


def counter_value(name: str) -> int | None:
    """The value of a counter; None when it is zero or unknown."""
    return _counters().get(name) or None


def clear_counters() -> None:
    """Sets them to zero, where nothing is put off any more; those of the type "lazy" go on."""
    lazy.reset_metrics()
    fallback.reset()


def metrics_report() -> str:
    """All counters as text, and why groups of operators were compiled last."""
    lines = [f"Counter: {name}\n  Value: {_counters()[name]}" for name in counter_names()]
    lines += [f"Compilation: step {one.step}{', ' + one.line if one.line else ''}: {one.cause}" for one in lazy.compilations()[-10:]]
    return "\n".join(lines) + "\n"
