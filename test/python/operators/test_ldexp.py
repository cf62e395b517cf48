"""torch.ldexp with a power of 2 out of range, compared with Python's exact arithmetic; gradients, dtypes and overloads.
"""

import math
from fractions import Fraction

import pytest
import torch

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def right(x, exponent, dtype):
    """Returns x * 2**exponent rounded once to a dtype."""
    if not math.isfinite(x) or x == 0:
        return x
    exact = Fraction(x) * Fraction(2) ** exponent
    if dtype is torch.float64:
        try:
            return float(exact)
        except OverflowError:
            return math.copysign(math.inf, x)
    wide = math.ldexp(x, max(-700, min(700, exponent)))  # exact: x has few bits, and float64 a wide range
    return torch.tensor(wide, dtype=torch.float64).to(dtype).item()


@pytest.mark.parametrize("dtype", FLOATS)
def test_values(device, dtype):
    info = torch.finfo(dtype)
    lowest = info.tiny * info.eps
    inputs = [0.0, -0.0, 1.0, -1.5, 1.0 + info.eps, info.max, -info.max, info.tiny, lowest, 3 * lowest, math.inf, -math.inf]
    exponents = [0, 1, -1, 20, -20, -25, 149, -149, 127, 128, -127, -200, 200, 255, 1000, -1000, 1074, -1074, 2000, -2000, 2098, -2098]
    pairs = [(x, e) for x in inputs for e in exponents]
    x = torch.tensor([x for x, _ in pairs], dtype=dtype)
    e = torch.tensor([e for _, e in pairs], dtype=torch.int64)
    result = torch.ldexp(x.to(device), e.to(device))
    assert result.dtype is dtype
    for (given, exponent), ours in zip(pairs, result.tolist()):
        expected = right(torch.tensor(given, dtype=torch.float64).to(dtype).item(), exponent, dtype)
        assert ours == expected, f"ldexp({given!r}, {exponent}) = {ours!r}, {expected!r} is right"
    assert torch.ldexp(torch.tensor([math.nan], device=device), torch.tensor([3], device=device)).isnan().all()


def test_exponents_between_integers(device):
    x, e = torch.tensor([1.5, 2.0**-100, -3.0, 2.0**120]), torch.tensor([0.5, 150.25, -1.75, -130.5])
    torch.testing.assert_close(torch.ldexp(x.to(device), e.to(device)).cpu(), (x.double() * 2.0 ** e.double()).float())


@pytest.mark.parametrize("other", [torch.int32, torch.uint8, torch.int64, torch.float32, torch.float16])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.bool])
def test_dtypes_are_those_of_the_cpu(device, dtype, other):
    x, e = torch.ones(3, 1).to(dtype), torch.arange(4).to(other)
    theirs, ours = torch.ldexp(x, e), torch.ldexp(x.to(device), e.to(device))
    assert ours.dtype is theirs.dtype
    torch.testing.assert_close(ours.cpu(), theirs)


def test_overloads_and_gradients(device):
    x, e = torch.tensor([1.0, -2.5, 3.0]), torch.tensor([3, 2, 0])
    expected = torch.ldexp(x, e)
    out = torch.empty(0, device=device)
    assert torch.ldexp(x.to(device), e.to(device), out=out) is out
    assert torch.equal(out.cpu(), expected)
    assert torch.equal(x.to(device).ldexp_(e.to(device)).cpu(), expected)
    ours = x.to(device).requires_grad_()
    torch.ldexp(ours, e.to(device)).sum().backward()
    assert ours.grad.tolist() == [8, 4, 1]


def test_the_device_computes_it(device):
    from torch_backend import fallback

    fallback.reset()
    torch.ldexp(torch.ones(3, device=device), torch.arange(3, device=device))
    assert not [row for row in fallback.report() if "ldexp" in row.op]
