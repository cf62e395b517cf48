"""Special functions in float64 whose intermediate results would overflow or underflow, compared with mpmath with 60
digits."""

import math
import sys

import mpmath
import pytest
import torch

LARGEST = sys.float_info.max
BESSEL = [0.5, 3.0, 21.0, 1e3, 9999.0, 1e8, 1e100, 1e307, LARGEST]


def hankel(order, x):
    """Returns the first terms of the series whose product with sqrt(pi / 2x) is e^x K(order, x). For x beyond 1e4, two
    terms are exact."""
    return 1 + mpmath.mpf(4 * order**2 - 1) / (8 * x) + mpmath.mpf((4 * order**2 - 1) * (4 * order**2 - 9)) / (2 * (8 * x) ** 2)


def scaled_i(order, x):
    return mpmath.besseli(order, x) * mpmath.exp(-x) if x < 1e4 else hankel(order, -x) / mpmath.sqrt(2 * mpmath.pi * x)


def scaled_k(order, x):
    return mpmath.besselk(order, x) * mpmath.exp(x) if x < 1e4 else hankel(order, x) * mpmath.sqrt(mpmath.pi / (2 * x))


def erfcx(x):
    return mpmath.exp(x * x) * mpmath.erfc(x) if x < 1e3 else (1 - 1 / (2 * x * x)) / (mpmath.sqrt(mpmath.pi) * x)


def ndtri(p):
    return mpmath.findroot(lambda t: mpmath.log(mpmath.ncdf(t)) - mpmath.log(p), -mpmath.sqrt(-2 * mpmath.log(p)))


CASES = {
    "i0": (lambda x: mpmath.besseli(0, x), [1.0, 25.0, 700.0, 710.0]),
    "i1": (lambda x: mpmath.besseli(1, x), [1.0, 25.0, 700.0, 710.0]),
    "i0e": (lambda x: scaled_i(0, x), BESSEL),
    "i1e": (lambda x: scaled_i(1, x), BESSEL),
    "modified_bessel_k0": (lambda x: mpmath.besselk(0, x), [0.1, 1.5, 2.5, 30.0, 700.0]),
    "scaled_modified_bessel_k0": (lambda x: scaled_k(0, x), [0.1, 2.5, *BESSEL]),
    "scaled_modified_bessel_k1": (lambda x: scaled_k(1, x), [0.1, 2.5, *BESSEL]),
    "erfcx": (erfcx, [0.1, 5.0, 11.0, 1e5, 1e300, 1e308, LARGEST]),
    "ndtri": (ndtri, [5e-324, 1e-320, 1e-310, 2.3e-308, 1e-291, 1e-289, 1e-100, 1e-5, 0.2]),
    "bessel_j0": (lambda x: mpmath.besselj(0, x), [26.0, 100.0, 1e4]),
    "bessel_y1": (lambda x: mpmath.bessely(1, x), [26.0, 100.0, 1e4]),
}


@pytest.mark.parametrize("name", CASES)
def test_values(device, name):
    reference, inputs = CASES[name]
    with mpmath.workdps(60):
        expected = [float(reference(mpmath.mpf(x))) for x in inputs]
    results = getattr(torch.special, name)(torch.tensor(inputs, dtype=torch.float64, device=device)).tolist()
    for x, ours, right in zip(inputs, results, expected):
        assert math.isclose(ours, right, rel_tol=3e-15, abs_tol=5e-324), f"{name}({x!r}) = {ours!r}, {right!r} is right"


@pytest.mark.parametrize("name, value", [("i0", math.inf), ("i1", math.inf), ("modified_bessel_k0", 0.0), ("modified_bessel_k1", 0.0)])
def test_results_beyond_the_range(device, name, value):
    assert getattr(torch.special, name)(torch.tensor([LARGEST], dtype=torch.float64, device=device)).item() == value


def test_oscillating_functions_keep_their_size(device):
    inputs = [LARGEST, LARGEST / 3, LARGEST / 7]
    x = torch.tensor(inputs, dtype=torch.float64, device=device)
    sizes = torch.hypot(torch.special.bessel_j0(x), torch.special.bessel_y0(x)).tolist()  # whatever the phase
    for ours, value in zip(sizes, inputs):
        assert math.isclose(ours, math.sqrt(2 / math.pi) / math.sqrt(value), rel_tol=1e-14)


_MODIFIED = ["i0", "i0e", "i1", "i1e"]
_BESSEL = ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1",
           "spherical_bessel_j0"]  # fmt: skip


@pytest.mark.parametrize("name, dtype", [(name, dtype) for name in _MODIFIED + _BESSEL for dtype in (torch.float64, torch.float32)]
                         + [(name, torch.bfloat16) for name in _MODIFIED])  # fmt: skip
def test_values_at_infinity_are_those_of_the_cpu(device, name, dtype):
    """PyTorch's own tests demand NaN of i0 there, although the limit is infinity."""
    x = torch.tensor([math.inf, -math.inf, math.nan], dtype=dtype)
    call = getattr(torch.special, name)
    torch.testing.assert_close(call(x.to(device)).cpu(), call(x), rtol=0, atol=0, equal_nan=True)
