"""vmap, forward-mode AD and double backward of modules and operators give the CPU's results wherever the CPU has any.

torch has such rules for its own operators. An operator that the device runs in place of several of them must have them, too, or must not
be selected. The CPU computes attention by its math path and recurrent networks without oneDNN, whose operators have fewer rules.
"""

import copy
import functools

import pytest
import torch
from conftest import to
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils import _pytree as pytree
from transforms import TRANSFORMS

SAMPLES = 2
pytestmark = pytest.mark.filterwarnings("ignore")


def outcome(transform, function, arguments, place):
    """Returns the result on a device, or the exception."""
    moved = to(place, arguments)
    try:
        torch.manual_seed(0)
        results = pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, transform(function(place), moved))
        torch.accelerator.synchronize()  # for copies to the CPU that do not block
        return to("cpu", results)
    except Exception as error:
        return error


def compare(name, transform, function, arguments, device, found):
    """Adds a line to `found` where the device has no result, or another one, though the CPU has one; returns whether it was compared."""
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        expected = outcome(transform, function, arguments, "cpu")
    if isinstance(expected, Exception):
        return False
    ours = outcome(transform, function, arguments, device)
    if isinstance(ours, Exception):
        found.append(f"{name}: {type(ours).__name__}: {str(ours).splitlines()[0]}")
        return True
    try:
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    except AssertionError as error:
        found.append(f"{name}: {error}")
    return True


@functools.lru_cache(maxsize=None)
def modules():
    """Returns (name, module, arguments) of each module in training and, where that differs, in evaluation."""
    found = []
    for info in module_db:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            torch.manual_seed(0)
            samples = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=False, training=training)
            for sample in [sample for sample in samples if sample.forward_input is not None][:SAMPLES]:
                module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(training).double()
                if not any(isinstance(x, torch.nn.parameter.UninitializedTensorMixin) for x in module.parameters()):
                    inputs = sample.forward_input
                    found.append((f"{info.name}, training={training}", module, (tuple(inputs.args), dict(inputs.kwargs))))
    return found


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.__name__)
def test_modules(device, transform):
    found, count = [], 0
    for name, module, (args, kwargs) in modules():

        def function(place, module=module):
            moved = copy.deepcopy(module).to(place)
            buffers = {name: buffer for name, buffer in moved.named_buffers() if buffer is not None}

            def call(parameters, args, kwargs):
                torch.manual_seed(0)
                return functional_call(moved, {**buffers, **parameters}, args, kwargs)

            return call

        parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
        count += compare(name, transform, function, (parameters, args, kwargs), device, found)
    assert not found, "\n".join(found)
    assert count > 150, "too few modules had a result on the CPU"


# Whose results are random numbers, which are other ones on another device.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint", "randint_like", "randn",
          "randn_like", "uniform", "nn.functional.rrelu", "nn.functional.scaled_dot_product_attention"}  # fmt: skip
# Memory that nothing was written into.
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# The vectors have an arbitrary sign, and a gradient that depends on it.
ARBITRARY = {"linalg.svd", "svd", "pca_lowrank", "svd_lowrank"}
# CUDA refuses the same: the places to split at are a tensor of the CPU.
ON_THE_HOST = {"tensor_split"}


@functools.lru_cache(maxsize=None)
def operators():
    """Returns (entry of the operator database, arguments) of each operator."""
    found = []
    for info in op_db:
        if info.name in RANDOM | UNINITIALIZED | ARBITRARY | ON_THE_HOST:
            continue
        torch.manual_seed(0)
        sample = next(iter(info.sample_inputs("cpu", torch.float64)), None) if torch.float64 in info.dtypes else None
        if sample is not None:
            found.append((info, ((sample.input, *sample.args), dict(sample.kwargs))))
    return found


def check_operators(device, transform, wanted):
    found, count = [], 0
    for info, arguments in operators():
        if not wanted(info):
            continue

        def function(place, op=info.op):
            def call(args, kwargs):
                torch.manual_seed(0)
                kwargs = {name: torch.device(place) if name == "device" else value for name, value in kwargs.items()}
                return op(*args, **kwargs)

            return call

        count += compare(f"{info.name} {info.variant_test_name}", transform, function, arguments, device, found)
    assert not found, "\n".join(found)
    return count


def is_element_wise(info):
    return isinstance(info, (UnaryUfuncInfo, BinaryUfuncInfo))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.__name__)
def test_operators(device, transform):
    assert check_operators(device, transform, lambda info: not is_element_wise(info)) > 250


@pytest.mark.slow
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.__name__)
def test_element_wise_operators(device, transform):
    assert check_operators(device, transform, is_element_wise) > 100
