"""Output of the commands."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

_CODES = {"red": 31, "green": 32, "yellow": 33}


def print_json(document) -> None:
    """Prints a document as JSON."""
    print(json.dumps(document, indent=1))


def check_output(path: str) -> None:
    """Checks before the work that a file can be written after it.

    ValueError: the folder does not exist or cannot be written, or the path is a folder; with the cure.
    """
    folder = Path(path).resolve().parent
    if not path or Path(path).is_dir():
        raise ValueError(f"{path!r} is a folder; choose a file")
    if not folder.is_dir():
        raise ValueError(f"{path} cannot be written: create the folder {folder}, or choose another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{path} cannot be written: you may not write to {folder}; choose another file")


def output_file(text: str) -> str:
    """The type of an option of argparse: a file to write, which `check_output` accepts."""
    try:
        check_output(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def read_results(path, program: str, layout: int, command: str) -> dict:
    """Returns the results that `torch-backend COMMAND --json FILE` wrote.

    ValueError: the file cannot be read, or is not of this program and layout.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:  # ValueError: no UTF-8, no JSON, a number that is too long
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}; "
                         f"name a file that `torch-backend {command} --json FILE` wrote") from None  # fmt: skip
    if not isinstance(document, dict) or document.get("program") != program:
        raise ValueError(f"{path} is not a result of `torch-backend {command} --json FILE`")
    if document.get("layout") != layout:
        raise ValueError(f"{path} has layout {document.get('layout')}; this program compares layout {layout}. Run `{command} --json` again")
    return document


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
