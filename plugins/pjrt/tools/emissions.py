"""Writes the table of the operators that the plugin compiles, from the entries of codegen/operators.

    emissions.py FOLDER

An entry with the key `program` names its function in emit_*.c, or the reason why it has none. Other element-wise entries have the program
of their expression (expressions.py). FOLDER gets pjrt_operators.h, the prototypes of the functions, and pjrt_operators.inc, lines
PJRT_OPERATOR(name, takes, emit, operands, program) in the order of their names.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(FOLDER / "tools"), str(FOLDER.parents[1] / "codegen")]
import entries  # noqa: E402  found by the line above
import expressions  # noqa: E402  found by the line above
import output  # noqa: E402  found by the line above

_OPERANDS = {"unary": 1, "binary": 2, "ternary": 3, "where": 3}


@dataclass(frozen=True)
class Emission:
    """An operator of a program."""

    name: str
    takes: str  # a function in C, or NULL
    emit: str
    operands: int = 0  # of an expression
    program: str = ""

    def line(self):
        return f"PJRT_OPERATOR({json.dumps(self.name)}, {self.takes}, {self.emit}, {self.operands}, {json.dumps(self.program)})"


def emission(entry):
    """Returns the emission of an entry; None if it has none."""
    if "emit" in entry.program:
        takes = entry.program.get("takes")
        return Emission(entry.name, f"emit_takes_{takes}" if takes else "NULL", f"emit_op_{entry.program['emit']}")
    if entry.program or entry.family not in _OPERANDS:
        return None
    program = expressions.program(entry.kernel.expr)
    return Emission(entry.name, "NULL", "emit_expression", _OPERANDS[entry.family], program) if program else None


def emissions(table):
    """Returns the emissions of the entries by name. Raises EntryError if an entry with a kernel has neither one nor a reason."""
    found = {}
    for entry in table:
        if (one := emission(entry)) is not None:
            found[entry.name] = one
        elif entry.kernel and "none" not in entry.program:
            raise entry.place.error("has a portable kernel, but no program of the plugin pjrt: add `program: {emit: name}` and the function "
                                    "emit_op_<name> to plugins/pjrt/emit_*.c, or `program: {none: reason}`")  # fmt: skip
    return dict(sorted(found.items()))


def prototypes(found):
    """Returns the declarations of the functions."""
    takes = sorted({one.takes for one in found.values()} - {"NULL"})
    emit = sorted({one.emit for one in found.values()} - {"emit_expression"})
    return [f"int {name}(const hal_op_call_t *call);" for name in takes] + [f"void {name}(emit_t *e);" for name in emit]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", type=Path, default=entries.OPERATORS, help="the folder of operator entries")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    found = emissions(entries.load(arguments.operators))
    head = "/* Written by plugins/pjrt/tools/emissions.py. */"
    for name, lines in (("h", prototypes(found)), ("inc", [one.line() for one in found.values()])):
        output.write(arguments.folder / f"pjrt_operators.{name}", "\n".join([head, *lines]) + "\n")


if __name__ == "__main__":
    output.exit_with_errors(main)
