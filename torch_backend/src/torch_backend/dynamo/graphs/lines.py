"""The program's lines of the operators in a graph of torch.fx, for messages."""

from __future__ import annotations

import linecache
import os
import re
import traceback
from collections.abc import Sequence
from types import CodeType

import torch

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in [^\n]*(?:\n +(?P<code>[^\n]+))?')
_PLACE = re.compile(r" at (?P<file>[^\n]+?):(?P<line>\d+): ")  # of `line_of`
_TORCH = os.path.dirname(torch.__file__) + os.sep
_CALL = "# operator of the program: "  # the start of a comment above a call in inductor's code
_COMMENTS = 5  # lines between such a comment and the call
_GENERATED = "<eval_with_key>"  # the start of the file names of the code of torch.fx


def line_of(node: torch.fx.Node) -> str:
    """Returns " at <file>:<line>: <code>" of an operator, or of the first one with a line that uses it; "" if there is
    none. Lines of torch count only if the program has none.
    """
    trace = next((trace for one in (node, *node.users) if (trace := one.meta.get("stack_trace"))), "")
    frames = list(_FRAME.finditer(trace))
    if not frames:
        return ""
    frame = next((one for one in reversed(frames) if not one["file"].startswith(_TORCH)), frames[-1])
    code = f": {frame['code'].strip()}" if frame["code"] else ""
    return f" at {frame['file']}:{frame['line']}{code}"


def failed_operator(gm: torch.fx.GraphModule, error: BaseException) -> str:
    """Returns name and line of the operator that has raised an error in the graph's code; "" if it is unknown."""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(_GENERATED) and frame.line:
            name = frame.line.partition("=")[0].partition(":")[0].strip()
            node = next((node for node in gm.graph.nodes if node.name == name), None)
            return "" if node is None else f"{node.target}{line_of(node)}"
    return ""


def comment_of(node: torch.fx.Node) -> str:
    """Returns the comment above a call of an operator in inductor's code, for `called_operator`."""
    return f"{_CALL}{node.target}{line_of(node)}".replace("\n", " ")


def relocate(text: str, codes: Sequence[CodeType]) -> str:
    """Returns a text of `line_of` with the places of its lines in the program that is compiled now. Inductor's cache
    returns texts of the program that was compiled first, whose file may be another one, or may have changed. A line that
    `codes` (TorchDynamo's list of the functions of the program) has not, or has more than once, is named without a place.
    """

    def place(match: re.Match) -> str:
        line = text[match.end() :]
        same = [one for one in _lines(codes) if one[2] and line.startswith(one[2])]
        longest = max((len(own) for _, _, own in same), default=0)
        found = {(file, number) for file, number, own in same if len(own) == longest}
        if (match["file"], int(match["line"])) in found:
            return match[0]
        return f" at {':'.join(map(str, found.pop()))}: " if len(found) == 1 else " at "

    return _PLACE.sub(place, text)


def _lines(codes: Sequence[CodeType]):
    for code in codes:
        numbers = [number for _, _, number in code.co_lines() if number]
        for number in range(min(numbers, default=0), max(numbers, default=-1) + 1):
            yield code.co_filename, number, linecache.getline(code.co_filename, number).strip()


def called_operator(codes: Sequence[CodeType], error: BaseException) -> str:
    """Returns name and line of the operator whose call in inductor's code has raised an error; "" if it is unknown."""
    for frame in traceback.extract_tb(error.__traceback__):
        for number in range(frame.lineno - 1, max(0, frame.lineno - 1 - _COMMENTS), -1):
            line = linecache.getline(frame.filename, number).strip()
            if line.startswith(_CALL):
                return relocate(line.removeprefix(_CALL), codes)
            if not line.startswith("#"):
                break
    return ""
