"""Writes what is registered natively: for programs (coverage.json), for the documentation (operators.md), and for
torch_backend.ops.coverage, which asks a device who would answer (support.json)."""
from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from aten_model import form_name
from aten_reach import Sources

# Bodies that need no kernel: tensors, storage and views, and what a plugin's functions of memory do.
MEMORY_FILES = ("storage/factories", "storage/storage_ops", "storage/views", "copy/copy", "pointwise/fill")
# Bodies that decline odd calls only, and are else made of other operators, whatever the kernels.
COMPOSED = ("cat", "cat.out", "_unique2", "unique_consecutive", "multinomial", "multinomial.out")
# Bodies without kernels that the fallback serves, with operands in another dtype at most.
SERVED = ("grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward", "mode", "mode.values")
ATEN = Path(__file__).resolve().parents[1] / "csrc/aten"


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


def support(model):
    """Gives, for each registered form of an ATen operator, what the plugin is asked for with the user's operands (`asks`), the
    operators of the list whose kernels it may call (`kernels`), and who answers without any of them (`else`). JSON."""
    sources = Sources(ATEN)
    rows = {row.identifier: row.name for row in (*(op.op for op in model.ops), *model.manual) if row.family != "none"}
    found = {}
    for op in model.ops:
        kernels = sorted({op.op.name, *(case.op.name for case in op.cases)})
        found |= {str(form.func.name): {"asks": op.op.name, "kernels": kernels, "else": "fallback"} for form in op.forms}
    for body in model.bodies:
        entry = body.entry
        asked = [*entry.stubs.values()] or [entry.called]
        reached, declines = sources.reach(entry.file, *(asked if entry.called.startswith("at::") else {entry.called, *asked}))
        kernels = sorted(rows[name] for name in reached if name in rows)
        composed = body.name not in SERVED and (body.name in COMPOSED or not kernels or not declines)
        otherwise = "memory" if entry.file in MEMORY_FILES else "composite" if composed else "fallback"
        found[body.name] = {"asks": body.asked.name if body.asked else None, "kernels": kernels, "else": otherwise}
    return json.dumps(found, indent=0) + "\n"


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
