"""Translates the expressions of a list of custom operators ("grad * sigmoid(x)") to C++: Python's grammar over the
operator's arguments and results, numbers, torch's functions and the operators of the same list.
"""
from __future__ import annotations

import ast
from collections import namedtuple

from custom_model import aten_functions

# The translation of an expression: the C++ text and a kind. Kinds are "tensor", "number", "symint", "list", "bool",
# "text", "none", "optional" (an argument that may be absent; it can only be passed on) or the name of an operator with
# several results.
Value = namedtuple("Value", "cpp kind")

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_KINDS = {"Tensor": "tensor", "int": "number", "float": "number", "SymInt": "symint", "bool": "bool", "str": "text", "Scalar": "number",
          "int[]": "list", "SymInt[]": "list", "float[]": "list", "Tensor[]": "list"}  # fmt: skip


class Translator:
    """Translates expressions of one place in the file. `names` are the permitted names with their kinds. `used`
    collects the names that were used, and `headers` the ATen headers that the C++ needs.
    """

    def __init__(self, where, names, ops, headers):
        self.where, self.names, self.ops, self.headers = where, names, ops, headers
        self.used, self.text = set(), ""

    def translate(self, text, results=1):
        """Returns the C++ of an expression that is a tensor, or of `results` tensors."""
        self.text = text
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            self.where.fail(f"invalid expression {text!r}: {error.msg}")
        value = self._value(tree)
        wanted = "tensor" if results == 1 else "a call of an operator of this list with as many results"
        count = len(self.ops[value.kind].results) if value.kind in self.ops else 1 if value.kind == "tensor" else 0
        if count != results:
            self.where.fail(f"{text!r} is {value.kind if count == 0 else f'{count} tensor(s)'}; wanted: {wanted}")
        return value.cpp

    def _fail(self, node, problem):
        self.where.fail(f"{ast.unparse(node)!r} in {self.text!r} {problem}")

    def _value(self, node):
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            self._fail(node, "is not possible here: use names, numbers, + - * / **, lists of integers and calls")
        return method(node)

    def _name(self, node):
        if node.id not in self.names:
            self._fail(node, f"is unknown; there are {', '.join(self.names)}")
        self.used.add(node.id)
        return Value(*self.names[node.id])

    def _constant(self, node):
        value = node.value
        if value is None:
            return Value("std::nullopt", "none")
        if isinstance(value, bool):
            return Value(str(value).lower(), "bool")
        if isinstance(value, (int, float)):
            return Value(f"int64_t({value})" if isinstance(value, int) else repr(value), "number")
        if isinstance(value, str):
            return Value('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"', "text")
        return self._fail(node, "is not a number, text, True, False or None")

    def _list(self, node):
        values = [self._value(element) for element in node.elts]
        if any(value.kind != "number" for value in values):
            self._fail(node, "may hold numbers only")
        return Value(f"{{{', '.join(value.cpp for value in values)}}}", "list")

    def _unaryop(self, node):
        value = self._value(node.operand)
        if not isinstance(node.op, ast.USub) or value.kind not in ("tensor", "number"):
            self._fail(node, "is not possible: only the minus of a tensor or number is")
        return Value(f"({value.cpp}).neg()" if value.kind == "tensor" else f"(-({value.cpp}))", value.kind)

    def _binop(self, node):
        left, right = self._value(node.left), self._value(node.right)
        if isinstance(node.op, ast.Pow) and left.kind == "tensor" and right.kind in ("tensor", "number"):
            return Value(f"({left.cpp}).pow({right.cpp})", "tensor")
        operator = _OPERATORS.get(type(node.op))
        kinds = {left.kind, right.kind}
        if operator is None or not kinds <= {"tensor", "number", "symint"}:
            self._fail(node, f"joins {left.kind} and {right.kind}; + - * / and tensor ** number are possible, between tensors and numbers")
        if "tensor" in kinds:
            sides = [value.cpp if value.kind == "tensor" else f"at::Scalar({value.cpp})" for value in (left, right)]
            return Value(f"({sides[0]} {operator} {sides[1]})", "tensor")
        if "symint" in kinds:
            if operator == "/":
                self._fail(node, "divides sizes; divide a tensor by a size")
            return Value(f"({left.cpp} {operator} {right.cpp})", "symint")
        first = f"static_cast<double>({left.cpp})" if operator == "/" else left.cpp
        return Value(f"({first} {operator} {right.cpp})", "number")

    def _call(self, node):
        if not isinstance(node.func, ast.Name) or node.keywords:
            self._fail(node, "is not a call by a plain name with positional arguments")
        arguments = [self._value(argument) for argument in node.args]
        name = node.func.id
        for known in (self._builtin, self._own, self._aten):
            value = known(node, name, arguments)
            if value is not None:
                return value
        return self._fail(node, "calls no operator of this list and no function of the installed torch")

    def _builtin(self, node, name, arguments):
        """Translates functions that need the sizes of a tensor, which may be symbolic."""
        wanted = {"size": ("tensor", "number"), "sum_like": ("tensor", "tensor"), "reshape_like": ("tensor", "tensor")}.get(name)
        if wanted is None:
            return None
        if tuple(value.kind for value in arguments) != wanted:
            self._fail(node, f"needs ({', '.join(wanted)})")
        first, second = (value.cpp for value in arguments)
        if name == "size":
            return Value(f"({first}).sym_size({second})", "symint")
        method = "sum_to_size_symint" if name == "sum_like" else "reshape_symint"
        return Value(f"({first}).{method}(({second}).sym_sizes())", "tensor")

    def _own(self, node, name, arguments):
        op = self.ops.get(name)
        if op is None:
            return None
        needed = sum(argument.default is None for argument in op.arguments)
        if len(arguments) != len(op.arguments):
            self._fail(node, f"has {len(arguments)} arguments; {name} takes {len(op.arguments)}" + (f", {needed} of them without default; pass all" if needed < len(op.arguments) else ""))  # fmt: skip
        for value, argument in zip(arguments, op.arguments):
            kind = _KINDS[argument.kind]
            fits = value.kind == kind or (argument.optional and value.kind in ("none", "optional")) or {value.kind, kind} == {"number", "symint"}
            if not fits:
                self._fail(node, f"passes {value.kind} for '{argument.name}', which is {argument.kind}")
        return Value(f"call_{name}({', '.join(value.cpp for value in arguments)})", "tensor" if len(op.results) == 1 else name)

    def _aten(self, node, name, arguments):
        candidates = [f for full, f in aten_functions().items() if full.split(".")[0] == name and f.func.kind().name == "functional"]
        candidates = [f for f in candidates if len(f.func.returns) == 1 and str(f.func.returns[0].type) == "Tensor"]
        if not candidates:
            return None
        values = ", ".join(value.cpp for value in arguments[1:])
        if arguments and arguments[0].kind == "tensor" and any("method" in {v.name for v in f.variants} for f in candidates):
            return Value(f"({arguments[0].cpp}).{name}({values})", "tensor")
        self.headers.add(f"ATen/ops/{name}.h")
        return Value(f"at::{name}({', '.join(value.cpp for value in arguments)})", "tensor")


def names_of(arguments, results=()):
    """Returns the names of arguments and results, for a Translator."""
    names = {a.name: (a.name, "optional" if a.optional else _KINDS[a.kind]) for a in arguments}
    names.update({r.name: (r.name, "tensor") for r in results})
    return names
