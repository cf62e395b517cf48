"""What the environment requests of lazy mode, by the names of Lazy Tensors Core and torch_xla."""

from __future__ import annotations

import os


def wants_lines() -> bool:
    """Returns whether the environment requests Python lines."""
    return os.environ.get("LTC_IR_DEBUG", "0") not in ("", "0") or debug_level() > 0


def debug_level() -> int:
    """Returns the verbosity that the environment requests for each step: 0 nothing, 1 why groups were compiled, 2 also
    why work was queued.
    """
    level = os.environ.get("PT_XLA_DEBUG_LEVEL") or "0"
    if not level.isdecimal():
        raise ValueError(f"PT_XLA_DEBUG_LEVEL={level}: expected 0, 1 or 2")
    return int(level)


def wants_groups() -> bool:
    """Returns whether groups of operators run as one kernel; the environment can disable this."""
    return os.environ.get("SYNC_TENSORS_OPBYOP", "0") in ("", "0")


def text_file() -> tuple[str, bool]:
    """Returns the file that the environment names for queued work, "" = none, and whether to write it as a graph."""
    form = os.environ.get("LTC_SAVE_TENSORS_FMT", "text")
    if form not in ("text", "backend", "dot"):
        raise ValueError(f"LTC_SAVE_TENSORS_FMT={form}: expected text, dot or backend (which is text)")
    return os.environ.get("LTC_SAVE_TENSORS_FILE", ""), form == "dot"
