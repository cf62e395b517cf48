"""output.py: what both generators share: their command line, and files that change only when their text does."""

from __future__ import annotations

import argparse
from pathlib import Path

import oplist


def command_line(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of every generator."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--ops", type=Path, default=oplist.OPS_YAML, help="the operator list")
    parser.add_argument("--out", type=Path, help="folder to write into")
    return parser


def write(path: Path, text: str) -> None:
    """Writes a file only when its text changes, so that what depends on it is not built again."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
