"""Reads the functions of csrc/aten: whether the function that an entry names exists, whether it may decline a call, and
which kernels it may call.

The sources are formatted: a function begins and ends in the first column. A function calls kernels by their numbers,
HAL_OP_ID_<name>, directly or in functions of its folder that it calls. For a function that is not found, all kernels
that its file names are used.
"""
from __future__ import annotations

import re
from collections import defaultdict

from entry_file import nearest

_ID = re.compile(r"\bHAL_OP_ID_(\w+)")
_CALLED = re.compile(r"\b(\w+)(?=(?:<[^;()]*>)?\()|\b([A-Z]\w+)")  # functions; and classes, which have other names
_MAY_DECLINE = re.compile(r"(?:template <.*?>\s*)?(?:std::optional\b|bool\b)", re.S)
_DECLINES = re.compile(r"\b(?:call_fallback|\w+_on_cpu|must(?:_run)?)\b")


class Sources:
    """The functions of csrc/aten."""

    def __init__(self, root):
        self._root = root
        self._texts = {}  # of files, as "norm/batch_norm.cpp"
        self._functions = defaultdict(lambda: defaultdict(list))  # folder: {name: texts}
        self._own = defaultdict(list)  # file: names
        for path in sorted([*root.glob("*/*.cpp"), *root.glob("*/*.h")]):
            text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
            file = path.relative_to(root).as_posix()
            self._texts[file] = text
            for name, chunk in _chunks(text):
                self._functions[path.parent.name][name].append(chunk)
                self._own[file].append(name)

    def check(self, entry):
        """Raises EntryError where the file or a function of an entry does not exist."""
        self._check_conditions(entry)
        if entry.source is None:
            return
        files = [file for file in self._texts if file.endswith(".cpp")]
        if entry.source not in files:
            raise entry.at("source").error(f"there is no file {self._root}/{entry.source}; {nearest(entry.source, files)}")
        include = f'#include "aten/{entry.source[:-4]}.inc"'
        if include not in self._texts[entry.source]:
            raise entry.at("source").error(f"{entry.source} does not include its registrations: add `{include}` at its end")
        named = [("function", function) for function in entry.functions.values()] + [("stubs", kernel) for kernel in entry.stubs.values()]
        named += [("meta", entry.meta)] if entry.meta and not (entry.register == "structured" and not entry.functions) else []
        for key, function in named:
            name = _plain_name(function)
            if "::" not in name and name not in self._functions[entry.source.split("/")[0]]:
                raise entry.at(key).error(f"there is no function {name!r} in {entry.source}; {nearest(name, self._own[entry.source])}")

    def _check_conditions(self, entry):
        header = f"{entry.subject}/conditions.h"
        named = [("precomputed", function) for function, *_ in entry.precomputed.values()]
        named += [("fallback_if", entry.fallback_if[0])] if len(entry.fallback_if) > 1 else []
        for key, function in named:
            functions = re.findall(r"\b(\w+)\((?=[^()]*\) [{;]|[^()]*\);)", self._texts.get(header, ""))
            if function not in functions:
                raise entry.at(key).error(f"there is no function {function!r} in csrc/aten/{header}; "
                                          f"{nearest(function, dict.fromkeys(functions))}")

    def declines(self, source, function):
        """Whether a function may return that there is no kernel: it returns bool or std::optional."""
        if source is None or "::" in _plain_name(function):
            return False
        return any(_MAY_DECLINE.match(chunk) for chunk in self._functions[source.split("/")[0]].get(_plain_name(function), ()))

    def reach(self, source, *functions):
        """Returns the kernels, named as in HAL_OP_ID_, that functions may call, and whether the fallback may compute a call instead."""
        found = [self._reach(source, function) for function in functions]
        return set().union(*(ids for ids, _ in found)), any(declines for _, declines in found)

    def _reach(self, source, function):
        name = _plain_name(function)
        if source is None or name.startswith("at::"):
            return set(), False
        functions = self._functions[source.split("/")[0]]
        ids, seen, todo = set(_ID.findall(function)), set(), [name]
        texts = [] if name in functions else [self._texts[source]]
        declines = name not in functions or any(_MAY_DECLINE.match(chunk) for chunk in functions[name])
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


def _plain_name(function):
    """A function's name without template arguments."""
    return re.match(r"[\w:]+", function)[0]


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
