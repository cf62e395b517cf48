"""The functions that the generators share: command line, errors, and writing files only if their text changes."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import entries
from entry_file import EntryError


def command_line(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of every generator."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--operators", type=Path, default=entries.OPERATORS, help="the folder of operator entries")
    parser.add_argument("--out", type=Path, help="folder to write into")
    return parser


def exit_with_errors(main) -> None:
    """Runs a generator; an invalid entry ends it with its error message."""
    try:
        main()
    except EntryError as error:
        sys.exit(f"codegen: {error}")


def write(path: Path, text: str) -> None:
    """Writes a file only if its text changes, so that dependent files are not built again."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
