"""Writes what is registered natively: for programs (coverage.json), for the documentation (operators.md), and for
torch_backend.ops.coverage, which queries a device for the implementations it has (support.json)."""
from __future__ import annotations

import json
from importlib.metadata import version

from aten_types import kind_name

# Functions that need no kernel: tensors, storage and views, and operations of a plugin's memory functions.
MEMORY_SOURCES = ("copy/copy.cpp", "pointwise/fill.cpp")
# Functions that decline rare calls only, and otherwise are composed of other operators, whatever the kernels.
COMPOSED = ("cat", "cat.out", "_unique2", "unique_consecutive", "multinomial", "multinomial.out")
# Functions without kernels that the fallback computes, with operands in another dtype at most.
SERVED = ("grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward", "mode", "mode.values")


def coverage(model):
    """Returns the coverage as a JSON text: one object per ATen operator."""
    kernels = [
        {
            "op": operator.name,
            "entry": operator.entry.name,
            "overloads": {kind_name(native): str(native.func.name) for native in operator.natives},
            "family": operator.entry.family,
            "dtypes": list(operator.entry.kernel.dtypes),
        }
        for operator in model.kernels
    ]
    functions = [
        {"op": str(native.func.name), "source": operator.entry.source, "function": operator.function, "register": operator.entry.register,
         "entry": operator.entry.name if operator.entry.number is not None else None}
        for operator in model.functions
        for native in operator.natives
    ]  # fmt: skip
    left_out = [{"op": entry.name, "torch": entry.torch} for entry in model.left_out]
    document = {"torch": version("torch"), "operators": kernels, "functions": functions, "left_out": left_out}
    return json.dumps(document, indent=1) + "\n"


def support(model, sources):
    """Returns, for each registered overload, the vendor's operator that receives the caller's operands (`vendor`), the
    operators whose kernels it may call (`kernels`), and the kind of computation without any of them (`else`). JSON.
    """
    listed = {entry.identifier: entry.name for entry in model.entries if entry.kernel}
    found = {}
    for operator in model.kernels:
        kernels = sorted({operator.entry.name, *(case.entry.name for case in operator.cases)})
        found |= {str(native.func.name): {"vendor": operator.entry.name, "kernels": kernels, "else": "fallback"} for native in operator.natives}
    for operator in model.functions:
        entry = operator.entry
        called = [*entry.stubs.values()] or [operator.function]
        reached, declines = sources.reach(entry.source, *(called if operator.function.startswith("at::") else {operator.function, *called}))
        kernels = sorted(listed[name] for name in reached if name in listed)
        for native in operator.natives:
            name = str(native.func.name)
            composed = name not in SERVED and (name in COMPOSED or not kernels or not declines)
            otherwise = "memory" if _is_memory(entry) else "composite" if composed else "fallback"
            found[name] = {"vendor": entry.name if entry.number is not None else None, "kernels": kernels, "else": otherwise}
    return json.dumps(found, indent=0) + "\n"


def _is_memory(entry):
    return entry.subject == "storage" or entry.source in MEMORY_SOURCES


def table(model):
    """Returns the Markdown table of the operators that have kernels or are implemented by a vendor as a whole."""
    lines = ["| operator | registered | family | dtypes |", "|---|---|---|---|"]
    for operator in model.kernels:
        kinds = ", ".join(kind_name(native) for native in operator.natives)
        lines += [f"| `{operator.name}` | {kinds} | {operator.entry.family} | {', '.join(operator.entry.kernel.dtypes)} |"]
    for entry in model.entries:
        if entry.register == "structured" and not entry.functions:
            continue
        what = f"{entry.family} | {', '.join(entry.kernel.dtypes)}" if entry.kernel else "composed | those of its parts"
        lines += [f"| `{entry.name}` | {'by a function' if entry.register != 'none' else 'kernel only'} | {what} |"]
    return "\n".join(lines) + "\n"
