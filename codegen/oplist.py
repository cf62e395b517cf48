"""Reads ops.yaml: the operators we have kernels for. Pure Python and PyYAML, no torch."""
from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

try:
    import yaml
except ImportError:
    sys.exit("codegen: PyYAML is missing for " + sys.executable + "; install python3-yaml or `pip install pyyaml`.")

OPS_YAML = Path(__file__).resolve().parent / "ops.yaml"


@dataclass(frozen=True)
class Dtype:
    """A dtype of the portable kernels."""

    token: str  # in kernel names
    number: int  # hal_dtype_t, which is c10::ScalarType
    ctype: str  # in the kernel dialect: the type that kernels compute in
    ring: str  # type in which + - * ~ wrap without undefined behaviour
    size: int  # of an element in memory
    computing: str = ""  # token of the dtype whose functions compute it, when that is another
    element: str = ""  # type of an element in memory, when that is another

    @property
    def floating(self):
        return self.token in ("f16", "bf16", "f32", "f64")

    @property
    def complex(self):
        return self.token in ("c64", "c128")

    @property
    def real(self):
        """Token of the dtype of a part of a complex number; of another dtype its own."""
        return {"c64": "f32", "c128": "f64"}.get(self.token, self.token)

    @property
    def integer(self):
        """Of a number: bool is none."""
        return self.token[0] in "ui"

    @property
    def memory(self):
        """Type of an element in memory."""
        return self.element or self.ctype


# In the order of the HAL's handle cache (HAL_OP_DTYPE_SLOTS).
DTYPES = {
    d.token: d
    for d in (
        Dtype("u8", 0, "pk_u8", "pk_u8", 1),
        Dtype("i8", 1, "pk_i8", "pk_i8", 1),
        Dtype("i16", 2, "pk_i16", "pk_i16", 2),  # promoted to 32 bits: no overflow in a + s0 * b
        Dtype("i32", 3, "pk_i32", "pk_u32", 4),
        Dtype("i64", 4, "pk_i64", "pk_u64", 8),
        Dtype("f32", 6, "float", "float", 4),
        Dtype("f64", 7, "double", "double", 8),
        Dtype("bool", 11, "pk_bool", "pk_bool", 1),
        Dtype("f16", 5, "float", "float", 2, computing="f32", element="pk_f16"),
        Dtype("bf16", 15, "float", "float", 2, computing="f32", element="pk_bf16"),
        Dtype("c64", 9, "pk_c64", "pk_c64", 8),
        Dtype("c128", 10, "pk_c128", "pk_c128", 16),
        Dtype("u16", 27, "pk_u16", "pk_u16", 2),
        Dtype("u32", 28, "pk_u32", "pk_u32", 4),
        Dtype("u64", 29, "pk_u64", "pk_u64", 8),
    )
}

_KEYS = {"op", "family", "kernel", "args", "expr", "expr_bool", "expr_complex", "dtypes", "result", "also", "route", "rare", "when",
         "numbers", "meta", "unused", "exact", "refuse", "check", "commutes"}


@dataclass(frozen=True)
class Op:
    """One entry of ops.yaml."""

    number: int
    name: str  # "add.Tensor"
    family: str
    kernel: str
    args: tuple  # names without "|number"
    number_args: frozenset  # names that may be given as a number
    dtypes: tuple
    expr: str = ""
    expr_bool: str = ""  # instead of expr, for bool
    expr_complex: str = ""  # instead of expr, for complex numbers
    result: str = "same"
    route: str = "manual"
    also: tuple = field(default=())
    rare: bool = False  # row forms only, compiled once
    exact: bool = False  # results are not the same in a wider dtype
    commutes: bool = False  # f(a, b) = f(b, a), bit for bit
    refuse: str = ""  # C++ condition for calls that are an error
    check: dict = field(default_factory=dict, hash=False)  # {argument: operator of the family `check`}, one for all
    when: dict = field(default_factory=dict, hash=False)  # {ATen's argument: {value: name of the operator it makes of this one}}
    numbers: dict = field(default_factory=dict, hash=False)  # {number: C++ expression over ATen's arguments}
    unused: tuple = ()  # ATen's arguments that say nothing
    meta: str = ""  # of the route `pointwise`: the class of csrc/aten/prepare/pointwise_meta.h that gives shapes and dtypes

    @property
    def identifier(self):
        """The name as a C identifier in upper case: ADD_TENSOR."""
        return re.sub(r"[^A-Za-z0-9]", "_", self.name).upper()

    @property
    def dtype_mask(self):
        return sum(1 << DTYPES[token].number for token in self.dtypes)


def load(path=OPS_YAML):
    """Gives the operators in their order. Exits with a sentence when the list is wrong."""
    document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    sets = document["sets"]
    ops = [_op(number, entry, sets, path) for number, entry in enumerate(document["ops"])]
    checks = {op.name for op in ops if op.family == "check"}
    for op in ops:
        if not set(op.check) <= set(op.args) or not set(op.check.values()) <= checks or len(set(op.check.values())) > 1:
            sys.exit(f"codegen: {path}: op {op.name}: check {op.check} is not {{its args: one operator of the family check}}")
    for attribute in ("name", "identifier"):
        seen = {}
        for op in ops:
            other = seen.setdefault(getattr(op, attribute), op)
            if other is not op:
                sys.exit(f"codegen: {path}: {op.name} and {other.name} have the same {attribute}")
    return ops


def load_shells(ops, path=OPS_YAML):
    """Gives (ATen's name, the operator it is counted with) for the structured operators whose bodies are written by hand."""
    by_name = {op.name: op for op in ops}
    shells = yaml.safe_load(Path(path).read_text(encoding="utf-8")).get("shells", [])
    for shell in shells:
        if set(shell) != {"op", "uses"} or shell["uses"] not in by_name:
            sys.exit(f"codegen: {path}: shell {shell} needs `op` and `uses`, the name of an operator of the list")
    return [(shell["op"], replace(by_name[shell["uses"]], route="shell")) for shell in shells]


def _op(number, entry, sets, path):
    where = f"codegen: {path}: op {entry.get('op', number)}"
    unknown = set(entry) - _KEYS
    if unknown:
        sys.exit(f"{where}: unknown keys {sorted(unknown)}; known: {sorted(_KEYS)}")
    if entry["dtypes"] not in sets:
        sys.exit(f"{where}: dtypes {entry['dtypes']!r} is none of the sets {sorted(sets)}")
    dtypes = sets[entry["dtypes"]]
    wrong = [token for token in dtypes if token not in DTYPES]
    if wrong:
        sys.exit(f"{where}: unknown dtypes {wrong}; known: {sorted(DTYPES)}")
    if entry.get("rare") and any(arg.endswith("|number") for arg in entry["args"]):
        sys.exit(f"{where}: a rare operator has no form with a number; write its operands without '|number'")
    if entry.get("commutes") and (len(entry["args"]) != 2 or not entry["args"][1].endswith("|number")):
        sys.exit(f"{where}: only operators of an operand and an 'operand|number' say that they commute")
    if entry.get("result", "same") not in ("same", "bool", "real"):
        sys.exit(f"{where}: result {entry['result']!r} is none of 'same', 'bool', 'real'")
    return Op(
        number=number,
        name=entry["op"],
        family=entry["family"],
        kernel=entry.get("kernel", entry["op"].split(".")[0]),
        args=tuple(arg.split("|")[0] for arg in entry["args"]),
        number_args=frozenset(arg.split("|")[0] for arg in entry["args"] if arg.endswith("|number")),
        dtypes=tuple(token for token in DTYPES if token in dtypes),
        expr=entry.get("expr", ""),
        expr_bool=entry.get("expr_bool", ""),
        expr_complex=entry.get("expr_complex", ""),
        result=entry.get("result", "same"),
        route=entry.get("route", "manual"),
        also=tuple(entry.get("also", ())),
        rare=entry.get("rare", False),
        exact=entry.get("exact", False),
        commutes=entry.get("commutes", False),
        refuse=entry.get("refuse", ""),
        check=entry.get("check", {}),
        when=entry.get("when", {}),
        numbers=entry.get("numbers", {}),
        unused=tuple(entry.get("unused", ())),
        meta=entry.get("meta", ""),
    )
