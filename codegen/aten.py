"""Generates the ATen registrations of the operators of ops.yaml for the installed torch.

Into the folder given by --out go RegisterNative_<k>.cpp, one <folder>/<file>.inc for each source file of csrc/aten that has bodies
written by hand, coverage.json and operators.md; stale files are removed. Operators that the installed torch lacks or has changed are
listed on standard error and left to the fallback.
"""
from __future__ import annotations

import sys

import oplist
from output import command_line, write

try:
    import aten_bodies
    import aten_coverage
    import aten_emit
    import aten_model
    import aten_rules
except ImportError as error:
    sys.exit(f"codegen: {error} in {sys.executable}; torchgen comes with torch: install torch there, or choose another "
             "Python with -DPython_EXECUTABLE=.")


def main():
    parser = command_line(__doc__.splitlines()[0])
    parser.add_argument("--list-outputs", action="store_true", help="print the names of the C++ files and stop")
    options = parser.parse_args()
    ops = oplist.load(options.ops)
    bodies = oplist.load_bodies(options.ops)
    model = aten_model.build(ops, bodies=bodies)
    rules = aten_rules.table(ops)
    shards = aten_emit.shards(model)
    names = [f"RegisterNative_{number}.cpp" for number in range(len(shards))]
    if options.list_outputs:
        print(";".join(names))
        return
    if not options.out:
        parser.error("--out is needed")
    for skipped in model.skipped:
        print(f"codegen: {skipped.op} is not generated and goes to the fallback: {skipped.reason}", file=sys.stderr)
    for name, ops in zip(names, shards):
        write(options.out / name, aten_emit.shard(ops))
    write(options.out / "op_rules.h", rules)
    write(options.out / "coverage.json", aten_coverage.coverage(model))
    write(options.out / "operators.md", aten_coverage.table(model))
    written = {options.out / name for name in names}
    for file in dict.fromkeys(entry.file for entry in bodies):
        written.add(options.out / f"{file}.inc")
        write(options.out / f"{file}.inc", aten_bodies.source([body for body in model.bodies if body.entry.file == file]))
    for stale in {*options.out.glob("RegisterNative_*.cpp"), *options.out.glob("*/*.inc")} - written:
        stale.unlink()


if __name__ == "__main__":
    main()
