"""Writes the Python of custom operators that work with every version of torch: the parts that LibTorch's stable ABI
does not support. The package's custom.py registers them.
"""
from __future__ import annotations

import ast

import custom_checks
from custom_checks import dimensions, dtype_source
from custom_expression import Translator, names_of
from custom_stable import attempt_name, reference_name


def registrations(model):
    """Returns the functions of all operators with their registrations, as text of the module."""
    ops = {op.name: op for op in model.ops}
    return "".join("\n".join(line.rstrip() for line in _operator(op, ops)) for op in model.ops)


def _operator(op, ops):
    parts = [_function(f"_{op.name}_fake", op, _fake(op))]
    given = [f"fake=_{op.name}_fake"]
    if op.reference:
        parts += [_function(reference_name(op), op, _reference(op, ops))]
        given += [f"reference={reference_name(op)}"]
    if op.backward:
        save, backward = _gradient(op, ops)
        parts += [save, backward]
        given += [f"save=_{op.name}_save", f"backward=_{op.name}_backward"]
    if op.reroutes:
        given += [f"reroutes=[{', '.join(_reroute(op, reroute) for reroute in op.reroutes)}]"]
    for part in parts:
        yield from ["", "", *part]
    yield from ["", "", f"_library.register({op.name!r}, {', '.join(given)})", ""]


def _function(name, op, body):
    """Returns a function of the operator's arguments; torch omits arguments that equal their defaults."""
    return [f"def {name}({', '.join(parameters(op))}):", *(f"    {line}" for line in body)]


def parameters(op, annotate=lambda argument: ""):
    """Returns the operator's arguments as those of a Python function, each name followed by the result of `annotate`."""
    result, starred = [], False
    for a in op.arguments:
        if a.keyword and not starred:
            result, starred = [*result, "*"], True
        annotation = annotate(a)
        equals = " = " if annotation else "="
        result += [a.name + annotation + (f"{equals}{a.default}" if a.default is not None else "")]
    return result


def _fake(op):
    results = []
    for r in op.results:
        source = dtype_source(op, r)
        shape = ", ".join(["*_leading"] * ("..." in r.shape) + dimensions(r, "_"))
        dtype = f"{source}.dtype" if source else f"torch.{op.dtype_names(r.dtype)[0]}"
        results += [f"{custom_checks.first_tensor(op)}.new_empty(({shape}{',' if shape else ''}), dtype={dtype})"]
    return [f"_check = _custom.Check({op.qualified!r})", *custom_checks.python(custom_checks.steps(op)), f"return {', '.join(results)}"]


def _reference(op, ops):
    lines, names = [], names_of(op.arguments)
    for r in op.results:
        source = dtype_source(op, r)
        dtype = f"{source}.dtype" if source else f"torch.{op.dtype_names(r.dtype)[0]}"
        text = translated(op.reference[r.name], op.where.at("reference").at(r.name), names, ops, op.namespace)[0]
        lines += [f"{r.name} = ({text}).to({dtype}).contiguous()"]
        names = {**names, r.name: (r.name, "tensor")}
    return [*lines, f"return {', '.join(r.name for r in op.results)}"]


# ---- gradients ----


def _gradient(op, ops):
    """Returns the function that saves the values that the formulas use, and the one that computes the gradients; see
    torch.library.register_autograd.
    """
    single = len(op.results) == 1
    grads = {r.name: "grad" if single else f"grad_{r.name}" for r in op.results}
    differentiable = {r.name for r in op.results if r.differentiable}
    names = {**names_of(op.arguments, op.results), **{grads[name]: (grads[name], "tensor") for name in differentiable}}
    positional, used, formulas = [a.name for a in op.arguments if not a.keyword], set(), []
    for targets, expression in op.backward:
        where = op.where.at("backward").at(", ".join(targets))
        text, more = translated(expression, where, names, ops, op.namespace, results=len(targets))
        used |= more
        places = [positional.index(name) for name in targets]
        formulas += [f"if {' or '.join(f'ctx.needs_input_grad[{place}]' for place in places)}:",
                     f"    {', '.join(f'gradients[{place}]' for place in places)} = {text}"]  # fmt: skip
    tensors = [a.name for a in op.arguments if a.is_tensor and a.name in used] + [r.name for r in op.results if r.name in used]
    others = [a for a in op.arguments if not a.is_tensor and a.name in used]
    constant = [r.name for r in op.results if not r.differentiable and r.name in used]
    return _save(op, positional, tensors, others), _backward(op, grads.values(), tensors, others, constant, len(positional), formulas)


def _save(op, positional, tensors, others):
    keywords = any(a.keyword for a in op.arguments)
    lines = [f"({', '.join(positional)},), ({', '.join(r.name for r in op.results)}) = inputs, output"]
    lines += [f"{a.name} = keyword_only_inputs[{a.name!r}]" for a in others if a.keyword]
    lines += [f"ctx.save_for_backward({', '.join(tensors)})"] if tensors else []
    lines += [f"ctx.saved_{a.name} = {a.name}" for a in others]
    fixed = [r.name for r in op.results if not r.differentiable]
    lines += [f"ctx.mark_non_differentiable({', '.join(fixed)})"] if fixed else []
    return [f"def _{op.name}_save(ctx, inputs,{' keyword_only_inputs,' if keywords else ''} output):", *(f"    {line}" for line in lines)]


def _backward(op, grads, tensors, others, constant, count, formulas):
    lines = [f"{', '.join(tensors)}, = ctx.saved_tensors"] if tensors else []
    if constant:  # a second derivative would ignore its dependence on the arguments
        lines += [f"_custom.refuse_second_derivative({op.qualified!r}, {constant[0]!r})"]
    lines += [f"{a.name} = ctx.saved_{a.name}" for a in others]
    lines += [f"gradients = [None] * {count}", *formulas, "return tuple(gradients)"]
    return [f"def _{op.name}_backward(ctx, {', '.join(grads)}):", *(f"    {line}" for line in lines)]


def _reroute(op, reroute):
    theirs = [a.name for a in reroute.schema.arguments.flat_all]
    sources = [theirs.index(reroute.arguments[a.name]) if a.name in reroute.arguments else -1 for a in op.arguments]
    conditions = [(theirs.index(name), value) for name, value in reroute.when.items()]
    return f"({f'aten::{reroute.aten}'!r}, {attempt_name(op)!r}, {sources!r}, {conditions!r})"


# ---- expressions ----


def translated(text, where, names, ops, namespace, results=1):
    """Returns (an expression of the list as one of the module, the names that it uses). It is checked as for C++."""
    translator = Translator(where, names, ops, set())
    translator.translate(text, results=results)
    return ast.unparse(_Calls(ops, namespace).visit(ast.parse(text.strip(), mode="eval").body)), translator.used


class _Calls(ast.NodeTransformer):
    """Qualifies the functions: those of tensors, the operators of the list, and torch's."""

    def __init__(self, ops, namespace):
        self.ops, self.namespace = ops, namespace

    def visit_Call(self, node):  # noqa: N802
        arguments, name = [self.visit(argument) for argument in node.args], node.func.id
        if name == "size":
            return ast.Subscript(ast.Attribute(arguments[0], "shape", ast.Load()), arguments[1], ast.Load())
        if name in ("sum_like", "reshape_like"):
            method = "sum_to_size" if name == "sum_like" else "reshape"
            return ast.Call(ast.Attribute(arguments[0], method, ast.Load()), [ast.Attribute(arguments[1], "shape", ast.Load())], [])
        op = self.ops.get(name)
        function = ast.parse(f"torch.ops.{self.namespace if op else 'aten'}.{name}", mode="eval").body
        by_keyword = {i: a.name for i, a in enumerate(op.arguments) if a.keyword} if op else {}
        keywords = [ast.keyword(by_keyword[i], a) for i, a in enumerate(arguments) if i in by_keyword]
        return ast.Call(function, [a for i, a in enumerate(arguments) if i not in by_keyword], keywords)
