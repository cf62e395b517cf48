"""The command `plot`: writes pictures of graphs and of the logs of collectives."""

from __future__ import annotations

import sys
from pathlib import Path


def add_arguments(parser) -> None:
    """Declares the command's options."""
    parser.add_argument("input", help="a file in the language of Graphviz (Graph.debug_dump, LTC_SAVE_TENSORS_FILE), or a folder of logs of collectives (rank_<n>)")
    parser.add_argument("output", help="the picture: .svg; of a graph also .png or .pdf")


def run(arguments) -> int:
    """Writes the picture and prints its name. Returns 1 and prints an error message if it fails."""
    from torch_backend import _pictures, distributed

    source, path = Path(arguments.input), Path(arguments.output)
    try:
        files = [distributed.plot(source, path)] if source.is_dir() else _pictures.write(source.read_text(encoding="utf-8"), path)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"torch-backend plot: {error}", file=sys.stderr)
        return 1
    for file in files:
        print(file)
    return 0
