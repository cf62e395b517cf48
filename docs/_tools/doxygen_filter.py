"""Makes doxygen see the headers' ordinary comments: before a declaration, after it or its opening brace, and at the top of a file.

The headers are written for people who read them; this filter, which doxygen runs on each file, turns `/* ... */` and `// ...`
into the comments that doxygen reads, on the way.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_COMMENT = re.compile(r"(?P<before>^[^\n]*?)/\*(?P<text>(?!\*).*?)\*/", re.S | re.M)
_DIRECTIVE = re.compile(r"\s*#\s*(if|ifdef|ifndef|endif|else|include)\b")


def _protected(text: str) -> str:
    """Escapes what doxygen would read as commands."""
    return re.sub(r"[@\\<>#%]", lambda match: "\\" + match[0], text)


def _replace(match: re.Match) -> str:
    before, text = match["before"], match["text"]
    if text.lstrip().startswith("----") or _DIRECTIVE.match(before):
        return match[0]
    body = _protected(text)
    if before.rstrip().endswith("{"):  # about the type that is opened; doxygen would assign it to the first member
        return f"/**{body}*/ {before}"
    return f"{before}/**<{body}*/" if before.strip() else f"{before}/**{body}*/"


def filtered(source: str, name: str) -> str:
    """Returns the header as doxygen shall see it; the line numbers stay."""
    first = re.match(r"/\*(.*?)\*/", source, re.S)
    if not first:
        return _COMMENT.sub(_replace, source)
    head = f"/** @file {name}\n{_protected(first[1].split(':', 1)[-1])}*/"
    surplus = head.count("\n") - first[0].count("\n")
    rest = source[first.end():]
    return head + _COMMENT.sub(_replace, rest[surplus:] if rest.startswith("\n" * surplus) else rest)


def filtered_lines(source: str, name: str) -> str:
    """The same for a C++ header, whose comments begin with `//`."""
    lines = source.splitlines()
    for i, line in enumerate(lines):
        code, mark, text = line.partition("//")
        if mark and not text.startswith("/") and not _DIRECTIVE.match(code):
            lines[i] = f"{code}{'///<' if code.strip() else '///'}{_protected(text)}"
    lines[0] = f"/// @file {name} " + lines[0].lstrip("/ ").split(": ", 1)[-1]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    text = path.read_text(encoding="utf-8")
    sys.stdout.write((filtered_lines if text.startswith("//") else filtered)(text, path.name))
