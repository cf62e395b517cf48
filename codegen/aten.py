"""Writes the ATen registrations of the operator entries (codegen/operators) for the installed torch.

Into the folder given by --out go Register_<k>.cpp, signatures.h and Signatures_<k>.cpp, one <folder>/<file>.inc for each source file of
csrc/aten that entries name, op_rules.h, coverage.json, support.json and operators.md; stale files are removed. An entry that does not fit
the installed torch is an error that names its file and line.
"""
from __future__ import annotations

import sys
from pathlib import Path

import entries
from output import command_line, exit_with_errors, write

try:
    import aten_coverage
    import aten_files
    import aten_functions
    import aten_model
    import kernel_operands
    from aten_natives import Natives
    from aten_sources import Sources
except ImportError as error:
    sys.exit(f"codegen: {error} in {sys.executable}; torchgen comes with torch: install torch there, or choose another "
             "Python with -DPython_EXECUTABLE=.")

CSRC_ATEN = Path(__file__).resolve().parents[1] / "csrc" / "aten"


def generate(all_entries, natives, sources):
    """Returns ({name of a C++ file: text}, {name of another file: text})."""
    for entry in all_entries:
        sources.check(entry)
    model = aten_model.build(all_entries, natives)
    emitter = aten_functions.Emitter(lambda operator: sources.declines(operator.entry.source, operator.function))
    header, compiled = aten_files.signatures([native for _, native in model.overloads()])
    cpp = {f"Register_{i}.cpp": aten_files.shard(part, emitter, natives) for i, part in enumerate(aten_files.shards(model))}
    cpp |= {f"Signatures_{i}.cpp": text for i, text in enumerate(compiled)}
    others = {"signatures.h": header, "op_rules.h": kernel_operands.table(model.entries), "coverage.json": aten_coverage.coverage(model),
              "support.json": aten_coverage.support(model, sources), "operators.md": aten_coverage.table(model)}  # fmt: skip
    for source in sorted({entry.source for entry in all_entries if entry.source}):
        operators = [operator for operator in model.functions if operator.entry.source == source]
        others[f"{source[:-4]}.inc"] = aten_files.included(operators, emitter, natives)
    return cpp, others


def main():
    parser = command_line(__doc__.splitlines()[0])
    parser.add_argument("--list-outputs", action="store_true", help="print the names of the C++ files and stop")
    options = parser.parse_args()
    cpp, others = generate(entries.load_all(options.operators), Natives(), Sources(CSRC_ATEN))
    if options.list_outputs:
        print(";".join(cpp))
        return
    if not options.out:
        parser.error("--out is needed")
    for name, text in {**cpp, **others}.items():
        write(options.out / name, text)
    for stale in {*options.out.glob("*.cpp"), *options.out.glob("*/*.inc")} - {options.out / name for name in (*cpp, *others)}:
        stale.unlink()


if __name__ == "__main__":
    exit_with_errors(main)
