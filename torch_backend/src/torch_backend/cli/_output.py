"""Output of the commands."""

from __future__ import annotations

import json
import os
import sys

_CODES = {"red": 31, "green": 32, "yellow": 33}


def print_json(document) -> None:
    """Prints a document as JSON."""
    print(json.dumps(document, indent=1))


def colored(text: str, color: str, stream=None) -> str:
    """Returns the text in a color ("red", "green", "yellow") if the stream is a terminal and NO_COLOR is not set."""
    stream = stream or sys.stdout
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[color]}m{text}\x1b[0m"


def bar(share: float, width: int = 24) -> str:
    """Returns a bar of `width` characters, of which `share`, a number from 0 to 1, is filled."""
    filled = round(width * min(max(share, 0.0), 1.0))
    return "#" * filled + "." * (width - filled)
