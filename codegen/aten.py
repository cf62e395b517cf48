"""Generates the ATen registrations of the operators of ops.yaml for the installed torch.

Into the folder given by --out go RegisterNative_<k>.cpp, signatures.h and Signatures_<k>.cpp, one <folder>/<file>.inc for each source
file of csrc/aten that has bodies written by hand, coverage.json, support.json and operators.md; stale files are removed. Operators that the installed
torch lacks or has changed are listed on standard error and left to the fallback.
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
    header, compiled = aten_emit.signatures([*(f for op in model.ops for f in op.forms), *(body.native for body in model.bodies)])
    sources = {f"RegisterNative_{number}.cpp": aten_emit.shard(part) for number, part in enumerate(shards)}
    sources |= {f"Signatures_{number}.cpp": text for number, text in enumerate(compiled)}
    if options.list_outputs:
        print(";".join(sources))
        return
    if not options.out:
        parser.error("--out is needed")
    for skipped in model.skipped:
        print(f"codegen: {skipped.op} is not generated and goes to the fallback: {skipped.reason}", file=sys.stderr)
    for name, text in sources.items():
        write(options.out / name, text)
    write(options.out / "signatures.h", header)
    write(options.out / "op_rules.h", rules)
    write(options.out / "coverage.json", aten_coverage.coverage(model))
    write(options.out / "support.json", aten_coverage.support(model))
    write(options.out / "operators.md", aten_coverage.table(model))
    written = {options.out / name for name in sources}
    for file in dict.fromkeys(entry.file for entry in bodies):
        written.add(options.out / f"{file}.inc")
        write(options.out / f"{file}.inc", aten_bodies.source([body for body in model.bodies if body.entry.file == file]))
    for stale in {*options.out.glob("*.cpp"), *options.out.glob("*/*.inc")} - written:
        stale.unlink()


if __name__ == "__main__":
    main()
