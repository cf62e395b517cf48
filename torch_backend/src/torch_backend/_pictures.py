"""Writes graphs in the language of Graphviz as files: the text itself, or a picture that the program `dot` renders."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

PICTURES = (".svg", ".png", ".pdf")
_GRAPH = re.compile(r"^digraph\b", re.M)


def write(text: str, path: str | os.PathLike) -> list[Path]:
    """Writes graphs to `path` and returns the written files. The suffix selects the format: `.dot` the text, `.svg`,
    `.png` or `.pdf` a picture. Pictures of several graphs are numbered: `work-1.svg`, `work-2.svg`.

    Raises ValueError for another suffix or a text without a graph, and RuntimeError if `dot` is missing or fails.
    """
    path = Path(path)
    if path.suffix not in (".dot", *PICTURES):
        raise ValueError(f"{path}: invalid suffix {path.suffix!r}: expected '.dot', '.svg', '.png' or '.pdf'")
    starts = [match.start() for match in _GRAPH.finditer(text)]
    if not starts:
        raise ValueError(f"{path}: there is no graph in the text: expected a line that begins with 'digraph'")
    if path.suffix == ".dot":
        path.write_text(text, encoding="utf-8")
        return [path]
    graphs = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)])]
    files = [path] if len(graphs) == 1 else [path.with_stem(f"{path.stem}-{number}") for number in range(1, len(graphs) + 1)]
    for graph, file in zip(graphs, files):
        _render(graph, file)
    return files


def _render(graph: str, file: Path) -> None:
    try:
        done = subprocess.run(["dot", f"-T{file.suffix[1:]}", "-o", str(file)], input=graph, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RuntimeError(f"{file}: the program 'dot' is missing; install Graphviz (Debian: graphviz), or write a '.dot' file") from error
    if done.returncode:
        raise RuntimeError(f"{file}: dot failed with exit code {done.returncode}: {done.stderr.strip()}")
