"""Writes the C++ of custom operators on LibTorch's stable ABI: one library for every version of torch. The parts that
the ABI does not support are written in Python (custom_python.py): meta functions with symbolic sizes, gradients,
reference implementations.
"""
from __future__ import annotations

import custom_checks
from custom_checks import dimensions, dtype_source, hal_dtype
from custom_emit import fill, indent, joined, quoted

# Types of a schema that torch's C functions pass, by the class that represents them.
_TYPES = {"Tensor": "Tensor", "Tensor[]": "Tensors", "int": "int64_t", "SymInt": "int64_t", "float": "double", "bool": "bool", "str": "std::string",
          "int[]": "std::vector<int64_t>", "SymInt[]": "std::vector<int64_t>", "float[]": "std::vector<double>"}  # fmt: skip


def out_of_reach(model):
    """Returns why the library cannot work with every version of torch, or "" if it can."""
    for op in model.ops:
        for a in op.arguments:
            if a.kind not in _TYPES:
                return f"{op.qualified}: argument '{a.name}' has the type {a.kind}, which LibTorch's stable ABI does not support"
            if a.kind in ("Tensor", "Tensor[]") and a.keyword:
                return f"{op.qualified}: argument '{a.name}' is a tensor by keyword only, for which gradients cannot be registered from Python"
    return ""


def reference_name(op):
    """Returns the operator that runs if there is no kernel for another one."""
    return f"_{op.name}_reference"


def attempt_name(op):
    """Returns the operator that torch's own calls try: undefined results mean that the arguments are unsuitable."""
    return f"_{op.name}_attempt"


def library(model, name):
    """Returns the text of the whole C++ file."""
    definitions, device, cpu = [], [], []
    for op in model.ops:
        schema = str(op.schema)
        definitions += [f"m.def({quoted(schema)});"]
        device += [_implementation(op.name, op, "Device")]
        cpu += [_implementation(op.name, op, "Cpu")]
        if op.reference:
            definitions += [f"m.def({quoted(schema.replace(op.name, reference_name(op), 1))});"]
        if op.reroutes:
            definitions += [f"m.def({quoted(schema.replace(op.name, attempt_name(op), 1))});"]
            device += [_implementation(attempt_name(op), op, "Attempt")]
    return fill(
        "stable_library.cpp.in", source=model.path.name, library=name, namespace=model.namespace,
        operators="\n".join(_operator(op) for op in model.ops), definitions=indent(definitions), device=indent(device), cpu=indent(cpu),
    )  # fmt: skip


def _implementation(name, op, caller):
    return f'm.impl("{name}", &kernel_{op.name}<Caller::k{caller}>);'


def _operator(op):
    types = {a.name: f"std::optional<{_TYPES[a.kind]}>" if a.optional else _TYPES[a.kind] for a in op.arguments}
    members, checks = custom_checks.cpp(op, custom_checks.steps(op), symbolic=False)
    names = [a.name for a in op.arguments]
    return fill(
        "stable_operator.cpp.in", qualified=op.qualified, name=op.name, argument_count=len(names), names=", ".join(names),
        function=f"&{op.function}" if op.function else "nullptr", result_count=len(op.results), size_members=indent(members),
        reference=quoted(f"{op.namespace}::{reference_name(op)}") if op.reference else "nullptr", checks=indent(checks),
        check_parameters=joined(f"[[maybe_unused]] const {types[name]} &{name}" for name in names),
        arguments=indent(f"const {types[name]} {name} = take<{types[name]}>(stack[{i}]);" for i, name in enumerate(names)),
        result_tensors=", ".join(_result(op, r) for r in op.results), like=custom_checks.first_tensor(op),
        values=", ".join(f"dense({a.name})" if a.kind == "Tensor[]" or (a.is_tensor and not a.strided) else a.name for a in op.arguments),
    )  # fmt: skip


def _result(op, result):
    leading = "sizes.leading" if "..." in result.shape else "{}"
    source = dtype_source(op, result)
    dims = ", ".join(dimensions(result, "sizes.")).replace("//", "/")
    dtype = f"dtype_of({source})" if source else hal_dtype(op.dtype_names(result.dtype)[0])
    return f"new_result({custom_checks.first_tensor(op)}, {leading}, {{{dims}}}, {dtype})"
