"""The keys of an operator entry: types, allowed values, descriptions. It is the source of the checks of
codegen/entries.py, the JSON schema for editors (codegen/operators.schema.json) and the table of the documentation.

    entry_schema.py --write     writes codegen/operators.schema.json
    entry_schema.py --table     prints the keys as a Markdown table
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path

from dtypes import DTYPE_SETS, TORCH_NAMES
from kernel_families import FAMILIES

SCHEMA_JSON = Path(__file__).resolve().parent / "operators.schema.json"

# ---- kinds of values ----

_OVERLOAD = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?$"  # ATen's "name.overload"
_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"
_FUNCTION = r"^[A-Za-z_][A-Za-z0-9_:]*(<.*>)?$"  # C++ names, with template arguments


def _text(description, pattern=None):
    return {"type": "string", **({"pattern": pattern} if pattern else {}), "description": description}


def _list(description, pattern):
    return {"type": "array", "items": {"type": "string", "pattern": pattern}, "description": description}


def _map(description, values, minimum=1):
    return {"type": "object", "additionalProperties": values, "minProperties": minimum, "description": description}


def _flag(description):
    return {"type": "boolean", "enum": [True], "description": description}


def _dtypes(description):
    listed = {"type": "array", "items": {"enum": sorted(TORCH_NAMES)}, "minItems": 1}
    return {"anyOf": [{"enum": list(DTYPE_SETS)}, listed], "description": description}


_EXPRESSION = {"type": "string", "minLength": 1}

# ---- the portable kernel ----

KERNEL = {
    "type": "object",
    "additionalProperties": False,
    "required": ["family", "dtypes"],
    "properties": {
        "family": {
            "enum": list(FAMILIES),
            "description": "Template, launcher and instances of the kernel: hal/ops/<family>, codegen/kernel_families.py.",
        },
        "name": _text("Name of the kernel's instances. Default: the part of `op` before the dot.", _IDENTIFIER),
        "expr": {
            "anyOf": [
                _EXPRESSION,
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["default"],
                    "properties": {
                        "default": {**_EXPRESSION, "description": "For all dtypes that have no expression of their own."},
                        "bool": {**_EXPRESSION, "description": "For bool, where any value other than 0 is true."},
                        "complex": {**_EXPRESSION, "description": "For complex numbers: functions pk_c* of hal/kernels/pk_complex.h."},
                        "half": {**_EXPRESSION, "description": "For float16 and bfloat16 as bits; the sign is the highest of 16."},
                    },
                },
            ],
            "description": "Scalar expression of an element-wise kernel in C, over the operands a, b, c and the numbers s0, s1, s2, with "
                           "the functions of hal/kernels/pk_math.h. A sum of products of integers wraps modulo 2^n.",
        },
        "dtypes": _dtypes("Dtypes that the kernel computes in: a set of codegen/dtypes.py, or a list of torch's dtypes. Operands of other "
                          "dtypes are cast to one of them."),
        "device_dtypes": _dtypes("Further dtypes, with a kernel only for devices; the host casts."),
        "result_dtype": {
            "enum": ["same", "bool", "real"],
            "description": "Dtype of the result: that of the computation (default), bool, or of complex numbers that of their parts.",
        },
        "optimize": {
            "enum": ["speed", "size"],
            "description": "size: for rarely used operators one general variant, without instruction set clones and without a fast path. "
                           "Default: speed.",
        },
    },
}  # fmt: skip

# ---- an entry ----

REGISTER = {
    "structured": "ATen's meta function makes the results of all overloads, then the portable kernel runs, or `function`: "
                  "bool function(const Outputs &, <arguments of the functional overload>). `meta` is for operators that ATen has not structured.",
    "out": "`function` makes and fills the results of all overloads: bool function(Outputs &, <arguments of the functional overload>); "
           "functional and in-place overloads are derived from it, as with torchgen's use_out_as_primary.",
    "functional": "`function` has the arguments of its overload and returns its result, or std::optional of it; in place and with out=, bool.",
    "reuse": "ATen's own function or structured implementation for the CPU, with kernels of the device for its DispatchStubs (`stubs`).",
    "none": "Nothing is registered: a kernel that functions of other entries call, or an operator that only a vendor implements.",
}  # fmt: skip

ENTRY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["op", "register"],
    "properties": {
        "op": _text("ATen's name of the functional overload, `name` or `name.overload`. Plugins are queried for it (op_find).", _OVERLOAD),
        "number": {
            "type": "integer",
            "minimum": 0,
            "description": "The operator's number in the plugin ABI: the next free one; it never changes. An entry without number is only "
                           "registered: a view, a factory or a call of other operators, which a vendor does not implement.",
        },
        "part_of": _text("ATen's operator that calls this one, such as index for index.lines: errors name it, as users do not know a name that "
                         "ATen does not have. Such names need it.", _IDENTIFIER),
        "args": _list("The frozen argument list of the plugin ABI, in ATen's names: tensors are a, b, c of `expr`, numbers s0, s1, s2. "
                      "`other|Scalar` may also be given as a number.", r"^[A-Za-z_][A-Za-z0-9_]*(\|Scalar)?$"),
        "vendor_args": _list("Arguments of ATen after `args` that a vendor's operator receives and no portable kernel reads.", _IDENTIFIER),
        "omit": _list("Arguments of ATen that are not passed, because the results show them (keepdim, dtype) or they carry no information.",
                      _IDENTIFIER),
        "mutates_args": _list("Arguments that the operator writes although ATen's schema does not declare it; results after those returned.",
                              _IDENTIFIER),
        "kernel": {**KERNEL, "description": "The portable kernel. Without it the operator is composed of others, or only a vendor has it."},
        "program": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "emit": _text("emit_op_<name> of plugins/pjrt/emit_*.c, which writes the operator as StableHLO.", _IDENTIFIER),
                "takes": _text("emit_takes_<name> there: whether a call is accepted. Default: every call whose dtypes the platform has.",
                               _IDENTIFIER),
                "none": _text("Why programs do not have the operator: its kernel runs between two programs."),
            },
            "oneOf": [{"required": ["emit"]}, {"required": ["none"]}],
            "dependencies": {"takes": ["emit"]},
            "description": "How a compiled program has the operator: {emit: name, takes: name} or {none: reason}. An element-wise entry whose "
                           "`expr` has only functions of plugins/pjrt/tools/expressions.py needs none; another entry with a kernel does.",
        },
        "register": {"enum": list(REGISTER), "description": "How the operator is registered with ATen's dispatcher."},
        "source": _text("The file of csrc/aten that has the functions and includes their registrations at its end.",
                        r"^[a-z0-9_]+/[a-z0-9_]+\.cpp$"),
        "function": {
            "anyOf": [{"type": "string", "pattern": _FUNCTION}, _map("", {"type": "string", "pattern": _FUNCTION})],
            "description": "Function of `source`, or of ATen, that computes the operator; {overload: function} where overloads differ.",
        },
        "stubs": _map("{DispatchStub of at::native: function of `source`}: the device's kernels for ATen's functions.",
                      {"type": "string", "pattern": _FUNCTION}),
        "overloads": _list("Overloads of ATen that the entry registers besides those of `op`: functional ones with register: structured, "
                           "else exactly these.", _OVERLOAD),
        "meta": _text("Allocates the results if ATen has no meta function. With register: structured a class of csrc/aten/pointwise/meta.h; "
                      "else a function of `source` with ATen's arguments, called before a vendor's operator.", _IDENTIFIER),
        "calls_vendor": _flag("The function calls the vendor's operator itself: it reserves random numbers, or its results are not ATen's."),
        "specialize": _map("{argument: {value: operator}}: the operator that computes the call when an argument that no kernel reads has that "
                           "value; {op: operator, args: [operands]} where its operands are others. None: the argument is absent.",
                           _map("", {"anyOf": [
                               {"type": "string", "pattern": _OVERLOAD},
                               {"type": "object", "additionalProperties": False, "required": ["op", "args"], "properties": {
                                   "op": {"type": "string", "pattern": _OVERLOAD},
                                   "args": {"type": "array", "items": {"type": "string", "pattern": _IDENTIFIER}}}},
                           ]})),
        "precomputed": _map("{number of `args`: [function, arguments of ATen ...]}: numbers that are computed from ATen's arguments, by a "
                            "function of csrc/aten/<subject>/conditions.h.", {"type": "array", "items": {"type": "string"}, "minItems": 2}),
        "fallback_if": {"type": "array", "items": {"type": "string", "pattern": _IDENTIFIER}, "minItems": 1,
                        "description": "[function, arguments of ATen ...], or [a bool of ATen]: calls that the CPU fallback computes or "
                                       "reports the error of; the function is in csrc/aten/<subject>/conditions.h."},
        "device_assert": _map("{operand: operator of the family `check`}: values that are an error; the operator looks for them before and "
                              "reports them asynchronously.", {"type": "string", "pattern": _OVERLOAD}),
        "opmath_scalar": _flag("A number passed with a half-precision tensor keeps its digits (opmath), as in CPU torch's sums and products."),
        "torch": _text("The versions of torch that have the operator, such as \">=2.14\" or \">=2.13,<2.15\". Default: all.",
                       r"^(>=|<)[0-9]+\.[0-9]+(,(>=|<)[0-9]+\.[0-9]+)*$"),
    },
    "dependencies": {
        "number": ["args"], "args": ["number"], "vendor_args": ["args"], "omit": ["args"], "part_of": ["number"], "mutates_args": ["args"], "kernel": ["number"],
        "calls_vendor": ["number"], "precomputed": ["kernel"], "device_assert": ["kernel"], "program": ["kernel"], "specialize": ["kernel"],
        "stubs": ["source"], "opmath_scalar": ["kernel"],
    },
    "allOf": [
        {"if": {"properties": {"register": {"const": kind}}, "required": ["register"]}, "then": {"required": required}}
        for kind, required in (("functional", ["function"]), ("out", ["source", "function"]), ("none", ["number"]))
    ],
}  # fmt: skip

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Operator entries of torch_backend",
    "$comment": "Written by codegen/entry_schema.py --write; a test compares the two.",
    "type": "array",
    "items": ENTRY,
}


def text():
    """Returns the JSON schema as text."""
    return json.dumps(SCHEMA, indent=1) + "\n"


def table():
    """Returns the keys as a Markdown table."""
    lines = ["| key | meaning |", "|---|---|"]
    lines += [f"| `{key}` | {value['description']} |" for key, value in ENTRY["properties"].items()]
    lines += [f"| `register: {kind}` | {description} |" for kind, description in REGISTER.items()]
    lines += [f"| `kernel: {key}` | {value['description']} |" for key, value in KERNEL["properties"].items()]
    return "\n".join(lines).replace("<", "&lt;") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write codegen/operators.schema.json")
    parser.add_argument("--table", action="store_true", help="print the keys as a Markdown table")
    options = parser.parse_args()
    if options.write:
        SCHEMA_JSON.write_text(text(), encoding="utf-8")
    if options.table:
        print(table(), end="")


if __name__ == "__main__":
    main()
