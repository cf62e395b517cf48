"""Writes the C++ of custom operators, from the templates in codegen/autograd/templates."""
from __future__ import annotations

from pathlib import Path
from string import Template

import custom_checks
import torchgen.local
from custom_checks import aten_dtype, dimensions, dtype_source
from custom_expression import Translator, names_of

TEMPLATES = Path(__file__).resolve().parent / "autograd" / "templates"


def fill(template, **values):
    """Returns a filled template of the folder."""
    return Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)


def indent(lines, by=2):
    return "\n".join(" " * by + line for line in lines)


def joined(names):
    """Returns names that follow another argument of a list."""
    return "".join(f", {name}" for name in names)


def library(model, name):
    """Returns the text of the whole C++ file."""
    headers = {"ATen/core/Tensor.h", "ATen/core/LegacyTypeDispatch.h", "ATen/core/dispatch/Dispatcher.h", "ATen/core/stack.h",
               "ATen/TensorOperators.h", "torch/library.h", "torch/csrc/autograd/autograd_not_implemented_fallback.h",
               "torch/csrc/autograd/custom_function.h"}  # fmt: skip
    ops = {op.name: op for op in model.ops}
    with torchgen.local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
        emitters = [OpEmitter(op, ops, headers) for op in model.ops]
        operators = [emitter.text() for emitter in emitters]
        declarations = [emitter.declaration() for emitter in emitters]
    return fill(
        "library.cpp.in", source=model.path.name, library=name, namespace=model.namespace,
        includes="\n".join(f"#include <{header}>" for header in sorted(headers)),
        operators="\n".join([*declarations, "", *operators]),
        definitions=indent(f"m.def({quoted(str(op.schema))});" for op in model.ops),
        device=indent(f'm.impl("{op.name}", TORCH_FN(device_{op.name}));' for op in model.ops),
        meta=indent(f'm.impl("{op.name}", TORCH_FN(meta_{op.name}));' for op in model.ops),
        cpu=indent(f'm.impl("{op.name}", TORCH_FN(cpu_{op.name}));' for op in model.ops),
        autograd=indent(_autograd_kernel(op) for op in model.ops),
        reroutes="".join(_registration(op, i, reroute) for op in model.ops for i, reroute in enumerate(op.reroutes)),
    )  # fmt: skip


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _autograd_kernel(op):
    kernel = f"TORCH_FN(autograd_{op.name})" if op.backward else "torch::autograd::autogradNotImplementedFallback()"
    return f'm.impl("{op.name}", {kernel});'


def _registration(op, index, reroute):
    return f'\nstatic const bool rerouted_{op.name}_{index} = torch_backend::reroute("aten::{reroute.aten}", &reroute_{op.name}_{index});\n'


class OpEmitter:
    """The C++ of one operator."""

    def __init__(self, op, ops, headers):
        self.op, self.ops, self.headers = op, ops, headers
        self.signature = op.signature
        self.names = [a.name for a in self.signature.arguments()]
        self.parameters = [a.decl() for a in self.signature.arguments()]
        # In the order of the schema; keyword-only arguments come last in both.
        assert self.names == [a.name for a in op.arguments]
        self.first = custom_checks.first_tensor(op)

    def declaration(self):
        return self.signature.decl(name=f"call_{self.op.name}") + ";"

    def text(self):
        op, count = self.op, len(self.op.results)
        definition = {kind: self.signature.defn(name=f"{kind}_{op.name}") for kind in ("call", "device", "meta", "cpu")}
        members, checks = custom_checks.cpp(op, custom_checks.steps(op), symbolic=True)
        text = fill(
            "operator.cpp.in", qualified=op.qualified, name=op.name, type=self.signature.type(), names=", ".join(self.names),
            argument_count=len(op.arguments), function=f"&{op.function}" if op.function else "nullptr", result_count=count,
            size_members=indent(members), checks=indent(checks), check_parameters=joined(f"[[maybe_unused]] {p}" for p in self.parameters),
            check_names=joined(self.names), result_tensors=", ".join(self._result(r) for r in op.results), like=self.first,
            values=", ".join(self._value(a) for a in op.arguments), reference=self._reference(), otherwise=self._otherwise(),
            returned=self._returned("results"), call_definition=definition["call"], device_definition=definition["device"],
            meta_definition=definition["meta"], cpu_definition=definition["cpu"], cpu_body=self._cpu(), autograd=self._autograd(),
        )  # fmt: skip
        return text + "".join(self._reroute(i, reroute) for i, reroute in enumerate(op.reroutes))

    def _returned(self, array):
        items = [f"{array}[{i}]" for i in range(len(self.op.results))]
        return items[0] if len(items) == 1 else f"{{{', '.join(items)}}}"

    # ---- checks and results ----

    def _result(self, result):
        leading = "sizes.leading" if "..." in result.shape else "{}"
        dims = ", ".join(dimensions(result, "sizes.")).replace("//", "/")
        return f"torch_backend::new_result({self.first}, {leading}, {{{dims}}}, {self._dtype_of(result)})"

    def _dtype_of(self, result):
        source = dtype_source(self.op, result)
        return f"{source}.scalar_type()" if source else aten_dtype(self.op.dtype_names(result.dtype)[0])

    # ---- the C function and its alternatives ----

    def _value(self, a):
        """Returns the argument as the IValue that CustomOp::run takes."""
        if a.kind == "Tensor":
            return a.name if a.strided else f"torch_backend::contiguous({a.name})"
        if a.kind == "Tensor[]":
            return f"torch_backend::contiguous({a.name})"
        if a.kind == "SymInt":
            return f"torch_backend::concrete({a.name})"
        if a.kind == "SymInt[]":
            return f"C10_AS_INTARRAYREF_SLOW({a.name})"
        if a.kind == "str":
            return f"torch_backend::text({a.name})"
        return a.name

    def _reference(self):
        if not self.op.reference:
            return ""
        lines = [self.signature.defn(name=f"reference_{self.op.name}") + " {"]
        names = names_of(self.op.arguments)
        for i, result in enumerate(self.op.results):
            place = self.op.where.at("reference").at(result.name)
            expression = Translator(place, names, self.ops, self.headers).translate(self.op.reference[result.name])
            lines += [f"  const at::Tensor {result.name} = ({expression}).to({self._dtype_of(result)}).contiguous();"]
            names = {**names, result.name: (result.name, "tensor")}
        returned = ", ".join(r.name for r in self.op.results)
        return "\n".join(["", *lines, f"  return {returned if len(self.op.results) == 1 else f'{{{returned}}}'};", "}", ""])

    def _otherwise(self):
        return f"return reference_{self.op.name}({', '.join(self.names)})" if self.op.reference else \
            f"op_{self.op.name}().refuse({{{', '.join(self.names_of_tensors())}}})"

    def names_of_tensors(self):
        return [f"torch_backend::optional({a.name})" if a.optional else a.name for a in self.op.arguments if a.is_tensor]

    def _cpu(self):
        if not self.op.reference:
            return f"  op_{self.op.name}().refuse({{{', '.join(self.names_of_tensors())}}});"
        return "\n".join([f"  Sizes_{self.op.name} sizes;", f'  check_{self.op.name}(CustomCheck("{self.op.qualified}"), sizes{joined(self.names)});',
                          f"  return reference_{self.op.name}({', '.join(self.names)});"])  # fmt: skip

    # ---- autograd ----

    def _autograd(self):
        op = self.op
        if not op.backward:
            return ""
        differentiable = [r for r in op.results if r.differentiable]
        gradient = {r.name: ("grad" if len(differentiable) == 1 and len(op.results) == 1 else f"grad_{r.name}") for r in differentiable}
        names = {**names_of(op.arguments, op.results), **{name: (name, "tensor") for name in gradient.values()}}
        translator = Translator(op.where.at("backward"), names, self.ops, self.headers)
        gradients = []
        for number, (targets, expression) in enumerate(op.backward):
            translator.where = op.where.at("backward").at(", ".join(targets))
            cpp = translator.translate(expression, results=len(targets))
            gradients += self._formula(number, targets, cpp)
        save, restore = self._saved(translator.used)
        restore += [f"const at::Tensor &{name} = grads[{[r.name for r in op.results].index(result)}];"
                    for result, name in gradient.items() if name in translator.used]  # fmt: skip
        fixed = [r.name for r in op.results if not r.differentiable]
        constant = [name for name in fixed if name in translator.used]
        if constant:  # a second derivative would ignore its dependence on the arguments
            restore[:0] = [f'torch_backend::refuse_second_derivative("{op.qualified}", "{constant[0]}");']
        if fixed:
            save += [f"ctx->mark_non_differentiable({{{', '.join(fixed)}}});"]
        count = len(op.results)
        outputs = f"const at::Tensor {op.results[0].name}" if count == 1 else f"const auto [{', '.join(r.name for r in op.results)}]"
        return fill(
            "function.cpp.in", name=op.name, parameters=joined(self.parameters), names=", ".join(self.names), outputs=outputs,
            save=indent(save, 4), results=", ".join(r.name for r in op.results), restore=indent(restore, 4),
            argument_count=len(op.arguments), gradients=indent(gradients, 4), returned=self._returned("results"),
            definition=self.signature.defn(name=f"autograd_{op.name}"),
        )  # fmt: skip

    def _formula(self, number, targets, cpp):
        """Returns the lines that fill the gradients of `targets`, if they are needed. An absent optional tensor has no
        number in needs_input_grad, so operators with one compute all gradients.
        """
        tensors = [a.name for a in self.op.arguments if a.is_tensor]
        places = [self.names.index(name) for name in targets]
        optional = {a.name for a in self.op.arguments if a.is_tensor and a.optional}
        guards = [f'if (ctx->saved_data["{name} given"].toBool()) ' if name in optional else "" for name in targets]
        if len(targets) == 1:
            lines = [f"{guards[0]}gradients[{places[0]}] = {cpp};"]
        else:
            lines = [f"auto formula_{number} = {cpp};"]
            lines += [f"{guard}gradients[{place}] = std::get<{i}>(formula_{number});" for i, (guard, place) in enumerate(zip(guards, places))]
        if optional:
            return lines
        wanted = " || ".join(f"ctx->needs_input_grad({tensors.index(name)})" for name in targets)
        return [f"if ({wanted}) {{", *(f"  {line}" for line in lines), "}"]

    def _saved(self, used):
        """Returns the lines that save the values that the formulas use, and those that restore them."""
        op, save, restore = self.op, [], []
        tensors = [a.name for a in op.arguments if a.is_tensor and a.name in used] + [r.name for r in op.results if r.name in used]
        optional = {a.name for a in op.arguments if a.is_tensor and a.optional}
        save += [f'ctx->saved_data["{name} given"] = torch_backend::optional({name}).defined();' for name in sorted(optional)]
        if tensors:
            save += [f"ctx->save_for_backward({{{', '.join(f'torch_backend::optional({n})' if n in optional else n for n in tensors)}}});"]
            restore += ["const Variables saved = ctx->get_saved_variables();"]
        for i, name in enumerate(tensors):
            kind = f"const std::optional<at::Tensor> {name} = saved[{i}]" if name in optional else f"const at::Tensor &{name} = saved[{i}]"
            restore += [f"{kind};"]
        for a in op.arguments:
            if not a.is_tensor and a.name in used:
                save += [f'ctx->saved_data["{a.name}"] = {_saved_value(a)};']
                restore += [f'const auto {a.name} = ctx->saved_data["{a.name}"].{_getter(a)};']
        return save, restore

    # ---- reroutes ----

    def _reroute(self, index, reroute):
        theirs = [a.name for a in reroute.schema.arguments.flat_all]
        conditions = []
        for name, value in reroute.when.items():
            conditions += [f"if (!({_equals(f'arguments[{theirs.index(name)}]', value)})) return false;"]
        bindings = []
        for a in self.op.arguments:
            if a.name in reroute.arguments:
                source = f"arguments[{theirs.index(reroute.arguments[a.name])}]"
                bindings += [f"const auto {a.name} = {source}.{_getter(a)};"]
            else:
                bindings += [f"const {_cpp_type(a)} {a.name} = {_literal(a.default)};"]
        return fill(
            "reroute.cpp.in", aten=f"aten::{reroute.aten}", qualified=self.op.qualified, index=f"{self.op.name}_{index}", count=len(theirs),
            conditions=indent(conditions), bindings=indent(bindings), name=self.op.name, check_names=joined(self.names),
            result_count=len(self.op.results),
        )  # fmt: skip


_GETTERS = {"Tensor": ("toTensor()", "at::Tensor"), "int": ("toInt()", "int64_t"), "SymInt": ("toSymInt()", "c10::SymInt"),
            "float": ("toDouble()", "double"), "bool": ("toBool()", "bool"), "str": ("toStringView()", "c10::string_view"),
            "Scalar": ("toScalar()", "at::Scalar"), "int[]": ("toIntVector()", "std::vector<int64_t>"),
            "SymInt[]": ("toSymIntVector()", "std::vector<c10::SymInt>"), "float[]": ("toDoubleVector()", "std::vector<double>")}  # fmt: skip


def _cpp_type(a):
    kind = _GETTERS[a.kind][1]
    return f"std::optional<{kind}>" if a.optional else kind


def _getter(a):
    return f"toOptional<{_GETTERS[a.kind][1]}>()" if a.optional else _GETTERS[a.kind][0]


def _saved_value(a):
    return f"torch_backend::text({a.name})" if a.kind == "str" else f"c10::IValue({a.name})"


def _literal(default):
    named = {"True": "true", "False": "false", "None": "std::nullopt"}
    text = str(default)
    return named.get(text, '"' + text.strip("'\"") + '"' if text[:1] in "'\"" else text)


def _equals(value, wanted):
    """Returns the test of an argument against a value of the list, whose type matches."""
    if wanted is None:
        return f"{value}.isNone()"
    if isinstance(wanted, str):
        return f'{value}.toStringView() == "{wanted}"'
    if isinstance(wanted, bool):
        return f"{value}.toBool() == {str(wanted).lower()}"
    return f"{value}.toScalar().toDouble() == {wanted!r}"
