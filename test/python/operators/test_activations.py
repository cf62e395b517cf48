"""Activations, losses and special functions through PyTorch's public functions, forward and backward, compared with CPU
PyTorch.

The tolerances are relative to the largest value: sums of a thousand terms, and functions that grow fast.
"""

import mpmath
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
        limit = 2e-6 if b.dtype == torch.float32 else 2.0**-24  # the CPU rounds some constants of float64 functions to float32
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


# name: (arguments, the true value by mpmath), for arguments where CPU PyTorch is wrong or raises an error.
TRUE = {
    "digamma of nearly 0": (torch.digamma, (-1e-40,), 1e40), "digamma": (torch.digamma, (-2.75,), -1.9590552649779970),
    "igamma": (torch.igamma, (88.0, 88.0), 0.51417666885746397), "igammac": (torch.igammac, (88.0, 88.0), 0.48582333114253603),
    "igamma of many": (torch.igamma, (1.1e8, 109879000.0), 4.093647517152905e-31), "of more": (torch.igamma, (1e30, 1e30), 0.5),
    "igammac of many": (torch.igammac, (1.1e8, 1.1e8 - 3e4), 0.99788590621097164), "of NaN": (torch.igamma, (float("nan"), 0.0), float("nan")),
    "j0": (torch.special.bessel_j0, (3.0,), -0.26005195490193343762), "airy": (torch.special.airy_ai, (-3.0,), -0.37881429367765807434),
    "gelu at infinity": (functional.gelu, (float("inf"),), float("inf")),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUE)
def test_special_functions_are_right_where_the_cpu_is_not(device, name):
    function, arguments, value = TRUE[name]
    ours = function(*(torch.tensor([x], dtype=torch.float64).to(device) for x in arguments)).cpu()
    torch.testing.assert_close(ours, torch.tensor([value], dtype=torch.float64), rtol=2e-13, atol=0, equal_nan=True)


def test_the_remainder_of_a_tiny_divisor(device):
    """Exact by integers: both are multiples of the smallest float32."""
    unit = 2**149
    a, b = torch.tensor([1.0, -0.5, 3.0]), torch.tensor([1e-40, 1e-40, 3e-39])
    whole = [(int(x * unit) if x >= 0 else -int(-x * unit), int(y * unit)) for x, y in zip(a.double().tolist(), b.double().tolist())]
    assert [round(v * unit) for v in torch.remainder(a.to(device), b.to(device)).double().tolist()] == [x % y for x, y in whole]


MPMATH = {
    "digamma": (torch.digamma, mpmath.digamma), "j0": (torch.special.bessel_j0, lambda x: mpmath.besselj(0, x)),
    "j1": (torch.special.bessel_j1, lambda x: mpmath.besselj(1, x)), "y0": (torch.special.bessel_y0, lambda x: mpmath.bessely(0, x)),
    "y1": (torch.special.bessel_y1, lambda x: mpmath.bessely(1, x)), "airy": (torch.special.airy_ai, mpmath.airyai),
}  # fmt: skip


@pytest.mark.parametrize("name", MPMATH)
def test_special_functions_equal_mpmaths(device, name):
    """The CPU is too inexact for a comparison in test_native_ops.py."""
    function, true = MPMATH[name]
    x = torch.randn(300, generator=torch.Generator().manual_seed(7), dtype=torch.float64) * 4
    x = x.abs() if name.startswith("y") else x
    expected = torch.tensor([float(true(mpmath.mpf(value))) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(function(x.to(device)).cpu(), expected, rtol=2e-13, atol=2e-14)
