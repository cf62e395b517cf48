"""The text of a kernel template for a run-time compiler: resolves local includes, removes comments and branches that no
compiler takes, and separates the kernels.

Compilers of OpenCL C and CUDA C receive a kernel as one text, without include folders. Code that neither language
uses is removed here (branches under PK_HOST). Every other condition is left to the compiler. The host's C compiler
receives a separate text, with the code under PK_HOST.
"""
from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

HAL = Path(__file__).resolve().parents[1] / "hal"
SEARCH = (HAL / "kernels", HAL, HAL / "include")  # after the folder of the including file

# The macros that are defined when a compiler reads the text: OpenCL C, CUDA C; host C.
_HOST = {"PK_HOST": False}
_OPENCL = {"PK_OPENCL": True, "__OPENCL_C_VERSION__": True, "__OPENCL_VERSION__": True}
_CUDA = {"PK_CUDA": True, "__CUDACC__": True, "__CUDACC_RTC__": True}
DEVICES = ({**dict.fromkeys(_CUDA, False), **_OPENCL, **_HOST}, {**dict.fromkeys(_OPENCL, False), **_CUDA, **_HOST})
HOST = ({**dict.fromkeys(_CUDA, False), **dict.fromkeys(_OPENCL, False), "PK_HOST": True},)

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"#\s*(\w+)\s*(.*)")
_CALL = re.compile(r"(\w+)\((.*)\)")
_KERNEL = re.compile(r"PK_KERNEL\((.*), (\w+)\) \{")


@dataclass(frozen=True)
class Kernel:
    """The text of one kernel of a template, and its variant."""

    variant: str
    text: str


def _holds(condition: str, world: dict) -> bool | None:
    """Returns whether a condition is true in a world; None if that is unknown."""
    if "(" in re.sub(r"defined\(\w+\)", "", condition):
        return None
    some = [_all_hold(part, world) for part in condition.split("||")]
    return True if True in some else None if None in some else False


def _all_hold(condition: str, world: dict) -> bool | None:
    atoms = []
    for atom in condition.split("&&"):
        known = re.fullmatch(r"(!?)\s*defined\((\w+)\)", atom.strip())
        value = world.get(known[2]) if known else None
        atoms.append(value if value is None or not known[1] else not value)
    return False if False in atoms else None if None in atoms else True


def _condition(word: str, rest: str) -> str:
    """Returns the condition of #if, #ifdef, #ifndef, #elif or #else."""
    return {"ifdef": f"defined({rest})", "ifndef": f"!defined({rest})", "else": ""}.get(word, rest)


class _Reader:
    """Reads a template and its includes into lines of text, each with its file."""

    def __init__(self, seen, worlds):
        self.worlds = worlds  # of the compilers that read the text
        self.seen = set(seen)  # headers that have been included already
        self.lines = iter(())  # the remaining lines of the file being read

    def read(self, path: Path, known=True):
        """`known`: whether every compiler reads this line, so that a header is included once it was read."""
        lines = _COMMENT.sub(" ", path.read_text(encoding="utf-8")).split("\n")
        joined, held = [], ""
        for line in lines:  # a macro of several lines counts as one
            held += line.rstrip()
            if held.endswith("\\"):
                held = held[:-1].rstrip() + " "
                continue
            if held.strip():
                joined.append(re.sub(r"(?<=\S)\s+", " ", re.sub(r"^\s+", " ", held)))
            held = ""
        self.lines, saved = iter(joined), self.lines
        yield from self._block(path, known)
        self.lines = saved

    def _block(self, path, known, taken=True):
        """Reads the lines up to the end of a branch; returns the directive that ends it."""
        for line in self.lines:
            directive = _DIRECTIVE.match(line)
            word, rest = directive.groups() if directive else ("", "")
            if word in ("elif", "else", "endif"):
                return word, rest
            if word in ("if", "ifdef", "ifndef"):
                yield from self._conditional(path, _condition(word, rest), known, taken)
            elif word == "include" and taken:
                yield from self._include(path, rest, known)
            elif taken:
                yield path, line
        return "", ""

    def _conditional(self, path, condition, known, taken):
        """Reads a conditional without the branches that no compiler takes."""
        over, opened = [False] * len(self.worlds), False  # whether this world takes an earlier branch
        word = "if"
        while word != "endif":
            holds = [not done and (True if word == "else" else _holds(condition, world)) for done, world in zip(over, self.worlds)]
            live = taken and any(value is not False for value in holds)
            always = all(done or value is True for done, value in zip(over, holds))
            if live and not (always and not opened):
                yield path, "#else" if always else f"#{'elif' if opened else 'if'} {condition}"
                opened = True
            guard = condition.startswith("!defined(") and condition.endswith("_H_)")
            word, rest = yield from self._block(path, known and (guard or always), live)
            condition = _condition(word, rest)
            over = [done or value is True for done, value in zip(over, holds)]
        if opened:
            yield path, "#endif"

    def _include(self, path, name, known):
        if name.startswith("<") and self.worlds is HOST:
            yield path, f"#include {name}"
            return
        if name.startswith("<"):
            sys.exit(f"codegen: {path} includes {name} where a device's compiler reads it")
        found = next((folder / name.strip('"') for folder in (path.parent, *SEARCH) if (folder / name.strip('"')).exists()), None)
        if not found:
            sys.exit(f"codegen: {path} includes {name}, which does not exist")
        if found in self.seen:
            return
        if known and "_H_\n" in found.read_text(encoding="utf-8"):
            self.seen.add(found)
        yield from self.read(found, known)


def _expand(name: str, defines: dict) -> str:
    """Returns the variant of an expression for a kernel's name: `rows` for PK_NAME(rows)."""
    call = _CALL.fullmatch(name.strip())
    if not call:
        name = name.strip()
        return _expand(defines[name][1], defines) if name in defines and defines[name][0] is None else name
    function, inner = call.groups()
    if function == "PK_NAME":
        return _expand(inner, defines)
    if function == "PK_CAT":
        return "".join(_expand(part, defines) for part in inner.split(","))
    if function not in defines or not defines[function][0]:
        sys.exit(f"codegen: {name} in a kernel's name is not a macro that this generator supports")
    parameter, body = defines[function]
    return _expand(re.sub(rf"\b{parameter}\b", inner, body), defines)


def flatten(path: Path, seen=(), worlds=DEVICES):
    """Reads a header or template for the compilers of some worlds. Returns its parts, texts and Kernels, in order, and
    the files that were read and need not be read again.
    """
    reader = _Reader(seen, worlds)
    parts, defines, kernel, held, origin = [], {}, None, [], path

    def close():
        if held:
            text = "\n".join(held) + "\n"
            parts.append(Kernel(kernel, text) if kernel else text)
            held.clear()

    for file, line in reader.read(path):
        define = re.match(r"#define (\w+)(?:\((\w+)\))?(?: (.*))?$", line)
        undef = re.match(r"#undef (\w+)", line)
        if define:
            defines[define[1]] = (define[2], define[3] or "")
        elif undef:
            defines.pop(undef[1], None)
        if line.startswith("PK_KERNEL") and not kernel:
            head = _KERNEL.fullmatch(line)
            if not head:
                sys.exit(f"codegen: {file}: a kernel begins with `PK_KERNEL(<name>, <arguments>) {{` on a line of its own: {line}")
            close()
            kernel = _expand(head[1], defines)
            held.append(f"{line} PK_PROLOGUE({head[2]})")
            continue
        if file != origin and not kernel:
            close()
            origin = file
        held.append(line)
        if kernel and line == "}":
            close()
            kernel = None
    close()
    return parts, reader.seen
