"""Functions that run when the process first uses a device."""

from __future__ import annotations

from collections.abc import Callable

_functions: list[Callable[[], None]] = []


def at_first_use(function: Callable[[], None]) -> None:
    """Registers a function that runs once, when the process first uses a device. It must not call torch's functions of the
    device, which wait for the end of the first use.
    """
    _functions.append(function)


def run() -> None:
    """Called at the first use of a device."""
    while _functions:
        _functions.pop(0)()
