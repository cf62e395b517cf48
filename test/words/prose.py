"""Splits a file into prose (comments, text of messages, names of tests, Markdown) and code."""

import io
import re
import tokenize
from typing import NamedTuple

C_LIKE = (".c", ".h", ".cpp", ".hpp", ".pk", ".inc", ".def", ".map")
HASH = (".cmake", ".txt", ".yaml", ".yml", ".toml", ".sh", ".in", "Makefile", "run")
_C = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\{?[\w-]*)")
_C_TEST = re.compile(r"\bTest\(\w+, (\w+)")
_PY_TEST = re.compile(r"\bdef test_(\w+)")


class Parts(NamedTuple):
    """Lists of (line number, text); `measured` are the lines whose length is checked, `cells` those of tables."""

    prose: list
    code: list
    measured: list
    cells: list


def is_text(file):
    """Returns whether the rules apply to a file of this name."""
    return file.endswith((*C_LIKE, *HASH, ".py", ".md"))


def split(file, text):
    """Returns the parts of a file."""
    if file.endswith(".md"):
        return _markdown(text)
    if file.endswith(".py"):
        return _python(text)
    if file.endswith(C_LIKE):
        return _c(text)
    return _hash(text, whole=file.endswith((".yaml", ".yml")))


def _lines(number, text):
    return [(number + i, line) for i, line in enumerate(text.split("\n"))]


def _test_names(pattern, text):
    return [(number, match[1].replace("_", " ")) for number, line in _lines(1, text) for match in pattern.finditer(line)]


def _c(text):
    prose, comments, code, at = [], [], [], 0
    for match in _C.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        code += _lines(text.count("\n", 0, at) + 1, text[at : match.start()])
        prose += _lines(number, match[0])
        if match[0].startswith("/"):
            comments += range(number, number + match[0].count("\n") + 1)
        at = match.end()
    code += _lines(text.count("\n", 0, at) + 1, text[at:])
    whole = text.split("\n")
    return Parts(prose + _test_names(_C_TEST, text), code, [(n, whole[n - 1]) for n in sorted(set(comments))], [])


def _python(text):
    prose, measured, code = [], [], []
    whole = text.split("\n")
    middle = getattr(tokenize, "FSTRING_MIDDLE", None)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING, middle):
                prose += _lines(token.start[0], token.string)
            elif token.type == tokenize.NAME:
                code.append((token.start[0], token.string))
            if token.type == tokenize.COMMENT and whole[token.start[0] - 1].lstrip().startswith("#"):
                measured.append((token.start[0], whole[token.start[0] - 1]))
    except (tokenize.TokenError, IndentationError):  # a snippet of a document
        return _hash(text, whole=False)
    return Parts(prose + _test_names(_PY_TEST, text), code, measured, [])


def _hash(text, whole):
    prose, measured = [], []
    for number, line in _lines(1, text):
        if comment := re.search(r"(?:^|\s)#(.*)", line):
            prose.append((number, comment[1]))
        if whole or line.lstrip().startswith("#"):
            measured.append((number, line))
    return Parts(prose, [], measured, [])


def _plain(line):
    """Returns a line of Markdown without code and without the targets of links."""
    line = re.sub(r"`+[^`]*`+", "`code`", line)
    return re.sub(r"\]\([^)]*\)", "]", line)


def _markdown(text):
    prose, code, cells, fence, block, start = [], [], [], None, [], 0
    for number, line in _lines(1, text):
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence[0]) and not mark[2]:
                inner = _snippet(fence[1], "\n".join(block))
                prose += [(start + n, part) for n, part in inner.prose]
                fence, block = None, []
            else:
                block.append(line)
        elif mark and not mark[2].startswith("{"):
            fence, start = (mark[1], mark[2]), number
        else:
            prose.append((number, _plain(line)))
            if line.lstrip().startswith("|"):
                cells += [(number, cell) for cell in re.split(r"(?<!\\)\|", _plain(line))]
    return Parts(prose, code, _lines(1, text), cells)


def _snippet(language, text):
    if language == "python":
        return _python(text)
    if language in ("c", "cpp"):
        return _c(text)
    return _hash(text, whole=False)
