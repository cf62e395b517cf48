"""Reads the operator entries, codegen/operators/<subject>.yaml. Pure Python and PyYAML, no torch.

One entry is one operator: ATen's name, its number and arguments in the plugin ABI, its portable kernel, its registration. The keys are
described in codegen/entry_schema.py. An invalid entry raises EntryError with file, line, key, what is allowed and the nearest key.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from dtypes import DTYPE_SETS, DTYPES, TORCH_NAMES
from entry_check import check
from entry_file import EntryError, Place, nearest, read
from entry_schema import ENTRY
from kernel_families import FAMILIES, Elementwise

OPERATORS = Path(__file__).resolve().parent / "operators"


@dataclass(frozen=True)
class Kernel:
    """The portable kernel of an operator."""

    family: str
    name: str  # of its instances
    dtypes: tuple  # tokens, in the order of DTYPES
    device_dtypes: tuple = ()  # further ones, only where kernels are not host C
    expr: str = ""
    exprs: dict = field(default_factory=dict, hash=False)  # {"bool" | "complex" | "half": expression in place of `expr`}
    result_dtype: str = "same"
    for_size: bool = False  # one general variant, compiled once

    @property
    def dtype_mask(self):
        return _mask(self.dtypes)

    @property
    def device_dtype_mask(self):
        return _mask(self.device_dtypes)

    @property
    def is_elementwise(self):
        return isinstance(FAMILIES[self.family], Elementwise)


def _mask(tokens):
    return sum(1 << DTYPES[token].number for token in tokens)


@dataclass(frozen=True)
class Specialization:
    """The operator that computes a call for one value of an argument."""

    argument: str
    value: object  # None: the argument is absent
    op: str
    args: tuple | None = None  # its operands by ATen's names; None: those of its own list


@dataclass(frozen=True)
class Entry:
    """One operator."""

    name: str  # "add.Tensor"
    register: str  # a kind of entry_schema.REGISTER
    place: Place = field(compare=False, hash=False)
    keys: dict = field(compare=False, hash=False, repr=False)  # as read, for the places of errors
    number: int | None = None
    part_of: str = ""  # ATen's operator that errors name; "": the entry's own name
    args: tuple = ()  # names without "|Scalar"
    scalar_args: frozenset = frozenset()  # names that may be given as a number
    vendor_args: tuple = ()
    omit: tuple = ()
    mutates_args: tuple = ()
    kernel: Kernel | None = None
    program: dict = field(default_factory=dict, hash=False)  # {"emit": name, "takes": name} or {"none": reason}
    source: str | None = None  # "norm/batch_norm.cpp"
    functions: dict = field(default_factory=dict, hash=False)  # {overload, or "" for all: function}
    stubs: dict = field(default_factory=dict, hash=False)
    overloads: tuple = ()
    meta: str | None = None
    calls_vendor: bool = False
    specializations: tuple = ()
    precomputed: dict = field(default_factory=dict, hash=False)  # {number: (function, ATen's arguments ...)}
    fallback_if: tuple = ()
    device_assert: dict = field(default_factory=dict, hash=False)
    opmath_scalar: bool = False
    torch: str = ""

    @property
    def identifier(self):
        """Returns the name as a C identifier in upper case: ADD_TENSOR."""
        return re.sub(r"[^A-Za-z0-9]", "_", self.name).upper()

    @property
    def id(self):
        """Returns the constant of its number in C."""
        return f"HAL_OP_ID_{self.identifier}"

    @property
    def family(self):
        return self.kernel.family if self.kernel else None

    @property
    def subject(self):
        """Returns the folder of csrc/aten that the file's name begins with: pointwise for pointwise_special.yaml."""
        return self.place.path.stem.split("_")[0]

    @property
    def is_elementwise(self):
        return self.kernel is not None and self.kernel.is_elementwise

    @property
    def is_commutative(self):
        """Returns whether f(a, b) = f(b, a), bit for bit. Then a number as the first operand uses the fast path as the
        second one.
        """
        return bool(self.scalar_args) and self.kernel is not None and re.fullmatch(r"a [*&|^] b", self.kernel.expr) is not None

    def at(self, *keys):
        """Returns the place of a key of the entry, and of keys inside."""
        place, container = self.place, self.keys
        for key in keys:
            place = place.at(container, key)
            container = container.get(key) if isinstance(container, dict) else None
        return place


def load(folder=OPERATORS):
    """Returns the operators of the plugin ABI in the order of their numbers. Raises EntryError if an entry is invalid."""
    return numbered(load_all(folder))


def load_all(folder=OPERATORS):
    """Returns all entries: those with a number in its order, then those that are only registered."""
    files = sorted(Path(folder).glob("*.yaml"))
    if not files:
        raise EntryError(f"{folder}: there are no operator entries (*.yaml)")
    entries = [entry for file in files for entry in _file(file)]
    _check_names(entries)
    _check_numbers([entry for entry in entries if entry.number is not None])
    for entry in entries:
        _check_references(entry, {other.name: other for other in entries})
    return numbered(entries) + [entry for entry in entries if entry.number is None]


def numbered(entries):
    """Returns the entries with a number, in its order."""
    return sorted((entry for entry in entries if entry.number is not None), key=lambda entry: entry.number)


def _file(path):
    document = read(path)
    if not isinstance(document, list):
        raise EntryError(f"{path}:1: expected a list of entries, each beginning with '- op:'")
    for i, keys in enumerate(document):
        place = Place(path, document.lines[i], (keys["op"],) if isinstance(keys, dict) and isinstance(keys.get("op"), str) else ())
        check(keys, ENTRY, place)
        yield _entry(keys, place)


def _entry(keys, place):
    functions = keys.get("function", {})
    entry = Entry(
        name=keys["op"],
        register=keys["register"],
        place=place,
        keys=keys,
        number=keys.get("number"),
        part_of=keys.get("part_of", ""),
        args=tuple(arg.split("|")[0] for arg in keys.get("args", ())),
        scalar_args=frozenset(arg.split("|")[0] for arg in keys.get("args", ()) if "|" in arg),
        vendor_args=tuple(keys.get("vendor_args", ())),
        omit=tuple(keys.get("omit", ())),
        mutates_args=tuple(keys.get("mutates_args", ())),
        kernel=_kernel(keys["kernel"], keys["op"], place.at(keys, "kernel")) if "kernel" in keys else None,
        program=dict(keys.get("program", {})),
        source=keys.get("source"),
        functions=dict(functions) if isinstance(functions, dict) else {"": functions},
        stubs=dict(keys.get("stubs", {})),
        overloads=tuple(keys.get("overloads", ())),
        meta=keys.get("meta"),
        calls_vendor=keys.get("calls_vendor", False),
        specializations=tuple(_specializations(keys)),
        precomputed={name: tuple(call) for name, call in keys.get("precomputed", {}).items()},
        fallback_if=tuple(keys.get("fallback_if", ())),
        device_assert=dict(keys.get("device_assert", {})),
        opmath_scalar=keys.get("opmath_scalar", False),
        torch=keys.get("torch", ""),
    )
    _check_entry(entry)
    return entry


def _kernel(keys, op, place):
    exprs = keys.get("expr", "")
    exprs = {"default": exprs} if isinstance(exprs, str) else dict(exprs)
    dtypes = _tokens(keys["dtypes"])
    kernel = Kernel(
        family=keys["family"],
        name=keys.get("name", op.split(".")[0]),
        dtypes=tuple(token for token in DTYPES if token in dtypes),
        device_dtypes=tuple(token for token in DTYPES if token in _tokens(keys.get("device_dtypes", [])) and token not in dtypes),
        expr=exprs.pop("default", ""),
        exprs=exprs,
        result_dtype=keys.get("result_dtype", "same"),
        for_size=keys.get("optimize", "speed") == "size",
    )
    known = FAMILIES[kernel.family].kernels
    if known and kernel.name not in known:
        raise place.at(keys, "name").error(f"{kernel.name!r} is invalid; {nearest(kernel.name, known)}")
    if kernel.is_elementwise and not kernel.expr:
        raise place.error(f"the family {kernel.family} needs the key 'expr', which is missing")
    if kernel.is_elementwise and any(DTYPES[token].complex for token in kernel.dtypes) and "complex" not in exprs:
        raise place.at(keys, "dtypes").error(f"{keys['dtypes']!r} has complex dtypes, and `expr` has no expression 'complex' for them")
    return kernel


def _tokens(value):
    """Returns the tokens of a named set, or of a list of torch's names."""
    return DTYPE_SETS[value] if isinstance(value, str) else tuple(TORCH_NAMES[name] for name in value)


def _specializations(keys):
    for argument, values in keys.get("specialize", {}).items():
        for value, other in values.items():
            name, args = (other, None) if isinstance(other, str) else (other["op"], tuple(other["args"]))
            yield Specialization(argument, None if value in (None, "None") else value, name, args)


# ---- checks that a schema cannot express ----


def _check_entry(entry):
    """Raises EntryError if keys of one entry contradict each other."""
    kernel = entry.kernel
    if kernel and kernel.for_size and entry.scalar_args:
        raise entry.at("args").error("an operator with `optimize: size` has no variant for a number; write its operands without '|Scalar'")
    if entry.register == "structured" and not kernel and not entry.functions:
        raise entry.at("register").error("'structured' needs a portable kernel (`kernel`) or a function after ATen's meta function (`function`)")
    if entry.functions and not entry.source and any("::" not in function for function in entry.functions.values()):
        raise entry.at("function").error("needs the key 'source', the file of csrc/aten that has the function")
    if "program" in entry.keys and ("emit" in entry.program) == ("none" in entry.program):
        raise entry.at("program").error("needs one of the keys 'emit' and 'none'")
    if "" not in entry.functions and entry.register in ("structured", "out") and entry.functions:
        raise entry.at("function").error(f"register: {entry.register} has one function for all overloads: expected a text")
    for key in ("precomputed", "device_assert"):
        for name in getattr(entry, key):
            if name not in entry.args:
                raise entry.at(key, name).error(f"is not an argument of the operator; {nearest(name, entry.args)}")


def _check_references(entry, entries):
    """Raises EntryError if an entry names another one that does not exist."""
    for special in entry.specializations:
        if special.op not in entries:
            raise entry.at("specialize", special.argument).error(f"unknown operator {special.op!r}; {nearest(special.op, entries)}")
    asserts = [name for name, other in entries.items() if other.family == "check"]
    for argument, name in entry.device_assert.items():
        if name not in asserts:
            raise entry.at("device_assert", argument).error(f"{name!r} is not an operator of the family check; {nearest(name, asserts)}")
    if len(set(entry.device_assert.values())) > 1:
        raise entry.at("device_assert").error(f"names {len(set(entry.device_assert.values()))} operators: expected one for all operands")


def _check_names(entries):
    """Raises EntryError if two entries have one name, or one identifier in C."""
    for attribute in ("name", "identifier"):
        seen = {}
        for entry in entries:
            if entry.number is None and attribute == "identifier":
                continue
            other = seen.setdefault(getattr(entry, attribute), entry)
            if other is not entry:
                raise entry.at("op").error(f"has the same {attribute} as {other.name} in {other.place.path}:{other.place.line}")


def _check_numbers(entries):
    """Raises EntryError if a number is used twice or missing: numbers are 0, 1, 2 ... without a gap."""
    free = min(set(range(len(entries) + 1)) - {entry.number for entry in entries})
    seen = {}
    for entry in entries:
        other = seen.setdefault(entry.number, entry)
        if other is not entry:
            raise entry.at("number").error(f"{entry.number} is the number of {other.name} in {other.place.path}:{other.place.line}; "
                                           f"the next free number is {free}")
    for entry in sorted(entries, key=lambda entry: entry.number):
        if entry.number > free:
            raise entry.at("number").error(f"{entry.number} leaves a gap; the next free number is {free}")
