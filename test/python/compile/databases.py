"""The modules and operators of torch's test databases as functions of tensors, to compare devices with the CPU."""

import copy
import functools
import itertools
from typing import Any, Callable, NamedTuple

import torch
from leaves import to
from op_database import op_db
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

# Entries that cannot be compared with the CPU, by reason. These lists may only shrink.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint", "randint_like", "randn",
          "randn_like", "uniform", "nn.functional.rrelu", "nn.functional.scaled_dot_product_attention", "nn.functional.alpha_dropout",
          "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"}  # fmt: skip
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# Vectors have an arbitrary sign, and gradients depend on it.
ARBITRARY = {"linalg.svd", "svd", "pca_lowrank", "svd_lowrank"}
# The operand with the indices is a tensor of the CPU; CUDA also refuses the samples.
ON_THE_HOST = {"tensor_split"}
# The sample is a view whose storage is larger than its elements; copies to a device have no such storage.
LARGER_STORAGE = {"as_strided.partial_views"}
EXCEPTIONS = RANDOM | UNINITIALIZED | ARBITRARY | ON_THE_HOST | LARGER_STORAGE

MOST_SAMPLES = 100  # of an entry, from which some are chosen


class Case(NamedTuple):
    """A function of `arguments`; make(place, dtype) returns it for a device, with buffers of that dtype."""

    name: str
    make: Callable[[Any, torch.dtype], Callable]
    arguments: tuple


def spread(samples, count):
    """Returns `count` samples at equal distances; the first is one of them."""
    samples = list(samples)
    return list(enumerate(samples))[:: max(1, len(samples) // count)][:count]


def _module_case(name, module, inputs):
    def make(place, dtype):
        moved = copy.deepcopy(module).to(place, dtype)
        buffers = {name: buffer for name, buffer in moved.named_buffers() if buffer is not None}

        def call(args, kwargs, parameters):
            torch.manual_seed(0)
            return functional_call(moved, {**buffers, **parameters}, args, kwargs)

        return call

    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return Case(name, make, (tuple(inputs.args), dict(inputs.kwargs), parameters))


@functools.lru_cache(maxsize=None)
def module_cases(dtype, count):
    """Returns cases of all modules in training and, where that differs, in evaluation."""
    cases = []
    for info in module_db:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            torch.manual_seed(0)
            samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
            for number, sample in spread((sample for sample in samples if sample.forward_input is not None), count):
                module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(training).to(dtype)
                if not any(isinstance(x, torch.nn.parameter.UninitializedTensorMixin) for x in module.parameters()):
                    cases.append(_module_case(f"{info.name}, training={training}, sample {number}", module, sample.forward_input))
    return cases


def _operator_case(name, info, sample):
    def make(place, dtype):
        def call(args, kwargs):
            torch.manual_seed(0)
            kwargs = {name: torch.device(place) if name == "device" else value for name, value in kwargs.items()}
            return info.op(*args, **kwargs)

        return call

    return Case(name, make, ((sample.input, *sample.args), dict(sample.kwargs)))


_operator_cases = {}


def _cases_of(info, dtype, count):
    torch.manual_seed(0)
    samples = itertools.islice(info.sample_inputs("cpu", dtype), 1 if count == 1 else MOST_SAMPLES)
    return [_operator_case(f"{info.full_name}, sample {number}", info, sample) for number, sample in spread(samples, count)]


def operator_cases(dtype, count, wanted):
    """Yields the cases of the operators of which wanted(entry of the operator database) is true."""
    for info in op_db:
        if {info.name, info.full_name} & EXCEPTIONS or dtype not in info.supported_dtypes("cpu") or "jiterator" in info.name:
            continue
        if wanted(info):
            key = info.full_name, dtype, count
            if key not in _operator_cases:
                _operator_cases[key] = _cases_of(info, dtype, count)
            yield from _operator_cases[key]


# ---- comparison ----
def detached(tree):
    return pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, tree)


def in_double(tree):
    """Returns a tree with its floating and complex tensors in double precision."""

    def widen(x):
        if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()):
            return x.detach().to(torch.complex128 if x.is_complex() else torch.float64).requires_grad_(x.requires_grad)
        return torch.float64 if x is torch.float32 else x

    return pytree.tree_map(widen, tree)


def error_of(results, reference):
    """Returns the largest error of a result, relative to the largest number of its tensor, or to 1."""
    errors = [0.0]
    for x, y in zip(pytree.tree_leaves(results), pytree.tree_leaves(reference), strict=True):
        if isinstance(x, torch.Tensor) and x.numel():
            x, y = (z.to(torch.complex128 if y.is_complex() else torch.float64) for z in (x, y))
            alike = (x == y) | (x.isnan() & y.isnan())
            error = (x - y).abs().masked_fill(alike, 0) / y.abs().nan_to_num(0, 0, 0).max().clamp(min=1)
            errors.append(error.nan_to_num(torch.inf).max().item())
    return max(errors)


def difference(ours, expected, reference):
    """Returns the difference as a text, or None. If there is a difference, reference() returns the result in double
    precision."""
    try:
        torch.testing.assert_close(ours, expected, equal_nan=True)
        return None
    except AssertionError as error:
        text = str(error)
    metas = [[(x.shape, x.dtype) for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)] for tree in (ours, expected)]
    if metas[0] != metas[1]:
        return text
    exact = reference()
    if isinstance(exact, Exception):
        return text
    error, of_the_cpu = error_of(ours, exact), error_of(expected, exact)
    return None if error <= 4 * of_the_cpu + 1e-5 else f"error {error:.2g}, of the CPU {of_the_cpu:.2g}: {text}"


def on_the_cpu(function, *arguments):
    """Calls a function that computes on the CPU without fused attention and oneDNN, which have fewer rules."""
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        return function(*arguments)


def outcome(function, arguments, place):
    """Returns the result of a function on a device, as tensors of the CPU, or the exception."""
    moved = to(place, arguments)
    try:
        torch.manual_seed(0)
        results = detached(function(*moved))
        torch.accelerator.synchronize()  # for copies to the CPU that do not block
        return to("cpu", results)
    except Exception as error:
        return error
