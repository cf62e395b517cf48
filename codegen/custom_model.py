"""Reads a vendor's list of custom operators, from which custom.py generates code. Every mistake is reported in one
error message that names the file, the operator, the key and the value.
"""
from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from keyword import iskeyword
from pathlib import Path

import yaml
from dtypes import DTYPES
from torchgen.api.types import DispatcherSignature
from torchgen.model import FunctionSchema

# Dtypes by torch's names: (c10::ScalarType, token of the portable kernels or "").
SCALAR_TYPES = {
    "uint8": ("Byte", "u8"), "int8": ("Char", "i8"), "int16": ("Short", "i16"), "int32": ("Int", "i32"), "int64": ("Long", "i64"),
    "float16": ("Half", "f16"), "bfloat16": ("BFloat16", "bf16"), "float32": ("Float", "f32"), "float64": ("Double", "f64"),
    "bool": ("Bool", "bool"), "complex64": ("ComplexFloat", "c64"), "complex128": ("ComplexDouble", "c128"),
}  # fmt: skip
assert all(token in DTYPES for _, token in SCALAR_TYPES.values())

# Types of a schema that can be passed to the C function, optional or not.
SCALAR_KINDS = ("int", "SymInt", "float", "bool", "str", "Scalar")
LIST_KINDS = ("int[]", "SymInt[]", "float[]")
KINDS = ("Tensor", "Tensor[]", *SCALAR_KINDS, *LIST_KINDS)

# Names that the generated code uses, and the keywords of C++; Python's keywords are refused, too.
RESERVED = frozenset(
    "arguments at below c10 caller check ctx fits grads gradients op results saved sizes stack torch torch_backend "
    "alignas alignof and asm auto bool break case catch char class const continue default delete do double else enum explicit export "
    "extern false float for friend goto if inline int long mutable namespace new not operator or private protected public register "
    "requires return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using "
    "virtual void volatile while xor".split()
)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Where:
    """A place in the file, for messages."""

    def __init__(self, path, *keys):
        self.path, self.keys = path, keys

    def at(self, *keys):
        return Where(self.path, *self.keys, *keys)

    def fail(self, problem):
        """Ends the program with the error message."""
        sys.exit(f"codegen: {self.path}: {': '.join([*map(str, self.keys), problem])}")


@dataclass(frozen=True)
class Argument:
    """An argument of an operator."""

    name: str
    kind: str  # one of KINDS
    optional: bool
    default: str | None  # as in the schema
    keyword: bool  # only by keyword
    shape: tuple | None = None  # tokens: "...", symbols, integers
    dtype: str | None = None  # a variable, or torch's name of a dtype
    strided: bool = False  # the C function takes any strides
    least: float | None = None
    most: float | None = None
    doc: str = ""

    @property
    def is_tensor(self):
        return self.kind == "Tensor"


@dataclass(frozen=True)
class Result:
    """A result of an operator."""

    name: str
    shape: tuple  # tokens: "...", symbols, integers, expressions of symbols
    dtype: str
    differentiable: bool = True
    doc: str = ""


@dataclass(frozen=True)
class Reroute:
    """An ATen operator whose calls go to this one."""

    aten: str  # "silu" or "gelu.out", without "aten::"
    arguments: dict  # {argument of this operator: argument of ATen's}
    when: dict  # {argument of ATen's: its required value}
    schema: FunctionSchema


@dataclass(frozen=True)
class CustomOp:
    """One operator."""

    namespace: str
    schema: FunctionSchema
    arguments: tuple
    results: tuple
    doc: str
    function: str | None  # in C
    backward: tuple  # of (names of arguments, expression)
    reference: dict  # result -> expression
    reroutes: tuple
    dtypes: dict  # variable -> names of dtypes
    where: Where = field(compare=False)

    @property
    def name(self):
        return str(self.schema.name.name)

    @property
    def qualified(self):
        return f"{self.namespace}::{self.name}"

    @property
    def signature(self):
        return DispatcherSignature.from_schema(self.schema, symint=True)

    def argument(self, name):
        return next((a for a in self.arguments if a.name == name), None)

    def dtype_names(self, dtype):
        """Returns torch's names of the dtypes that a dtype of the list represents."""
        return list(self.dtypes.get(dtype, [dtype]))


@dataclass(frozen=True)
class Kernels:
    """Kernels of one source in the portable dialect, one instance per dtype."""

    source: Path
    prefix: str
    tokens: tuple
    kernels: dict  # name -> "items" or "groups"


@dataclass(frozen=True)
class Library:
    """The whole file."""

    path: Path
    namespace: str
    ops: tuple
    kernels: tuple


# ---- reading ----


def load(path):
    """Reads the file."""
    where = Where(path)
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        where.fail(f"cannot be read: {error.strerror}")
    except yaml.YAMLError as error:
        where.fail(f"is not YAML: {' '.join(str(error).split())}")
    top = _mapping(where, document, required={"namespace", "ops"}, optional={"dtypes", "kernels"})
    namespace = _identifier(where.at("namespace"), top["namespace"])
    if namespace in ("aten", "prim", "prims", "torch", "_"):
        where.at("namespace").fail(f"{namespace!r} is torch's own; choose another")
    dtypes = _dtypes(where.at("dtypes"), top.get("dtypes") or {})
    ops = tuple(_op(where, namespace, dtypes, entry, i) for i, entry in enumerate(_list(where.at("ops"), top["ops"])))
    for i, op in enumerate(ops):
        if any(other.name == op.name for other in ops[:i]):
            where.at(f"op {op.name}").fail("is defined twice in the list")
    kernels = tuple(_kernels(where.at("kernels"), dtypes, entry) for entry in _list(where.at("kernels"), top.get("kernels") or []))
    return Library(Path(path), namespace, ops, kernels)


def _mapping(where, value, required=frozenset(), optional=None):
    if not isinstance(value, dict):
        where.fail(f"invalid value {value!r}: expected a mapping of keys")
    for key in required:
        if key not in value:
            where.fail(f"the key '{key}' is missing")
    unknown = [] if optional is None else [key for key in value if key not in required and key not in optional]
    if unknown:
        where.at(unknown[0]).fail(f"unknown key with the value {value[unknown[0]]!r}; known: {', '.join(sorted({*required, *optional}))}")
    return value


def _list(where, value):
    if not isinstance(value, list):
        where.fail(f"invalid value {value!r}: expected a list")
    return value


def _identifier(where, value):
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        where.fail(f"invalid name {value!r}: expected letters, digits and '_'")
    return value


def _dtypes(where, value):
    sets = {}
    for name, members in _mapping(where, value).items():
        _identifier(where, name)
        if name in SCALAR_TYPES:
            where.at(name).fail(f"{members!r} hides the dtype of that name; choose another")
        for member in _list(where.at(name), members):
            if member not in SCALAR_TYPES:
                where.at(name).fail(f"{member!r} is not one of the dtypes {', '.join(SCALAR_TYPES)}")
        sets[name] = tuple(members)
    return sets


def _kernels(where, dtypes, entry):
    entry = _mapping(where, entry, required={"source", "prefix", "dtypes"}, optional={"items", "groups"})
    where = where.at(entry["source"])
    source = where.path.parent / str(entry["source"]) if isinstance(where.path, Path) else Path(where.path).parent / str(entry["source"])
    if not source.exists():
        where.fail(f"there is no file {source}")
    names = dtypes.get(entry["dtypes"])
    if names is None:
        where.at("dtypes").fail(f"{entry['dtypes']!r} is not one of the sets {', '.join(sorted(dtypes)) or '(there are none)'}")
    kernels = {_identifier(where.at(unit), name): unit for unit in ("items", "groups") for name in entry.get(unit) or []}
    if not kernels:
        where.fail("neither 'items' nor 'groups' names a kernel")
    return Kernels(source, _identifier(where.at("prefix"), entry["prefix"]), tuple(SCALAR_TYPES[n][1] for n in names), kernels)


_OP_KEYS = {"doc", "args", "results", "function", "backward", "reference", "reroute"}


def _op(where, namespace, dtypes, entry, index):
    text = entry.get("schema") if isinstance(entry, dict) else None
    where = where.at(f"op {str(text).split('(')[0] if text else index}")
    entry = _mapping(where, entry, required={"schema", "results"}, optional=_OP_KEYS)
    schema = _schema(where.at("schema"), str(text))
    arguments = _arguments(where, schema, dtypes, entry.get("args") or {})
    results = _results(where, schema, dtypes, entry["results"])
    op = CustomOp(
        namespace, schema, arguments, results, " ".join(str(entry.get("doc") or "").split()),
        _identifier(where.at("function"), entry["function"]) if entry.get("function") else None,
        _backward(where.at("backward"), arguments, results, entry.get("backward") or {}),
        _reference(where.at("reference"), results, entry.get("reference") or {}),
        tuple(_reroute(where.at("reroute"), arguments, results, one) for one in _one_or_many(entry.get("reroute"))),
        dtypes, where,
    )  # fmt: skip
    _check_symbols(op)
    return op


def _one_or_many(value):
    return [] if value is None else value if isinstance(value, list) else [value]


def _schema(where, text):
    try:
        schema = FunctionSchema.parse(text)
    except Exception as error:
        where.fail(f"invalid schema {text!r}: {' '.join(str(error).split()) or type(error).__name__}")
    if schema.name.overload_name or schema.name.name.inplace or schema.arguments.out:
        where.fail(f"{text!r} has an overload name, writes in place or has an out argument; use a functional operator")
    if any(a.annotation for a in schema.arguments.flat_all) or any(r.annotation for r in schema.returns):
        where.fail(f"{text!r} declares that tensors alias or are written; use a functional operator")
    if not schema.returns or any(str(r.type) != "Tensor" for r in schema.returns):
        where.fail(f"{text!r} must return one or more results of type Tensor")
    if len(schema.returns) > 1 and not all(r.name for r in schema.returns):
        where.fail(f"{text!r} returns several results; name them, as in '-> (Tensor y, Tensor mean)'")
    return schema


def _arguments(where, schema, dtypes, specs):
    _mapping(where.at("args"), specs)
    keyword = {a.name for a in schema.arguments.flat_kwarg_only}
    known = [a.name for a in schema.arguments.flat_all]
    for name in [*known, *(r.name for r in schema.returns if r.name)]:
        twice = name in known and any(r.name == name for r in schema.returns)
        if name in RESERVED or iskeyword(str(name)) or str(name).startswith(("grad_", "_")) or twice:
            where.at("schema").fail(f"{name!r} cannot name an argument or result: the generated code uses it; choose another")
    for name in specs:
        if name not in known:
            where.at("args").at(name).fail(f"{specs[name]!r} does not describe an argument of the schema; it has {', '.join(known)}")
    arguments = []
    for a in schema.arguments.flat_all:
        kind, place = str(a.type), where.at("args").at(a.name)
        optional = kind.endswith("?")
        kind = kind[:-1] if optional else kind
        if kind not in KINDS or (optional and kind in ("Tensor[]", *LIST_KINDS)):
            where.at("schema").fail(f"argument '{a.name}' has the type {str(a.type)!r}; those that can be passed to C are {', '.join(KINDS)}, and "
                                    "all but the lists with '?'")
        arguments.append(_argument(place, dtypes, a, kind, optional, a.name in keyword, specs.get(a.name) or {}))
    if not any(a.is_tensor and not a.optional for a in arguments):
        where.at("schema").fail("no argument is a Tensor, so there is nothing that determines the device")
    return tuple(arguments)


def _argument(where, dtypes, argument, kind, optional, keyword, spec):
    keys = {"Tensor": {"shape", "dtype", "strided"}, "Tensor[]": {"dtype"}}.get(kind, {"min", "max"} if kind in ("int", "float") else set())
    spec = _mapping(where, spec, optional={"doc", *keys})
    for key in ("min", "max"):
        if key in spec and not isinstance(spec[key], (int, float)):
            where.at(key).fail(f"{spec[key]!r} is not a number")
    if kind == "Tensor" and "dtype" not in spec:
        where.fail("the key 'dtype' is missing: a dtype, or a name from 'dtypes'")
    return Argument(
        argument.name, kind, optional, argument.default, keyword,
        _shape(where.at("shape"), spec["shape"], results=False) if "shape" in spec else None,
        _dtype(where.at("dtype"), dtypes, spec["dtype"]) if "dtype" in spec else None,
        bool(spec.get("strided", False)), spec.get("min"), spec.get("max"), str(spec.get("doc", "")),
    )  # fmt: skip


def _dtype(where, dtypes, value):
    if value not in dtypes and value not in SCALAR_TYPES:
        where.fail(f"{value!r} is neither a dtype ({', '.join(SCALAR_TYPES)}) nor a name from 'dtypes' ({', '.join(dtypes) or 'none'})")
    return value


def _shape(where, text, results):
    """Splits "..., D, 4" into its tokens; integers become int."""
    tokens = [token.strip() for token in str(text).split(",")] if str(text).strip() else []
    for position, token in enumerate(tokens):
        if token == "...":
            if position:
                where.fail(f"{text!r} has '...' at another place than the first")
        elif not re.fullmatch(r"[0-9]+", token) and not _NAME.fullmatch(token):
            if not results or not re.fullmatch(r"[A-Za-z0-9_+\-*/() ]+", token):
                where.fail(f"invalid dimension {token!r} in {text!r}: expected '...', a name or a number"
                           f"{', or an expression of these with + - * //' if results else ''}")
    return tuple(int(token) if token.isdigit() else token for token in tokens)


def _results(where, schema, dtypes, specs):
    names = [r.name or "result" for r in schema.returns]
    _mapping(where.at("results"), specs, required=names, optional=())
    results = []
    for name in names:
        place = where.at("results").at(name)
        spec = _mapping(place, specs[name], required={"shape", "dtype"}, optional={"differentiable", "doc"})
        results.append(Result(name, _shape(place.at("shape"), spec["shape"], results=True),
                              _dtype(place.at("dtype"), dtypes, spec["dtype"]), bool(spec.get("differentiable", True)),
                              str(spec.get("doc", ""))))  # fmt: skip
    return tuple(results)


def _check_symbols(op):
    """Checks that an argument that is always present binds every name that a result uses."""
    bound, variables = set(), set()
    for argument in op.arguments:
        if argument.is_tensor and not argument.optional:
            bound |= set(argument.shape or ())
            variables.add(argument.dtype)
    for result in op.results:
        place = op.where.at("results").at(result.name)
        if result.dtype in op.dtypes and result.dtype not in variables:
            place.at("dtype").fail(f"{result.dtype!r} is not the dtype of an argument that is always present")
        for token in result.shape:
            for name in [token] if token == "..." else _NAME.findall(str(token)):
                if name not in bound:
                    place.at("shape").fail(f"{name!r} is not in the shape of an argument that is always present")
    for argument in op.arguments:
        for name in (argument.shape or ()) if argument.optional else ():
            if isinstance(name, str) and name not in bound:
                op.where.at("args").at(argument.name).at("shape").fail(f"{name!r} is not in the shape of an argument that is always present")


def _backward(where, arguments, results, specs):
    formulas, seen = [], set()
    for names, expression in _mapping(where, specs).items():
        targets = tuple(name.strip() for name in str(names).split(","))
        for name in targets:
            argument = next((a for a in arguments if a.name == name), None)
            if argument is None or not argument.is_tensor:
                where.at(names).fail(f"{name!r} is not a Tensor argument of the schema")
            if name in seen:
                where.at(names).fail(f"{name!r} has a formula already")
            seen.add(name)
        formulas.append((targets, str(expression)))
    if formulas and any(a.kind == "Tensor[]" for a in arguments):
        where.fail("an operator with an argument of type Tensor[] cannot have a formula; torch's autograd functions take single tensors")
    if formulas and not any(r.differentiable for r in results):
        where.fail("no result is differentiable")
    return tuple(formulas)


def _reference(where, results, specs):
    specs = {results[0].name: specs} if isinstance(specs, str) and len(results) == 1 else specs
    if _mapping(where, specs):
        _mapping(where, specs, required=[r.name for r in results], optional=())
    return {r.name: str(specs[r.name]) for r in results if r.name in specs}


def _reroute(where, arguments, results, entry):
    entry = {"aten": entry} if isinstance(entry, str) else entry
    entry = _mapping(where, entry, required={"aten"}, optional={"args", "when"})
    name = str(entry["aten"]).removeprefix("aten::")
    native = aten_functions().get(name)
    if native is None:
        where.at("aten").fail(f"unknown operator {entry['aten']!r} in the installed torch; expected a name such as 'aten::name.overload'")
    if native.has_composite_implicit_autograd_kernel:
        where.at("aten").fail(f"{entry['aten']!r} is a composite of other operators, whose gradient would be lost; reroute those")
    schema = native.func
    if schema.kind().name != "functional" or len(schema.returns) != len(results):
        where.at("aten").fail(f"{entry['aten']!r} is not a functional operator with {len(results)} result(s)")
    theirs = {a.name: a for a in schema.arguments.flat_all}
    given = _mapping(where.at("args"), entry.get("args") or {})
    when = _mapping(where.at("when"), entry.get("when") or {})
    taken = {a.name: given.get(a.name, a.name) for a in arguments}
    if not given and not all(name in theirs for name in taken.values()):  # by position
        taken = {a.name: other for a, other in zip(arguments, theirs)}
    for mine, other in list(taken.items()):
        argument = next(a for a in arguments if a.name == mine)
        if other in theirs and _same_type(argument, theirs[other]):
            continue
        if mine in given or argument.default is None:
            where.at("args").at(mine).fail(f"{other!r} is not an argument of {entry['aten']} of the same type; it has "
                                           f"{', '.join(f'{a.type} {a.name}' for a in theirs.values())}")
        del taken[mine]
    for other in theirs:
        if other not in taken.values() and other not in when:
            where.at("when").fail(f"argument {other!r} of {entry['aten']} is not used; set its required value under 'when'")
    for other in when:
        if other not in theirs:
            where.at("when").at(other).fail(f"{when[other]!r}: {entry['aten']} has no such argument; it has {', '.join(theirs)}")
        if not _comparable(str(theirs[other].type), when[other]):
            where.at("when").at(other).fail(f"{when[other]!r} cannot be compared with an argument of type {theirs[other].type}")
    return Reroute(name, taken, when, schema)


def _comparable(kind, wanted):
    """Returns whether an argument of that type can be compared with a value of the list."""
    if wanted is None:
        return kind.endswith("?")
    if isinstance(wanted, (str, bool)):
        return kind == type(wanted).__name__
    return kind in ("int", "float", "Scalar", "SymInt") and isinstance(wanted, (int, float))


def _same_type(mine, theirs):
    return mine.kind + ("?" if mine.optional else "") == str(theirs.type).replace("SymInt", "int") and mine.kind in ("Tensor", *SCALAR_KINDS)


_aten = {}


def aten_functions():
    """Returns the native functions of the installed torch by "name.overload"."""
    if not _aten:
        import torchgen
        from torchgen.gen import parse_native_yaml

        folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
        parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
        _aten.update({str(f.func.name): f for f in parsed.native_functions})
    return _aten
