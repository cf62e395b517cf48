"""A Python number with a tensor behaves as on the CPU: type promotion, rounding, wrapping or overflow, and errors."""

import warnings

import pytest
import torch

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64]
NUMBERS = [True, False, 0, 1, -1, 300, 2**40, -(2**63), 2.5, -0.0, 257.3, 1e10, 1e300, float("nan"), float("inf"), 2 + 0j]
# 0-dimensional tensors of the host also count as numbers.
NUMBERS += [torch.tensor(v, dtype=d) for d in (torch.bool, torch.int64, torch.float32, torch.bfloat16) for v in (0, 3, -2)]
BINARY = """add sub rsub mul div floor_divide remainder fmod pow eq ne lt ge maximum fmax fmin atan2 copysign nextafter xlogy bitwise_and
bitwise_left_shift logical_or lcm heaviside""".split()
FORMS = {
    "first": lambda f, x, n: f(x, n),
    "second": lambda f, x, n: f(n, x),
    "result": lambda f, x, n: f(x, n, out=torch.empty(0, dtype=x.dtype, device=x.device)),
}
CALLS = {name + form: (lambda x, n, name=name, form=form: FORMS[form](getattr(torch, name), x, n)) for name in BINARY for form in FORMS if name + form != "rsubresult"}
CALLS |= {
    "where": lambda x, n: torch.where(x != 0, x, n),
    "where not": lambda x, n: torch.where(x != 0, n, x),
    "masked_fill": lambda x, n: x.masked_fill(x != 0, n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "in place": lambda x, n: x.clone().sub_(n),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "clamp": lambda x, n: torch.clamp(x, min=n) if not x.is_complex() and not isinstance(n, complex) else 0,
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
}
# the CPU negates -2**63, and rounds a logarithm before the multiplication
BETTER = {("alpha", -(2**63)), ("xlogysecond", torch.bfloat16)}



def outcome(call, tensor, number):
    try:
        result = call(tensor, number)
        if not isinstance(result, torch.Tensor):
            return 0, 0  # not compared
        return result.dtype, result.stride(), result.cpu()
    except Exception as error:
        return type(error), str(error)[:40]


def are_same(ours, theirs):
    if len(ours) != len(theirs) or ours[:2] != theirs[:2]:
        if "BComplex32" in str(ours[1]):  # a dtype of torch 2.15 and later, which devices do not support
            return ours[0] is NotImplementedError
        return "not implemented for" in str(theirs[1]) or (len(theirs) == len(ours) == 2 and ours[0] is theirs[0] and "without overflow" in theirs[1] + ours[1])
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(ours[0], 1e-5)
    return len(ours) == 2 or torch.allclose(ours[2].to(torch.complex128), theirs[2].to(torch.complex128), rtol=tolerance, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", CALLS)
def test_a_number_counts_as_on_the_cpu(device, name):
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            for shape in ((3,), (), (0,)):
                host = torch.full(shape, 2, dtype=dtype)
                ours = host.to(device)
                for number in NUMBERS:
                    plain = number if not isinstance(number, torch.Tensor) else None
                    if (name, plain) in BETTER or (name, dtype) in BETTER:
                        continue
                    a, b = outcome(CALLS[name], ours, number), outcome(CALLS[name], host, number)
                    if not are_same(a, b):
                        wrong.append((dtype, shape, number, a, b))
    assert not wrong, f"{len(wrong)} differ, the first: {wrong[0]}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "floor_divide", "fmod", "remainder", "pow", "xlogy", "eq"])
def test_with_half_precision_a_number_is_rounded_where_the_cpu_rounds_it(device, name, dtype):
    host = torch.tensor([0.3, 1.7, 2.2, 5.5], dtype=dtype)
    for number in (1.001, 257.3, 3.14159, -0.777):
        ours, theirs = (getattr(torch, name)(x, number).cpu().double() for x in (host.to(device), host))
        torch.testing.assert_close(ours, theirs, rtol=1.1 * torch.finfo(dtype).eps, atol=0, equal_nan=True)


def test_operands_are_cast_to_the_promoted_dtype_before_a_wider_kernel_computes(device):
    """uint8 has no kernel for these; a 0-dimensional int64 wraps first."""
    x, minus = torch.full((3,), 2, dtype=torch.uint8), torch.tensor(-2)
    for function in (torch.fmax, torch.fmin, torch.lcm, lambda a, b: torch.floor_divide(b, a), torch.remainder):
        assert torch.equal(function(x.to(device), minus.to(device)).cpu(), function(x, minus))


def test_a_wider_result_gets_what_the_promoted_dtype_holds(device):
    """2 ** 17 overflows in uint8, for any dtype of the result."""
    for place in ("cpu", device):
        out = torch.zeros(2, dtype=torch.int64, device=place)
        torch.pow(2, torch.tensor([17, 3], dtype=torch.uint8, device=place), out=out)
        assert out.tolist() == [0, 8]
        torch.fmax(torch.tensor([2, 3], dtype=torch.uint8, device=place), torch.tensor(-2, device=place), out=out)
        assert out.tolist() == [254, 254]


def test_one_to_any_power_is_one(device):
    for dtype in (torch.float16, torch.int64, torch.complex64):
        for one in (1, 1.0, 1 + 0j):
            x = torch.tensor([2, 3]).to(dtype)
            ours, theirs = torch.pow(one, x.to(device)), torch.pow(one, x)
            assert ours.dtype == theirs.dtype and torch.equal(torch.view_as_real(ours.cpu()) if ours.is_complex() else ours.cpu(), torch.view_as_real(theirs) if theirs.is_complex() else theirs)
