"""Writes the C++ files: shards of operators, the registrations that the sources of csrc/aten include, the signatures."""
from __future__ import annotations

import re

import aten_functions
import aten_kernels
from aten_model import KernelOperator
from aten_text import BANNER, aten_op, function_name, wrapped
from aten_types import kernel_type, operator_class

# Files that compile in 10 to 15 seconds: with fewer, the build waits for the last ones; with more, the same templates
# are compiled more often.
OPERATORS_PER_SHARD = 70
SIGNATURES_PER_FILE = 140

# Headers of prepare that the text of operators needs. They come first, because some headers of ATen use
# c10/util/Exception.h without including it.
_KERNEL_HEADERS = ("register.h", "overload.h", "structured_calls.h", "structured_iterator.h")
_FUNCTION_HEADERS = ("register.h", "overload.h")


def shards(model):
    """Divides the operators that no source file includes into shards; one that forwards calls stays with those before
    it.
    """
    result = [[]]
    for operator in (*model.kernels, *(operator for operator in model.functions if operator.entry.source is None)):
        if len(result[-1]) >= OPERATORS_PER_SHARD and not getattr(operator, "absent", None):
            result.append([])
        result[-1].append(operator)
    return result


def shard(operators, emitter, natives):
    """Returns the text of one shard."""
    ours = [f"aten/prepare/{name}" for name in _KERNEL_HEADERS]
    ours += sorted({f"aten/{operator.entry.subject}/conditions.h" for operator in operators if _names_conditions(operator)})
    ours += ["aten/pointwise/meta.h"] if any(isinstance(operator, KernelOperator) and operator.entry.meta for operator in operators) else []
    return _text(operators, ours, emitter, natives, "registered_natively")


def included(operators, emitter, natives):
    """Returns the text that a source file of csrc/aten includes at its end."""
    variable = re.sub(r"\W", "_", operators[0].entry.source[:-4])
    return _text(operators, [f"aten/prepare/{name}" for name in _FUNCTION_HEADERS], emitter, natives, f"registered_{variable}")


def _names_conditions(operator):
    return bool(operator.entry.precomputed) or len(operator.entry.fallback_if) > 1 or getattr(operator, "reduces", False)


def _text(operators, ours, emitter, natives, variable):
    headers = sorted(set().union(*(_headers(operator, natives) for operator in operators)))
    lines = [BANNER, *(f'#include "{name}"' for name in (*ours, "aten/signatures.h", "hal_op_ids.h")), ""]
    lines += [*(f"#include <{header}>" for header in headers), "", "namespace torch_backend {", "namespace {", ""]
    for operator in operators:
        lines += [f"// ---- {operator.name}: {_place(operator.entry)} ----", *_operator(operator, emitter), ""]
    lines += [f"[[maybe_unused]] const bool {variable} = [] {{"]
    for operator in operators:
        lines += [f"  register_kernel<{operator_class(native)}>({aten_op(native)}, {function_name(native)});" for native in operator.natives]
    lines += [*aten_functions.stubs(operators), "  return true;", "}();", "", "}  // namespace", "}  // namespace torch_backend"]
    return "\n".join(part for line in lines for part in wrapped(line)) + "\n"


def _place(entry):
    return f"codegen/operators/{entry.place.path.name}"


def _operator(operator, emitter):
    return aten_kernels.operator(operator) if isinstance(operator, KernelOperator) else emitter.operator(operator)


def _headers(operator, natives):
    if isinstance(operator, KernelOperator):
        return aten_kernels.headers(operator)
    called = re.match(r"at::_ops::(\w+)::", operator.function)
    further = {f"ATen/ops/{natives.root_of(called[1])}_ops.h"} if called else set()
    return aten_functions.headers(operator) | further


# ---- signatures ----


def signatures(natives):
    """Returns the texts of aten/signatures.h and of the files that compile what it declares: a signature's templates are compiled once."""
    types = sorted({kernel_type(native) for native in natives})
    parts = [types[i : i + SIGNATURES_PER_FILE] for i in range(0, len(types), SIGNATURES_PER_FILE)]
    return _instances(types, declared=True), [_instances(part, declared=False) for part in parts]


def _instances(types, declared):
    """The templates that are compiled once per signature."""
    lines = [BANNER, *(["#pragma once", ""] if declared else []), '#include "aten/prepare/register.h"',
             '#include "aten/prepare/fallback_call.h"', "", "namespace torch_backend {", ""]  # fmt: skip
    template = "extern template" if declared else "template"
    for signature_type in types:
        lines += [f"{template} void register_function<{signature_type}>(const AtenOp &, Kernel<{signature_type}>::Function);",
                  f"{template} struct FallbackCall<{signature_type}>;"]  # fmt: skip
    return "\n".join([*lines, "", "}  // namespace torch_backend", ""])
