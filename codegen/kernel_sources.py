"""The sources of the portable kernels for devices that compile them: a unit for each kernel, made of pieces that are
stored once.

A unit consists of the dialect's headers, the macros of an instance, and its template without the other kernels. The
library contains the pieces and, for each kernel, the lists of its pieces (hal/src/op/source.c); `write_units` writes
the units as files.
"""
from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

from kernel_text import DEVICES, HAL, HOST, Kernel, flatten
from output import write

# Macros that only the host's version of a kernel uses.
HOST_MACROS = {"PK_CLONES", "PK_BY_FLOAT(form)", "PK_RUNS", "PK_CONVERT_RUN(out, a, n)", "PK_RUN_OF_NUMBERS", "PK_NEAR(x)", "PK_EXPR_NEAR(x)",
               "PK_NEAR(x, y)", "PK_EXPR_NEAR(x, y)"}
# Functions that a compiler implements with a few instructions for a whole vector, each of which rounds at most once.
SIMPLE = {f"pk_{name}" for name in "maximum minimum fmax fmin abs sign sqrt floor ceil trunc rint copysign signbit is_inf".split()} | {"PK_C"}
# The templates that define functions (PK_STEPS) for kernels of several operators.
STEPS = {"unary", "binary", "ternary", "where", "copy", "fill", "reduce"}


def is_plain(instance, contracted):
    """Returns whether the host's kernel is only a loop around the function of an element, with the same bits wherever
    it is compiled.
    """
    macros = dict(instance.macros)
    expression = macros.get("PK_EXPR") or macros.get("PK_CONVERT(x)") or ""
    fused = contracted and "*" in expression and re.search(r"[+]|\w - ", expression)
    special = HOST_MACROS & set(macros) - {"PK_CLONES", "PK_RUNS"}
    reals = {"float", "double"}  # to integers: C does not define the result for a number that is too large
    undefined = macros.get("A") in reals and macros["R"] not in reals | {"pk_bool"}
    return not fused and not special and not undefined and set(re.findall(r"(\w+)\(", expression)) <= SIMPLE


class Sources:
    """The pieces, and for each kernel the numbers of three lists of them: headers, macros, template. `dialect` and
    `host` are the lists that precede a program's own kernel, for devices and for the host's C compiler.
    """

    def __init__(self, instances, headers_of, templates, is_contracted, dialect):
        """`instances`: (Instance, template) pairs; headers_of(template): the headers it needs, templates[template]: its path below hal/;
        is_contracted(unit file): whether its multiplications and additions may be fused; dialect: the headers for other texts."""
        self.pieces, self.lists, self.kernels, self.steps, self.plain = {}, {}, {}, {}, set()
        self.templates, self.parts = templates, {}
        self.dialect = self.list_of(self.headers(dialect)[0])
        self.host = self.list_of(["#define PK_CLONES MODULE\n", *self.headers(dialect, HOST)[0], "#line 1\n"])
        for instance, template in instances:
            headers = tuple(headers_of(template))
            macros = self.list_of(f"#define {name} {text}\n" for name, text in instance.macros if name not in HOST_MACROS)
            prefix, variants = self.template(template, headers, is_contracted(instance.unit_file))
            if template in STEPS:
                ends = self.list_of(f"#undef {name.split('(')[0]}\n" for name, _ in instance.macros if name not in HOST_MACROS)
                self.steps[instance.prefix] = (macros, variants[None], ends)
                if template != "reduce" and is_plain(instance, is_contracted(instance.unit_file)):
                    self.plain.add(instance.prefix)
            for variant in instance.variants:
                if variant.name not in variants:
                    sys.exit(f"codegen: {templates[template]} has no kernel {variant.name} for devices")
                self.kernels[instance.prefix + variant.name] = (prefix, macros, variants[variant.name])

    def list_of(self, texts):
        """Returns the number of a list of pieces."""
        numbers = tuple(self.pieces.setdefault(text, len(self.pieces)) for text in texts)
        return self.lists.setdefault(numbers, len(self.lists))

    @staticmethod
    def headers(names, worlds=DEVICES):
        """Returns the texts of headers, and the files that were read."""
        texts, seen = [], set()
        for name in names:
            path = HAL / "kernels" / name
            if path not in seen:
                parts, seen = flatten(path, seen | {path}, worlds)
                texts += parts
        return texts, seen

    def template(self, template, headers, contracted):
        """Returns the list of the headers, and {variant: list} of the template's kernels."""
        key = template, headers, contracted
        if key not in self.parts:
            texts, seen = self.headers(headers)
            texts = ["#define PK_CONTRACT 1\n"] * contracted + texts
            parts, _ = flatten(HAL / self.templates[template], seen)
            names = dict.fromkeys(part.variant for part in parts if isinstance(part, Kernel))
            names |= {None: None} if template in STEPS else {}  # the template without its kernels
            variants = {name: self.list_of(part.text if isinstance(part, Kernel) else part
                                           for part in parts if not isinstance(part, Kernel) or part.variant == name) for name in names}
            self.parts[key] = self.list_of(texts), variants
        return self.parts[key]

    def units(self):
        """Returns (kernel, whole text) pairs, in the order of strcmp."""
        pieces, lists = list(self.pieces), list(self.lists)
        for name in sorted(self.kernels):
            yield name, "".join(pieces[piece] for number in self.kernels[name] for piece in lists[number])


def _numbers(values, per_line=24):
    values = [str(value) for value in values]
    return ",\n".join("    " + ", ".join(values[i:i + per_line]) for i in range(0, len(values), per_line))


def _starts(lengths):
    """Returns the start of each, and the end of the last."""
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return starts


def _quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def source_table(sources):
    """Returns the tables that hal/src/op/source.c includes."""
    pieces, lists = list(sources.pieces), list(sources.lists)
    names = sorted(sources.kernels)
    if len(pieces) > 0xffff or len(lists) > 0xffff:
        sys.exit("codegen: more pieces of kernel sources than 16 bits count")
    lines = ["static const char source_text[] ="]
    lines += [*("    " + _quoted(line + "\n") for text in pieces for line in text.split("\n")[:-1]), "    ;"]
    lines += ["static const uint32_t source_pieces[] = {", _numbers(_starts(len(piece) for piece in pieces)), "};"]
    lines += ["static const uint16_t source_items[] = {", _numbers(piece for pieces in lists for piece in pieces), "};"]
    lines += ["static const uint32_t source_lists[] = {", _numbers(_starts(len(pieces) for pieces in lists)), "};"]
    lines += ["static const char source_names[] =", *(f'    "{name}\\0"' for name in names), "    ;"]
    starts = _starts(len(name) + 1 for name in names)
    lines += ["static const source_kernel_t source_kernels[] = {"]
    lines += [f"    {{{start}, {{{', '.join(map(str, sources.kernels[name]))}}}}}," for start, name in zip(starts, names)]
    steps = sorted(sources.steps)
    lines += ["};", "static const char step_names[] =", *(f'    "{name}\\0"' for name in steps), "    ;"]
    lines += ["static const source_kernel_t source_steps[] = {"]
    lines += [f"    {{{start}, {{{', '.join(map(str, sources.steps[name]))}}}}}," for start, name in zip(_starts(len(name) + 1 for name in steps), steps)]
    lines += ["};", "static const uint8_t step_plain[] = {", _numbers(int(name in sources.plain) for name in steps)]
    text = "\n".join([*lines, "};", f"#define SOURCE_DIALECT {sources.dialect}u /* lists */", f"#define SOURCE_HOST {sources.host}u"]) + "\n"
    version = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}#define SOURCE_VERSION {{0x{version[:16]}u, 0x{version[16:32]}u}} /* a hash of all this */\n"


def write_units(sources, folder: Path):
    for name, text in sources.units():
        write(folder / f"{name}.cl", text)
