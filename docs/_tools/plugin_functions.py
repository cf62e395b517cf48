"""Writes the reference of the plugin's functions from hal/include/hal/plugin_ops.def: a table, then each function.

    plugin_functions.py OUT.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).resolve().parents[2] / "hal/include/hal/plugin_ops.def"
UNUSED = "Not used yet."  # of the comment: no part of the host calls the function so far
NEED = {"M": "yes", "D": "no, the default works", "U": "no, the default returns `HAL_UNIMPLEMENTED`"}


class Function(NamedTuple):
    """One line of the list with the comment above it; `section` is the heading that it stands under."""

    section: str
    since: str
    kind: str
    group: str
    need: str
    name: str
    parameters: str
    text: str


_SECTION = re.compile(r"/\* ---- (?P<title>.+?) -+ \*/")
_OP = re.compile(
    r"/\* (?P<text>(?:(?!\*/).)+?) \*/\s*HAL_OP\((?P<since>\d+), (?P<kind>\w), (?P<group>\w+), (?P<need>\w+), (?P<name>\w+),\s*"
    r"(?P<parameters>\((?:[^()]|\([^()]*\))*\))", re.S)  # fmt: skip


def functions(source: str):
    """Returns the functions in the order of the list."""
    headings = [(match.start(), match["title"]) for match in _SECTION.finditer(source)]
    result = []
    for match in _OP.finditer(source):
        section = [title for start, title in headings if start < match.start()][-1]
        text = " ".join(line.strip(" *") for line in match["text"].splitlines())
        parameters = re.sub(r"\s+", " ", match["parameters"]).replace("* ", "*")
        result.append(Function(section, match["since"], match["kind"], match["group"], match["need"], match["name"], parameters, text))
    return result


def page(found) -> str:
    """Returns the page as Markdown."""
    lines = ["# The functions of a plugin", "",
             f"{len(found)} functions, of which {sum(f.kind == 'M' for f in found)} are mandatory. A group is complete or absent: a plugin "
             "with one function of it must have all those marked `group`. No part of the host calls functions that are not used yet: leave "
             "them out.", "",
             "| function | mandatory | group | since | |", "|---|---|---|---|---|"]  # fmt: skip
    for f in found:
        group = "" if f.group == "NONE" else f.group.lower() + {"REQUIRED": " (group)", "COMPANION": " (with it)"}.get(f.need, "")
        lines.append(f"| [`{f.name}`](#{f.name.replace('_', '-')}) | {NEED[f.kind]} | {group} | 0.{f.since} | {'not used yet' if UNUSED in f.text else ''} |")
    section = None
    for f in found:
        if f.section != section:
            section = f.section
            lines += ["", f"## {section[0].upper() + section[1:]}"]
        lines += ["", f"({f.name.replace('_', '-')})=", f"### {f.name}", "```c", f"hal_status_t hal_plugin_{f.name}{f.parameters};", "```", f.text]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the page; fails when a line of the list has no comment."""
    source = LIST.read_text(encoding="utf-8")
    found = functions(source)
    listed = len(re.findall(r"^HAL_OP\(", source, re.M))
    if len(found) != listed:
        print(f"{LIST.name}: {listed - len(found)} functions have no comment above them", file=sys.stderr)
        return 1
    Path(sys.argv[1]).write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
