"""Activations, losses and special functions through torch's public functions, forward and backward, against CPU torch.

The tolerances are relative to the largest value: sums of a thousand terms, and functions that grow fast.
"""

import pytest
import torch
from torch.nn import functional

LOSSES = {
    "mse": lambda a, b, r: functional.mse_loss(a, b, reduction=r),
    "smooth_l1": lambda a, b, r: functional.smooth_l1_loss(a, b, reduction=r, beta=0.7),
    "huber": lambda a, b, r: functional.huber_loss(a, b, reduction=r, delta=1.3),
    "binary_cross_entropy": lambda a, b, r: functional.binary_cross_entropy(torch.sigmoid(a / 2), torch.sigmoid(b).detach(), reduction=r),
    "with_logits": lambda a, b, r: functional.binary_cross_entropy_with_logits(a, torch.sigmoid(b), reduction=r),
    "soft_margin": lambda a, b, r: functional.soft_margin_loss(a, b.detach().sign(), reduction=r),
}
ACTIVATIONS = ["gelu", "silu", "mish", "elu", "celu", "selu", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "softplus", "softshrink",
               "hardshrink", "logsigmoid", "relu6", "tanhshrink", "softsign", "glu"]  # fmt: skip
SPECIAL = ["digamma", "lgamma", "atan", "sinh", "cosh", "asinh", "exp2", "log10", "erfc", "i0", "sinc", "frac", "nan_to_num"]


def check(device, function, *tensors):
    """Compares the result and the gradients for a random gradient of the result."""
    ours = [tensor.to(device).requires_grad_() for tensor in tensors]
    theirs = [tensor.clone().requires_grad_() for tensor in tensors]
    expected, result = function(*theirs), function(*ours)
    gradient = torch.randn_like(expected)
    pairs = [(result, expected)]
    expected.backward(gradient)
    result.backward(gradient.to(device))
    pairs += [(a.grad, b.grad) for a, b in zip(ours, theirs) if b.grad is not None]
    for a, b in pairs:
        limit = 2e-6 if b.dtype == torch.float32 else 2e-8  # the CPU rounds some constants of float64 functions to float32
        assert a.shape == b.shape
        assert ((a.detach().cpu() - b).abs().max() <= limit * b.abs().max().clamp(min=1)).item()


def operands(dtype, count=2):
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(50, 30, generator=generator, dtype=torch.float64).mul(2).to(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(device, name, reduction, dtype):
    check(device, lambda a, b: LOSSES[name](a, b, reduction), *operands(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(device, name, dtype):
    check(device, getattr(functional, name), *operands(dtype, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations_with_arguments(device, dtype):
    (x,) = operands(dtype, 1)
    check(device, lambda a: functional.gelu(a, approximate="tanh"), x)
    check(device, lambda a: functional.threshold(a, 0.5, 2.0), x)
    check(device, functional.prelu, x, torch.rand(30, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(device, name, dtype):
    check(device, getattr(torch, name), operands(dtype, 1)[0].abs() + 0.1)


def test_nan_to_num_of_integers_and_bools(device):
    for values in (torch.tensor([1, -3, 7]), torch.tensor([True, False])):
        assert torch.equal(torch.nan_to_num(values.to(device)).cpu(), values)
