"""The command `coverage`: which operators of ATen run natively, which are made of others, which fall back to the CPU.

A native operator has a kernel of ours or of the plugin; for some dtypes or layouts it may still fall back, which
torch_backend.ops.report() counts while a program runs.
"""

from __future__ import annotations

from ._output import print_json

KINDS = ("native", "composite", "fallback", "unsupported")


def _kind(op: str) -> str:
    from torch import _C

    def has(key):
        return _C._dispatch_has_kernel_for_dispatch_key(op, key)

    if has("PrivateUse1"):
        return "native"
    if has("CompositeImplicitAutograd") or has("CompositeExplicitAutograd") or has("CompositeExplicitAutogradNonFunctional"):
        return "composite"
    return "fallback" if has("CPU") else "unsupported"


def collect(only=()) -> dict:
    """Gives {operator: kind} for ATen's operators, in the order of their names; `only` are names as "add" or "add.Tensor"."""
    from torch import _C

    names = sorted(name[len("aten::"):] for name in _C._dispatch_get_all_op_names() if name.startswith("aten::"))
    wanted = [name for name in names if not only or name in only or name.split(".")[0] in only]
    return {name: _kind(f"aten::{name}") for name in wanted}


def add_arguments(parser) -> None:
    """Declares the command's options."""
    parser.add_argument("op", nargs="*", help="only these operators, such as add or add.Tensor")
    parser.add_argument("--kind", choices=KINDS, help="only operators of this kind")
    parser.add_argument("--list", action="store_true", help="name the operators, not only their number")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments) -> int:
    """Prints the counts and, on request, the operators."""
    import sys

    import torch_backend

    if not torch_backend.is_active():
        print("coverage: no plugin is active; set TORCH_BACKEND=fake, or that of your hardware", file=sys.stderr)
        return 1
    operators = collect(arguments.op)
    if not operators:
        print(f"coverage: ATen has no operator {', '.join(arguments.op)}", file=sys.stderr)
        return 1
    counts = {kind: sum(found == kind for found in operators.values()) for kind in KINDS}
    shown = {op: kind for op, kind in operators.items() if arguments.kind in (None, kind)}
    if arguments.json:
        print_json({"device": torch_backend.device_name(), "counts": counts, "operators": shown})
        return 0
    for kind, count in counts.items():
        print(f"{count:>5}  {kind}")
    if arguments.op or arguments.list or arguments.kind:
        width = max(map(len, shown), default=0)
        for op, kind in shown.items():
            print(f"{op:<{width}}  {kind}")
    return 0
