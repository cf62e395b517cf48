"""Reads ops.yaml: the operators we have kernels for. Pure Python and PyYAML, no torch."""
from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
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

    def macros(self):
        """What every instance of a kernel is told about the dtype, as (name, text) pairs."""
        yield "PK_TOKEN", self.computing or self.token
        yield "T", self.ctype
        yield "E", self.memory
        yield "PK_WIDENED", "1" if self.element else "0"
        yield "PK_IS_COMPLEX", "1" if self.complex else "0"
        yield "PK_GET(x)", f"pk_get_{self.token}(x)" if self.element else "(x)"
        yield "PK_PUT(x)", f"pk_put_{self.token}(x)" if self.element else "(x)"
        yield f"PK_IS_{self.token.upper()}", "1"

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

_KEYS = {"op", "family", "kernel", "args", "expr", "expr_bool", "expr_complex", "expr_half", "dtypes", "result", "also", "route", "rare", "when",
         "numbers", "meta", "unused", "exact", "refuse", "check", "commutes", "digits", "further", "results", "shapes", "absent", "fast", "writes",
         "policy", "layout", "devices", "images", "asks", "format"}

# How kernels want their operands: csrc/aten/prepare/rules.h.
POLICIES = ("exact", "number", "rounded", "moved", "truth")
LAYOUTS = ("strided", "lines", "rows", "contiguous", "images")
IMAGES = ("all", "devices")


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
    devices: tuple = ()  # dtypes with a kernel only where kernels are not host C
    expr: str = ""
    expr_bool: str = ""  # instead of expr, for bool
    expr_complex: str = ""  # instead of expr, for complex numbers
    expr_half: str = ""  # instead of expr, for half precision: of the elements' bits, the sign of which is the highest of 16
    result: str = "same"
    route: str = "manual"
    also: dict = field(default_factory=dict, hash=False)  # {ATen's operator: its own `when`, or this one's}
    rare: bool = False  # row forms only, compiled once
    exact: bool = False  # results are not the same in a wider dtype
    commutes: bool = False  # f(a, b) = f(b, a), bit for bit
    digits: bool = False  # a number beside half precision keeps its digits, as CPU torch's sums and products do; others round it
    refuse: tuple = ()  # (C++ function, ATen's arguments ...) that tells which calls the fallback serves; or (ATen's bool,)
    check: dict = field(default_factory=dict, hash=False)  # {argument: operator of the family `check`}, one for all
    when: dict = field(default_factory=dict, hash=False)  # {ATen's argument: {value: (the operator it makes of this one, operands or None)}}
    absent: dict = field(default_factory=dict, hash=False)  # {ATen's argument: operator that it is without that one}
    numbers: dict = field(default_factory=dict, hash=False)  # {number: (C++ function, ATen's arguments ...)}
    fast: tuple = ()  # dtypes with a fast path, when not all
    unused: tuple = ()  # ATen's arguments that say nothing
    shapes: tuple = ()  # ATen's arguments that say what shape or dtype the result has
    further: tuple = ()  # arguments behind those of the portable kernel
    writes: tuple = ()  # ATen's arguments that are results too, though its schema does not say so
    results: str = ""  # C++ function of ATen's arguments that allocates the results which the plugin's own op is to fill
    format: str = ""  # the argument in whose memory format results lie, of which ATen's meta function knows nothing
    asks_itself: bool = False  # the body asks the plugin's own op, with ATen's arguments (`asks: body`)
    meta: str = ""  # of the route `pointwise`: the class of csrc/aten/prepare/pointwise_meta.h that gives shapes and dtypes
    policy: str = "exact"  # one of POLICIES
    layout: str = "strided"  # one of LAYOUTS
    images: str = "all"  # of the layout `images`: the devices that read channels last, one of IMAGES

    @property
    def identifier(self):
        """The name as a C identifier in upper case: ADD_TENSOR."""
        return re.sub(r"[^A-Za-z0-9]", "_", self.name).upper()

    @property
    def dtype_mask(self):
        return sum(1 << DTYPES[token].number for token in self.dtypes)

    @property
    def devices_mask(self):
        return sum(1 << DTYPES[token].number for token in self.devices)


@dataclass(frozen=True)
class Body:
    """One entry of `bodies`: an operator of ATen whose body is written by hand."""

    file: str  # in csrc/aten, without ".cpp"
    op: str  # ATen's name of one form; of the functional one, for `fills` and `impl`
    way: str  # "body", "fills", "impl", "makes", "direct" or "native"
    function: str  # of the file; of at::native for "native", a class of at::native without "structured_" for "impl"
    stubs: dict = field(default_factory=dict)  # DispatchStubs of at::native that it asks: functions of the file, the device's kernels

    @property
    def called(self):
        """What answers, as the sources call it."""
        return {"native": "at::native::", "impl": "at::native::structured_"}.get(self.way, "") + self.function


def load(path=OPS_YAML):
    """Gives the operators in their order. Exits with a sentence when the list is wrong."""
    document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    sets, families = document["sets"], document.get("families", {})
    ops = [_op(number, {**families.get(entry.get("family"), {}), **entry}, sets, path) for number, entry in enumerate(document["ops"])]
    unused = set(families) - {op.family for op in ops}
    if unused:
        sys.exit(f"codegen: {path}: no operator is of the families {sorted(unused)}")
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


def load_bodies(path=OPS_YAML):
    """Gives the operators of ATen whose bodies are written by hand, in the order of their files."""
    files = yaml.safe_load(Path(path).read_text(encoding="utf-8")).get("bodies", {})
    bodies, stubs = [], {}
    for file, entries in files.items():
        for op, entry in entries.items():
            fields = {"body": entry} if isinstance(entry, str) else dict(entry)
            asked = fields.pop("stubs", {})
            if len(fields) != 1 or not set(fields) <= {"body", "fills", "impl", "makes", "direct", "native"} or not isinstance(asked, dict):
                sys.exit(f"codegen: {path}: bodies: {op} of {file} is {entry!r}; write a function, or one as {{body: function}}, {{fills: function}}, "
                         "{makes: function}, {direct: function}, {native: function} or {impl: class}, and stubs: {stub: function} beside it")
            for stub, kernel in asked.items():
                if stubs.setdefault(stub, (file, kernel)) != (file, kernel):
                    sys.exit(f"codegen: {path}: bodies: {op} of {file} serves {stub} with {kernel}, and another operator with {stubs[stub]}")
            (way, function), = fields.items()
            bodies.append(Body(file, op, way, function, asked))
    return bodies


def _when(entry):
    """Gives the `when` of an entry: {argument: {value: (operator, operands)}}; operands None are those of the operator's own list."""
    return {argument: {value: (other, None) if isinstance(other, str) else (other["op"], tuple(other["args"])) for value, other in values.items()}
            for argument, values in entry.get("when", {}).items()}


def _also(entry):
    """Gives the further operators of an entry, each with the `when` that holds for it."""
    own = _when(entry)
    return {other: own for other in entry.get("also", ()) if isinstance(other, str)} | {
        other["op"]: _when(other) for other in entry.get("also", ()) if not isinstance(other, str)}


def _op(number, entry, sets, path):
    where = f"codegen: {path}: op {entry.get('op', number)}"
    unknown = set(entry) - _KEYS
    if unknown:
        sys.exit(f"{where}: unknown keys {sorted(unknown)}; known: {sorted(_KEYS)}")
    composed = entry["family"] == "none"
    if composed == ("dtypes" in entry) or not composed and entry["dtypes"] not in sets:
        sys.exit(f"{where}: dtypes {entry.get('dtypes')!r} is none of the sets {sorted(sets)}, of which every family but `none` names one")
    dtypes = () if composed else sets[entry["dtypes"]]
    wrong = [token for token in dtypes if token not in DTYPES]
    if wrong:
        sys.exit(f"{where}: unknown dtypes {wrong}; known: {sorted(DTYPES)}")
    if entry.get("devices", entry.get("dtypes")) not in sets and not composed:
        sys.exit(f"{where}: devices {entry['devices']!r} is none of the sets {sorted(sets)}")
    if entry.get("rare") and any(arg.endswith("|number") for arg in entry["args"]):
        sys.exit(f"{where}: a rare operator has no form with a number; write its operands without '|number'")
    if entry.get("commutes") and (len(entry["args"]) != 2 or not entry["args"][1].endswith("|number")):
        sys.exit(f"{where}: only operators of an operand and an 'operand|number' say that they commute")
    if entry.get("result", "same") not in ("same", "bool", "real"):
        sys.exit(f"{where}: result {entry['result']!r} is none of 'same', 'bool', 'real'")
    if entry.get("asks", "body") != "body" or "asks" in entry and "results" in entry:
        sys.exit(f"{where}: `asks` says that the body asks (`body`), which then has no `results`")
    for field_name, known in (("policy", POLICIES), ("layout", LAYOUTS), ("images", IMAGES)):
        if entry.get(field_name, known[0]) not in known:
            sys.exit(f"{where}: {field_name} {entry[field_name]!r} is none of {list(known)}")
    return Op(
        number=number,
        name=entry["op"],
        family=entry["family"],
        kernel=entry.get("kernel", entry["op"].split(".")[0]),
        args=tuple(arg.split("|")[0] for arg in entry["args"]),
        number_args=frozenset(arg.split("|")[0] for arg in entry["args"] if arg.endswith("|number")),
        dtypes=tuple(token for token in DTYPES if token in dtypes),
        devices=tuple(token for token in DTYPES if "devices" in entry and token in sets[entry["devices"]] and token not in dtypes),
        expr=entry.get("expr", ""),
        expr_bool=entry.get("expr_bool", ""),
        expr_complex=entry.get("expr_complex", ""),
        expr_half=entry.get("expr_half", ""),
        result=entry.get("result", "same"),
        route=entry.get("route", "manual"),
        also=_also(entry),
        rare=entry.get("rare", False),
        exact=entry.get("exact", False),
        commutes=entry.get("commutes", False),
        digits=entry.get("digits", False),
        refuse=tuple(entry.get("refuse", ())),
        check=entry.get("check", {}),
        when=_when(entry),
        absent=entry.get("absent", {}),
        numbers={name: tuple(call) for name, call in entry.get("numbers", {}).items()},
        fast=tuple(sets[entry["fast"]]) if "fast" in entry else (),
        unused=tuple(entry.get("unused", ())),
        shapes=tuple(entry.get("shapes", ())),
        further=tuple(entry.get("further", ())),
        writes=tuple(entry.get("writes", ())),
        results=entry.get("results", ""),
        format=entry.get("format", ""),
        asks_itself="asks" in entry,
        meta=entry.get("meta", ""),
        policy=entry.get("policy", POLICIES[0]),
        layout=entry.get("layout", LAYOUTS[0]),
        images=entry.get("images", IMAGES[0]),
    )
