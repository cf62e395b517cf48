"""Writes what is registered natively, for programs (coverage.json) and for the documentation (operators.md)."""
from __future__ import annotations

import json
from importlib.metadata import version

from aten_model import form_name


def coverage(model):
    """Gives the coverage as a JSON text: one entry per ATen operator, the skipped ones with their reason."""
    generated = [
        {
            "op": op.name,
            "kernel_op": op.op.name,
            "forms": {form_name(f): str(f.func.name) for f in op.forms},
            "route": op.op.route,
            "family": op.op.family,
            "dtypes": list(op.op.dtypes),
        }
        for op in model.ops
    ]
    bodies = [
        {"op": body.name, "file": f"csrc/aten/{body.entry.file}.cpp", "function": body.entry.function,
         "kernel_op": body.asked.name if body.asked else None}
        for body in model.bodies
    ]
    manual = [{"op": op.name, "family": op.family, "route": "manual", "dtypes": list(op.dtypes)} for op in model.manual]
    skipped = [{"op": skipped.op, "reason": skipped.reason} for skipped in model.skipped]
    document = {"torch": version("torch"), "operators": generated, "bodies": bodies, "manual": manual, "skipped": skipped}
    return json.dumps(document, indent=1) + "\n"


def table(model):
    """Gives the Markdown table of the operators that have kernels."""
    lines = [
        "| operator | forms | family | dtypes |",
        "|---|---|---|---|",
    ]
    for op in model.ops:
        forms = ", ".join(form_name(f) for f in op.forms)
        lines += [f"| `{op.name}` | {forms} | {op.op.family} | {', '.join(op.op.dtypes)} |"]
    for op in model.manual:
        if op.family == "none":
            lines += [f"| `{op.name}` | by hand | composed | those of its parts |"]
            continue
        lines += [f"| `{op.name}` | by hand | {op.family} | {', '.join(op.dtypes)} |"]
    return "\n".join(lines) + "\n"
