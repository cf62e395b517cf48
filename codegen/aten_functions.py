"""Writes the C++ of operators that a function computes: of csrc/aten, or of ATen. Each overload is one readable
function that checks the operands' devices, calls the vendor's operator, calls the function, and calls the fallback
if the device has no kernel.
"""
from __future__ import annotations

import re

from aten_text import aten_op, comment, declared, declared_aten_op, fallback, head, names, returned, tidy
from aten_types import arguments, has_tensors, makes_results, operator_name, signature, written
from torchgen.api import meta, structured
from torchgen.api.translate import translate
from torchgen.context import native_function_manager
from torchgen.model import DeviceCheckType, SchemaKind


def qualified(function):
    """Returns a function's name with its namespace, because argument-dependent lookup would also find ATen's function
    of that name.
    """
    return function if "::" in re.match(r"[\w:]+", function)[0] else f"torch_backend::{function}"


class Emitter:
    """Writes operators. `declines(operator)` returns whether the function of a source file may report that there is no
    kernel.
    """

    def __init__(self, declines):
        self._declines = declines

    def operator(self, operator):
        """Returns the lines of an operator: its names, its functions."""
        lines = [line for native in operator.natives for line in comment(str(native.func))]
        lines += [declared_aten_op(native) for native in operator.natives]
        if operator.entry.number is None:
            return [*lines, *(line for native in operator.natives for line in self._plain(operator, native))]
        lines += _vendor_op(operator)
        if not operator.shares_function:
            (native,) = operator.natives
            return [*lines, "", *self._overload(operator, native)]
        lines += ["", *self._shared(operator)]
        for native in operator.natives:
            lines += ["", *_form(operator, native)]
        return lines

    # ---- operators that are only registered ----

    def _plain(self, operator, native):
        return [head(native).replace("const AtenOp &op", "const AtenOp &") + " {", f"  return {qualified(operator.function)}({', '.join(names(native))});", "}"]

    # ---- a function with the arguments of its overload ----

    def _overload(self, operator, native):
        lines = [f"{head(native)} {{", *_devices(operator, arguments(native))]
        lines += _vendor_call(operator, native)
        composed = self._is_composed(operator)
        done = [f"count_composed_call({operator.entry.id});"] if composed else []
        called = f"{qualified(operator.function)}({', '.join(names(native))})"
        lines += [f"  if (!hal_op_enabled({operator.entry.id})) {fallback(native)}"] if composed else []
        lines += ["  try {", *(f"    {line}" for line in self._result(operator, native, called, done)), "  } catch (...) {",
                  "    decline_or_rethrow(op);", "  }"]
        return [*lines, f"  {fallback(native)}", "}"]

    def _result(self, operator, native, called, done):
        with native_function_manager(native):
            result = tidy(signature(native).returns_type().cpp_type())
        writes = bool(written(native)) or not native.func.returns
        if self._declines(operator) and writes:
            return [f"if ({called}) {{", *(f"  {line}" for line in done), f"  {returned(native)}", "}"]
        if self._declines(operator):
            return [f"if (std::optional<{result}> result = {called}) {{", *(f"  {line}" for line in done), "  return *std::move(result);", "}"]
        if writes:
            return [f"{called};", *done, returned(native)]
        return [f"{result} result = {called};", *done, "return result;"] if done else [f"return {called};"]

    def _is_composed(self, operator):
        """Returns whether the report counts a call as composed: a call of other operators, which is disabled by its own
        number.
        """
        return operator.entry.kernel is None and (operator.is_atens or operator.shares_function or self._declines(operator))

    # ---- one function for all overloads ----

    def _shared(self, operator):
        given = arguments(operator.functional)
        if not makes_results(operator.functional):
            given = [argument for argument in given if argument.name not in written(operator.functional)]
        called = ", ".join(argument.name for argument in given)
        lines = [f"bool {compute_name(operator)}({', '.join(['const AtenOp &op', 'Outputs &outputs', *(declared(a) for a in given)])}) {{"]
        lines += _devices(operator, given, ["outputs"])
        checked = [*(a.name for a in given if has_tensors(a.argument) and _is_checked(a)), "outputs"]
        lines += ["  Declined declined;"] if operator.indices is not None else []
        lines += [] if operator.is_structured else _shared_vendor_call(operator, given)
        lines += [f"  if (!is_kernel_operand({name})) return false;" for name in checked]
        if operator.is_structured:
            lines += [*_meta(operator, given), *_shared_vendor_call(operator, given)]
        composed = self._is_composed(operator)
        lines += [f"  if (!hal_op_enabled({operator.entry.id})) return false;"] if composed else []
        count = len(operator.functional.func.returns)
        results = ", ".join(f"outputs[{i}]" for i in range(count))
        lines += ["  try {"]
        if operator.is_atens:
            lines += [f"    structured.impl({', '.join([*_meta_arguments(operator, given), results])});"]
        else:
            lines += [f"    if (!{qualified(operator.function)}(outputs, {called})) return false;"]
        lines += [f"    count_composed_call({operator.entry.id});"] if composed else []
        return [*lines, "    return true;", "  } catch (...) {", "    decline_or_rethrow(op);", "  }", "  return false;", "}"]


def compute_name(operator):
    return f"compute_{operator.identifier}"


def _form(operator, native):
    """Writes one overload of an operator whose overloads share a function."""
    kind = {SchemaKind.out: "Form::kOut", SchemaKind.inplace: "Form::kInplace"}.get(native.func.kind())
    given = written(native)
    inputs = [name for name in names(native) if name not in given or native.func.kind() is SchemaKind.inplace]
    lines = [f"{head(native)} {{", f"  Outputs outputs({', '.join([kind, *given])});" if kind else "  Outputs outputs;"]
    lines += [f"  if ({compute_name(operator)}({', '.join(['op', 'outputs', *inputs])})) {returned(native)}"]
    return [*lines, f"  {fallback(native)}", "}"]


# ---- devices ----


def _is_checked(argument):
    """Returns whether is_kernel_operand (overload.h) has an overload for the argument: all but lists of optional
    tensors and TensorList.
    """
    kind = str(argument.argument.type)
    return kind in ("Tensor", "Tensor?") or argument.nctype.type.cpp_type() == "const at::ITensorListRef &"


def _devices(operator, given, further=()):
    """Writes the check that all operands are on one device, which becomes the current one."""
    natives = operator.natives[0]
    devices = "Devices::kOurs" if natives.device_check is DeviceCheckType.NoCheck and not operator.is_structured else ""
    operands = [*(a.name for a in given if has_tensors(a.argument)), *further]
    lines = [f"  OperandDevice operands({devices});" if devices else "  OperandDevice operands;"]
    lines += [f"  operands.add({name});" for name in operands]
    return [*lines, "  const CurrentDevice current(operands.device());"]


# ---- the vendor's operator ----


def vendor_op(operator):
    return f"vendor_{operator.identifier}"


def _kind(operator, native):
    if not native.func.returns and operator.mutated(native):
        return "kWrites"
    return {SchemaKind.inplace: "kInplace", SchemaKind.out: "kOut"}.get(native.func.kind(), "kMakes")


def _vendor_op(operator):
    """Writes the vendor's operator: its number, the overload whose meta function allocates the results, the arguments
    in the frozen order.
    """
    if operator.indices is None:
        return []
    native = operator.natives[0]
    kind = "kMakes" if operator.shares_function else _kind(operator, native)
    mutated = () if operator.shares_function else operator.mutated(native)
    lines, name = _functional(operator, kind)
    parts = [operator.entry.id, name, f"OverloadKind::{kind}", _braced(operator.indices), *([_braced(mutated)] if mutated else [])]
    return [*lines, f"const VendorOp {vendor_op(operator)}{{{', '.join(parts)}}};"]


def _functional(operator, kind):
    """Returns (declaration, name) of the overload whose meta function allocates the results."""
    native = operator.natives[0]
    if kind == "kMakes" and not operator.shares_function:
        return [], f"&{aten_op(native)}"
    if any(native is operator.functional for native in operator.natives) and makes_results(operator.functional):
        return [], f"&{aten_op(operator.functional)}"
    variable = f"functional_{operator.identifier}"
    name, _, overload = operator.entry.name.partition(".")
    text = operator_name(operator.functional) if makes_results(operator.functional) else f'"aten::{name}", "{overload}"'
    return [f"const AtenOp {variable}({text});"], f"&{variable}"


def _braced(indices):
    return f"{{{', '.join(map(str, indices))}}}"


def _vendor_call(operator, native):
    """Calls the vendor's operator with the arguments of one overload."""
    if operator.indices is None:
        return []
    lines = ["  Declined declined;", f"  if (operands.has_vendor_op({operator.entry.id})) {{"]
    lines += [f"    const Argument arguments[] = {{{', '.join(f'argument({name})' for name in names(native))}}};"]
    kind = _kind(operator, native)
    made = [f"append(results, {qualified(operator.entry.meta)}({', '.join(names(native))}));"] if operator.entry.meta and kind == "kMakes" else []
    if kind == "kMakes":
        values = [f"std::move(results[{i}])" for i in range(len(native.func.returns))]
        done = f"return {values[0]};" if len(values) == 1 else f"return {{{', '.join(values)}}};"
    else:
        done = returned(native)
    called = ["Results results;", *made, f"if (call_vendor_op({vendor_op(operator)}, operands.device(), arguments, results)) {done}"]
    lines += _unless_declined(operator, called) if made else [f"    {line}" for line in called]
    return [*lines, f"    declined.set({operator.entry.id});", "  }"]


def _unless_declined(operator, lines):
    """Writes lines that allocate results, for calls that the plugin is not known to decline."""
    condition = f"    if (!is_declined({vendor_op(operator)}, operands.device(), arguments)) {{"
    return [condition, *(f"      {line}" for line in lines), "    }"]


def _shared_vendor_call(operator, given):
    """Calls the vendor's operator with the arguments of the functional overload, for outputs."""
    if operator.indices is None:
        return []
    number, count = operator.entry.id, len(operator.functional.func.returns)
    condition = f"has_vendor_op(outputs[0], {number})" if operator.is_structured else f"operands.has_vendor_op({number})"
    lines = [f"  if ({condition}) {{", f"    const Argument arguments[] = {{{', '.join(f'argument({a.name})' for a in given)}}};"]
    if operator.is_structured:
        done = f"fill_outputs({vendor_op(operator)}, arguments, outputs, {count})"
    elif operator.entry.meta:
        made = ["Results made;", f"append(made, {qualified(operator.entry.meta)}({', '.join(a.name for a in given)}));",
                f"if (fill_made({vendor_op(operator)}, operands.device(), arguments, outputs, std::move(made))) return true;"]
        return [*lines, *_unless_declined(operator, made), f"    declined.set({number});", "  }"]
    else:
        done = f"make_outputs({vendor_op(operator)}, operands.device(), arguments, outputs, {count})"
    return [*lines, f"    if ({done}) return true;", f"    declined.set({number});", "  }"]


# ---- the meta function ----


def _meta(operator, given):
    classname = f"at::meta::structured_{meta.name(operator.group)}"
    if operator.is_atens:
        classname = operator.function
    return [f"  Structured<{classname}> structured(outputs);", f"  structured.meta({', '.join(_meta_arguments(operator, given))});"]


def _meta_arguments(operator, given):
    with native_function_manager(operator.functional):
        return [each.expr for each in translate(given, structured.meta_arguments(operator.group), method=False)]




def stubs(operators):
    """The lines that register the device's kernels for DispatchStubs."""
    served = {stub: kernel for operator in operators for stub, kernel in operator.entry.stubs.items()}
    return [f"  register_stub(at::native::{stub}, {kernel});" for stub, kernel in served.items()]


def headers(operator):
    """The headers of ATen that the text of an operator needs."""
    kinds = ["ops", *(["meta"] if operator.is_structured else []), *(["native"] if operator.is_atens else [])]
    return {f"ATen/ops/{native.root_name}_{kind}.h" for native in operator.natives for kind in kinds}
