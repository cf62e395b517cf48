"""Writes the C++ of operators that a portable kernel computes: the general path after a meta function, and one short
function per overload, with the fast path of element-wise operators.
"""
from __future__ import annotations

from aten_model import REDUCTIONS, Number, call, fast_dtypes, kernel_dtypes
from aten_text import aten_op, comment, declared, declared_aten_op, fallback, function_name, head, names, returned
from aten_types import arguments, is_operand, is_optional, is_scalar, is_tensor, written
from kernel_operands import operands_of
from torchgen.api import meta, structured
from torchgen.api.translate import translate
from torchgen.context import native_function_manager
from torchgen.model import SchemaKind


def operator(op):
    """Returns the lines of a KernelOperator: its names, its fast path, its general path, its overloads."""
    lines = [line for native in op.natives for line in comment(str(native.func))] + [declared_aten_op(native) for native in op.natives]
    if _has_fast_path(op):
        lines += [f"constexpr Elementwise fast_{op.identifier}{_fast(op, op.entry)};"]
    lines += ["", *_general(op)]
    for native in op.natives:
        lines += ["", *_overload(op, native)]
    return lines


def headers(op):
    """Returns the headers of ATen that the text of an operator needs."""
    kinds = ("meta", "ops") if op.group.structured else ("ops",)
    return {f"ATen/ops/{op.group.root_name}_{kind}.h" for kind in kinds}


# ---- arguments ----


def _is_computed(argument):
    """Returns whether a number has to be converted to a Scalar."""
    return isinstance(argument, Number) or not (is_operand(argument) or is_scalar(argument))


def _expression(argument):
    return argument.expression if isinstance(argument, Number) else argument.name


def _kernel_argument(entry, argument):
    """An argument of the general path."""
    if _is_computed(argument):
        return f"number(number_{argument.name})"
    may_be_number = argument.name in entry.scalar_args
    if is_scalar(argument):
        return f"rounded_number({argument.name})" if may_be_number else f"number({argument.name})"
    name = f"*{argument.name}" if is_optional(argument) else argument.name
    if not may_be_number:
        return f"operand({name})"
    return f"operand_or_precise_number({name})" if entry.opmath_scalar else f"operand_or_number({name})"


def _fast_argument(entry, argument):
    """An argument of the fast path."""
    if _is_computed(argument):
        return f"c10::Scalar({_expression(argument)})"
    name = f"*{argument.name}" if is_operand(argument) and is_optional(argument) else argument.name
    return f"OrNumber{{{name}}}" if argument.name in entry.scalar_args and is_tensor(argument) else name


def _optional_operands(op):
    return [a.name for a in op.arguments if not isinstance(a, Number) and is_operand(a) and is_optional(a)]


# ---- the general path ----


def _general(op):
    """Writes the general path: a meta function allocates `outputs`, then the kernel runs."""
    parameters = ", ".join(["Outputs &outputs", *(declared(a) for a in arguments(op.functional))])
    lines = [f"bool general_{op.identifier}({parameters}) {{"]
    lines += [f"  if (!{name}.has_value()) return false;" for name in _optional_operands(op)]
    lines += [f"  const c10::Scalar number_{a.name}({_expression(a)});" for a in _computed_numbers(op)]
    lines += [f"  const KernelArgument arguments[] = {{{', '.join(_kernel_argument(op.entry, a) for a in _listed(op))}}};",
              f"  if (!{_precheck(op)}) return false;"]  # fmt: skip
    lines += [] if op.entry.is_elementwise else ["  check_one_device(outputs, arguments);"]
    lines += [*_meta(op), *_vendor_call(op), *_calls_for_values(op)]
    return [*lines, "  return false;" if op.exhaustive else f"  return {_kernel_call(op)};", "}"]


def _listed(op):
    """Returns the arguments of the call that are written here; structured_calls.h adds the others."""
    all_of_them = op.entry.is_elementwise or op.entry.family == "gemm"
    return op.arguments if all_of_them else [a for a in op.arguments if is_tensor(a)]


def _computed_numbers(op):
    """Returns the numbers, of the operator and of those that may replace it, that are not Scalars of ATen."""
    found = {}
    for listed in ((op.arguments if op.entry.is_elementwise else ()), *(case.arguments for case in op.cases)):
        found.update({a.name: a for a in listed if _is_computed(a)})
    return found.values()


def _takes_bool(op):
    """Operands of any dtype are cast to bool, which is exact."""
    return op.entry.kernel.dtypes == ("bool",)


def _precheck(op):
    """The condition before anything is allocated."""
    return f"is_device_tensor({op.arguments[0].name})" if _takes_bool(op) else f"may_run_natively({op.entry.id}, arguments)"


def _meta(op):
    """Writes the meta function: ATen's own, or a class of csrc/aten/pointwise/meta.h if ATen has none."""
    if op.entry.meta:
        operands = ", ".join(a.name for a in op.arguments if not isinstance(a, Number) and is_operand(a))
        return [f"  Structured<meta::{op.entry.meta}> structured(outputs);", f"  structured.meta({operands});"]
    with native_function_manager(op.functional):
        given = translate(arguments(op.functional), structured.meta_arguments(op.group), method=False)
    lines = [f"  Structured<at::meta::structured_{meta.name(op.group)}> structured(outputs);",
             f"  structured.meta({', '.join(each.expr for each in given)});"]  # fmt: skip
    format_of = operands_of(op.entry).memory_format_of
    return [*lines, *([f"  outputs.lay_out({format_of}.suggest_memory_format());"] if format_of else [])]


def _vendor_call(op):
    """Calls the vendor's operator with the caller's arguments. The calls of element-wise operators do this themselves,
    with operands in the result's shape (structured_iterator.h).
    """
    if op.entry.is_elementwise:
        return []
    listed = ", ".join(f"argument({_vendor_argument(op, name)})" for name in (*op.entry.args, *op.entry.vendor_args))
    results = ", ".join(f"outputs[{i}]" for i in range(len(op.functional.func.returns)))
    return ["  Declined declined;", f"  if (has_vendor_op(outputs[0], {op.entry.id})) {{",
            f"    const at::Tensor results[] = {{{results}}};", f"    if (call_vendor_op({op.entry.id}, {{{listed}}}, results)) return true;",
            f"    declined.set({op.entry.id});", "  }"]  # fmt: skip


def _vendor_argument(op, name):
    """An argument as a vendor's operator receives it: reduced dimensions are a list or none, however many the operator takes."""
    if op.entry.family in REDUCTIONS and name == "dim":
        return f"dimensions({name})" if any(a.name == name for a in op.arguments) else "c10::OptionalIntArrayRef()"
    return name


def _result_is_bool(entry):
    return "true" if entry.kernel.result_dtype == "bool" else "false"


def _kernel_call(op):
    """The call of structured_iterator.h or structured_calls.h that runs the kernel."""
    number, family = op.entry.id, op.entry.family
    if op.entry.is_elementwise:
        return f"run_elementwise({number}, structured.maybe_common_dtype(), {_result_is_bool(op.entry)}, outputs, arguments)"
    if family in REDUCTIONS:
        return _reduction(op)
    if family in ("softmax", "softmax_backward"):
        return f"run_softmax({number}, outputs, arguments, {op.arguments[-1].name})"
    if family == "gemm":
        return f"run_matrix_product({number}, outputs, arguments)"
    listed = ", ".join(f"argument({name})" for name in op.entry.args)
    return f"run_kernel({number}, {{{listed}}}, outputs, {len(op.functional.func.returns)})"


def _reduction(op):
    """The call of run_reduction: computing dtype, dimensions, the operator's number."""
    operand = op.arguments[0].name
    others = [a.name for a in op.arguments[1:]]
    computing = f"{operand}.scalar_type()" if op.entry.family in ("reduce_index", "aminmax") else "outputs[0].scalar_type()"
    if _takes_bool(op):
        computing = "c10::ScalarType::Bool"
    dims = "dim" if "dim" in others else "c10::OptionalIntArrayRef()"
    function = "listed_dims" if _takes_bool(op) and op.name.endswith(".dims") else "reduced_dims"
    numbers = "".join(f", {name}" for name in others if name != "dim")
    results = len(op.functional.func.returns)
    return f"run_reduction({op.entry.id}, {computing}, outputs, {results}, {operand}, {function}({operand}.dim(), {dims}){numbers})"


def _calls_for_values(op):
    for case in op.cases:
        listed = ", ".join(_kernel_argument(case.entry, a) for a in case.arguments)
        called = f"{case.entry.id}, structured.maybe_common_dtype(), {_result_is_bool(case.entry)}, outputs"
        yield f"  if ({case.condition}) return run_elementwise({called}, {{{listed}}});"


# ---- the fast path ----


def _has_fast_path(op):
    return op.entry.is_elementwise and not op.entry.kernel.for_size


def _fast(op, entry):
    """Writes the fast path with the kernel of an entry, its own or that of an operator that replaces it, in the dtypes
    of both.
    """
    dtypes = fast_dtypes(op) & kernel_dtypes(entry)
    return f"{{{entry.id}, UINT64_C({dtypes:#x}), {_result_is_bool(entry)}}}"


def _fast_calls(op, native):
    """Writes first the calls for values that select another operator, last those with a number as the first operand."""
    calls = [(f"{case.condition} && ", f"Elementwise{_fast(op, case.entry)}",
              ", ".join(_fast_argument(case.entry, a) for a in case.arguments)) for case in op.cases]  # fmt: skip
    if not op.exhaustive:
        present = "".join(f"{name}.has_value() && " for name in _optional_operands(op))
        calls += [(present, f"fast_{op.identifier}", ", ".join(_fast_argument(op.entry, a) for a in op.arguments))]
    if op.entry.is_commutative:
        first, second = (a.name for a in op.arguments)
        calls += [(f"{first}.is_cpu() && ", f"fast_{op.identifier}", f"{second}, OrNumber{{{first}}}")]
    for condition, fast, listed in calls:
        if native.func.kind() is SchemaKind.functional:
            yield f"  if ({condition}{fast}.make(result, {listed})) return result;"
        else:
            yield f"  if ({condition}{fast}.write({written(native)[0]}, {listed})) {returned(native)}"


# ---- overloads ----


def _overload(op, native):
    """The function of an overload: fast path, general path, fallback."""
    given = written(native)
    lines = [f"{head(native)} {{", *_other_operator(op, native), *_reduced(op, native)]
    if op.entry.fallback_if:
        function, *listed = op.entry.fallback_if
        lines += [f"  if ({call(function, listed)}) {fallback(native)}"]
    if _has_fast_path(op):
        lines += [] if given else ["  at::Tensor result;"]
        lines += _fast_calls(op, native)
    kind = {SchemaKind.out: "Form::kOut", SchemaKind.inplace: "Form::kInplace"}.get(native.func.kind())
    lines += [f"  Outputs outputs({', '.join([kind, *given])});" if kind else "  Outputs outputs;"]
    inputs = ", ".join(names(op.functional))
    return [*lines, f"  if (general_{op.identifier}(outputs, {inputs})) {returned(native)}", f"  {fallback(native)}", "}"]


def _is_number(op, name):
    return any(is_scalar(a) for a in op.arguments if not isinstance(a, Number) and a.name == name)


def _reduced(op, native):
    """A loss: its elements, then their mean or sum."""
    if not op.reduces:
        return []
    given = written(native)
    elements = ", ".join("at::Reduction::None" if name == "reduction" else name for name in names(native) if name not in given)
    into = f"_into({given[0]}, " if given else "("
    return [f"  if (is_reduced(reduction)) return reduced{into}{function_name(op.functional)}({aten_op(op.functional)}, {elements}), reduction);"]


def _other_operator(op, native):
    """Forwards a call without an optional operand or number to the operator that has none. That operator's meta function
    also promotes the result by a complex number, so calls with one are not forwarded.
    """
    lines = []
    for absent, other in op.absent.items():
        optional = [name for name in op.absent if name != absent]
        present = "".join(f" && {name}.has_value()" for name in optional)
        present += "".join(f" && !{name}->isComplex()" for name in optional if _is_number(op, name))
        listed = ", ".join(f"*{name}" if name in optional else name for name in names(native) if name != absent)
        overload = next((each for each in other.natives if each.func.kind() is native.func.kind()), None)
        if overload:
            lines += [f"  if (!{absent}.has_value(){present}) return {function_name(overload)}({aten_op(overload)}, {listed});"]
    return lines
