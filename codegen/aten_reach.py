"""Which kernels the bodies of csrc/aten may call: read from their sources, for the coverage report.

A body calls kernels by their numbers, HAL_OP_ID_<name>, in itself or in functions of its folder that it calls. The sources are formatted
(a function begins and ends at the first column), which is enough to tell them apart; of one that is not found, what its whole file
names is taken.
"""
from __future__ import annotations

import re
from collections import defaultdict

_ID = re.compile(r"\bHAL_OP_ID_(\w+)")
_CALLED = re.compile(r"\b(\w+)(?=(?:<[^;()]*>)?\()|\b([A-Z]\w+)")  # functions; classes, which are named otherwise
_MAY_SAY_NO = re.compile(r"(?:template <.*?>\s*)?(?:std::optional\b|bool\b)", re.S)
_DECLINES = re.compile(r"\b(?:call_fallback|\w+_on_cpu|must(?:_run)?)\b")


class Sources:
    """The functions of csrc/aten: what each one says."""

    def __init__(self, root):
        self._files = {}
        self._functions = defaultdict(lambda: defaultdict(list))  # folder: {name: texts}
        for path in sorted([*root.glob("*/*.cpp"), *root.glob("*/*.h")]):
            text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
            folder = path.parent.name
            self._files[path.relative_to(root).with_suffix("").as_posix()] = text
            for name, chunk in _chunks(text):
                self._functions[folder][name].append(chunk)

    def reach(self, file, *functions):
        """Gives the kernels, named as in HAL_OP_ID_, that functions of `bodies` of ops.yaml may call, and whether the fallback may answer
        instead: one calls it, or has a result that says so (csrc/aten/prepare/registered.h)."""
        found = [self._reach(file, function) for function in functions]
        return set().union(*(ids for ids, _ in found)), any(declines for _, declines in found)

    def _reach(self, file, function):
        functions, name = self._functions[file.split("/")[0]], re.match(r"[\w:]+", function)[0]
        if name.startswith("at::"):
            return set(), False
        ids, seen, todo = set(_ID.findall(function)), set(), [name]
        texts = [] if name in functions else [self._files[file]]
        declines = name not in functions or any(_MAY_SAY_NO.match(chunk) for chunk in functions[name])
        while todo or texts:
            if todo:
                at = todo.pop()
                if at in seen:
                    continue
                seen.add(at)
                texts += functions.get(at, ())
            for text in texts:
                ids.update(_ID.findall(text))
                declines = declines or bool(_DECLINES.search(text))
                todo += [word for word in set(map("".join, _CALLED.findall(text))) if word in functions]
            texts = []
        return ids, declines


def _chunks(text):
    """Yields (name, text) of the functions and constants that begin at the first column."""
    lines, start = text.split("\n"), None
    for number, line in enumerate(lines):
        if start is None and re.match(r"[A-Za-z_]", line) and not re.match(r"(namespace|using|extern|typedef)\b", line):
            start = number
        if start is None or not (line.startswith("}") or line.rstrip().endswith(";") and not line.startswith(" ")
                                 or number == start and line.rstrip().endswith("}")):  # fmt: skip
            continue
        chunk = "\n".join(lines[start : number + 1])
        name = _name_of(chunk)
        if name:
            yield name, chunk
        start = None


def _name_of(chunk):
    head = re.sub(r"^template <.*?>\s*\n", "", chunk)
    found = re.match(r"(?:class|struct|enum)\s+(\w+)", head) or re.search(r"\b(\w+)\s*\(", head) or re.search(r"\b(\w+)(?:\[\])?\s*=", head)
    return found[1] if found else None
