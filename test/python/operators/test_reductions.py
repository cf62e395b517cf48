"""Norms, products, any and all, counts, variances and inner products compared with CPU PyTorch, on special values; the
strict fallback checks that the device's kernels ran."""

import warnings

import pytest
import torch

import torch_backend
from torch_backend.fallback import strict

INF, NAN = float("inf"), float("nan")
EXACT = {"rtol": 0, "atol": 0}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


OPERANDS = {
    "matrix": lambda: random(5, 70),
    "transposed": lambda: random(70, 5).t(),
    "strided": lambda: random(6, 9, 10)[::2, 1:8:3, ::3],
    "expanded": lambda: random(4, 1).expand(3, 4, 5),
    "long": lambda: random(100003),
    "long columns": lambda: random(30011, 3),
    "no dimension": lambda: torch.tensor(3.5),
    "one element": lambda: random(1, 1),
    "nothing": lambda: torch.zeros(0, 4),
    "seven dimensions": lambda: random(2, 3, 2, 2, 3, 2, 3).permute(6, 1, 4, 0, 3, 2, 5),
    "not numbers": lambda: torch.tensor([[1.0, NAN, 3.0], [INF, -2.0, -INF], [-0.0, 0.0, 5.0]]),
}
DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def dims_of(x):
    lists = [] if x.dim() < 2 else [[0, 1], [-1, 0]]
    if x.dim() == 7:
        lists += [[0, 2, 4, 6], [1, 3, 5]]
    return [None, *range(-x.dim(), x.dim()), *lists]


def placed(x, device):
    """The tensor with its storage, strides and offset on the device."""
    flat = x.as_strided((x.untyped_storage().nbytes() // x.itemsize,), (1,), 0)
    return flat.to(device).as_strided(x.shape, x.stride(), x.storage_offset())


def assert_native(device, function, *operands, rtol=1e-5, atol=1e-5, without_fallback=True):
    """The same value, dtype and shape as on the CPU, without a fallback; or the same kind of exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = function(*operands)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                function(*(x.to(device) for x in operands))
            return
        with strict(without_fallback):
            ours = function(*(placed(x, device) for x in operands))
    ours, theirs = (x if isinstance(x, tuple) else (x,) for x in (ours, theirs))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert (a.device.type, a.dtype, a.shape) == (torch_backend.device_name(), b.dtype, b.shape)
        torch.testing.assert_close(a.cpu(), b, equal_nan=True, rtol=rtol, atol=atol)


@pytest.mark.parametrize("order", [0, 1, 2, 3.5, 0.5, -1, -2, INF, -INF])
@pytest.mark.parametrize("case", OPERANDS)
def test_vector_norms(device, case, order):
    x = OPERANDS[case]()
    for dim in dims_of(x):
        assert_native(device, lambda x: torch.linalg.vector_norm(x, order, dim), x, rtol=5e-5)  # the CPU's error over 100003 terms
        assert_native(device, lambda x: torch.linalg.vector_norm(x, order, dim, keepdim=True, dtype=torch.float64), x, rtol=1e-12)


def test_norms_of_long_vectors_are_accurate(device):
    x = random(1 << 22)
    for order, exact in ((2, x.double().norm()), (1, x.double().abs().sum()), (3, x.double().abs().pow(3).sum().pow(1 / 3))):
        with strict():
            ours = torch.linalg.vector_norm(x.to(device), order).item()
        assert abs(ours - exact.item()) <= 4e-7 * exact.item()


def test_other_spellings_of_norms(device):
    x = random(7, 9)
    for function in (
        lambda x: x.norm(),
        lambda x: x.norm(1, 0),
        lambda x: x.norm(p="fro", dim=(0, 1)),
        lambda x: torch.linalg.norm(x, 1, dim=1),
        lambda x: torch.linalg.matrix_norm(x, "fro"),
        lambda x: torch.linalg.matrix_norm(x, 1),
        lambda x: torch.linalg.matrix_norm(x, -INF),
        lambda x: torch.nn.functional.normalize(x, dim=0),
    ):
        assert_native(device, function, x)


def test_norms_into_given_results(device):
    x = random(4, 5)
    for shape in ((4,), (0,), (9,)):
        out, expected = torch.zeros(shape, device=device), torch.zeros(shape)
        with warnings.catch_warnings(), strict():
            warnings.simplefilter("ignore")  # out= is resized
            torch.linalg.vector_norm(x.to(device), 2, 1, out=out)
            torch.linalg.vector_norm(x, 2, 1, out=expected)
        torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.parametrize("correction", [0, 1, 2, 0.5, 500000])
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("case", [case for case in OPERANDS if case != "not numbers"])
def test_variances(device, case, name, correction):
    x = OPERANDS[case]()
    if case == "expanded" and correction > 5:
        pytest.skip("equal elements: 0 / 0 or rounding / 0")
    for dim in dims_of(x):
        assert_native(device, lambda x: getattr(torch, name)(x, dim, correction=correction), x)
        assert_native(device, lambda x: getattr(torch, name)(x, dim, correction=correction, keepdim=True), x.double(), rtol=1e-11)


def test_variance_of_not_a_number(device):
    x = OPERANDS["not numbers"]()
    for dim in dims_of(x):
        assert_native(device, lambda x: torch.var(x, dim), x)


def test_variance_far_from_zero_is_accurate(device):
    x = 1e4 + random(1000003)
    exact = x.double().var().item()
    with strict():
        assert abs(x.to(device).var().item() - exact) <= 1e-6 * exact


def test_variance_warns_without_degrees_of_freedom(device):
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert torch.ones(1, device=device).var().isnan().item()


def test_variance_of_integers_is_refused(device):
    with pytest.raises(RuntimeError, match="only support floating point and complex"):
        torch.ones(3, dtype=torch.int64, device=device).var()


def test_variance_into_a_given_result(device):
    x, out = random(6, 7).to(device), torch.zeros(7, device=device)
    with strict():
        torch.var(x, 0, correction=0, out=out)
    torch.testing.assert_close(out.cpu(), x.cpu().var(0, correction=0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", OPERANDS)
@pytest.mark.parametrize("name", ["any", "all", "count_nonzero", "amax", "amin", "sum", "nansum"])
def test_truth_counts_extremes_and_sums(device, name, case, dtype):
    x = OPERANDS[case]()
    x = x if dtype.is_floating_point else x.nan_to_num(0, 9, 0).mul(3).abs()
    x = x.to(dtype)
    for dim in dims_of(x):
        assert_native(device, lambda x: getattr(torch, name)(x) if dim is None else getattr(torch, name)(x, dim), x, atol=1e-3)


def test_truth_of_special_values(device):
    for x in ([0.0, -0.0], [NAN, 0.0], [1e-45, 0.0], [INF, NAN]):
        for function in (torch.any, torch.all, torch.count_nonzero):
            assert_native(device, function, torch.tensor(x))
    for dtype in (torch.float32, torch.bool, torch.uint8):  # a list that names no dimension
        for function in (torch.any, torch.all):
            assert_native(device, lambda x: function(x, dim=()), torch.tensor([[1, 0], [0, 2]]).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ["matrix", "transposed", "no dimension", "nothing", "expanded"])
def test_products_and_pairs_of_extremes(device, case, dtype):
    x = OPERANDS[case]().mul(3).to(dtype) if dtype.is_floating_point else OPERANDS[case]().mul(3).abs().to(dtype)
    for dim in [None, *range(-x.dim(), x.dim())]:
        assert_native(device, lambda x: torch.prod(x) if dim is None else torch.prod(x, dim, keepdim=True), x, rtol=1e-4)
        assert_native(device, lambda x: torch.aminmax(x, dim=dim), x)
        assert_native(device, lambda x: torch.prod(x.float(), dtype=torch.float64) if dim is None else torch.prod(x, dim, dtype=torch.float64), x)
        if dim is not None:
            assert_native(device, lambda x: torch.max(x, dim)[0], x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.float64, torch.bool], ids=str)
def test_sums_wrap_in_the_requested_dtype(device, dtype):
    x = torch.arange(-3000, 3000, 7).reshape(2, -1)
    for dim in (None, 0, 1):
        assert_native(device, lambda x: torch.sum(x, dim, dtype=dtype) if dim is not None else x.sum(dtype=dtype), x, **EXACT)


def test_extremes_of_all_elements_into_a_given_result(device):
    for dtype in (torch.float32, torch.int64, torch.bool):
        x, out = random(5, 6).to(dtype).to(device), torch.zeros((), dtype=dtype, device=device)
        with strict():
            torch.max(x, out=out)
            assert out.item() == x.cpu().max().item()
            torch.min(x, out=out)
            assert out.item() == x.cpu().min().item()


def test_inner_products(device):
    x, y = random(100003), random(100003, seed=1)
    exact = torch.dot(x.double(), y.double()).item()
    with strict():
        for function in (torch.dot, torch.vdot):
            assert abs(function(x.to(device), y.to(device)).item() - exact) < 1e-3
    assert_native(device, lambda x, y: torch.dot(x[::2], y[1::2]), x[:1000], y[:1000], atol=1e-4)
    assert_native(device, torch.dot, (x * 9).long(), (y * 9).long(), **EXACT)
    assert_native(device, torch.dot, torch.zeros(0), torch.zeros(0))
    for a, b in ((x, y[:5]), (x, y.double()), (x.reshape(-1, 1), y.reshape(-1, 1))):
        with pytest.raises(RuntimeError):
            torch.dot(a.to(device), b.to(device))


def test_equal_trace_and_sums_of_products(device):
    x = random(40, 50)
    with strict():
        ours = x.to(device)
        assert torch.equal(ours, ours.clone()) is True
        assert torch.equal(ours, ours.t()) is False
        assert torch.equal(ours, ours + 1) is False
        assert torch.equal(torch.zeros(0, device=device), torch.zeros(0, device=device)) is True
        assert torch.equal(torch.tensor([NAN], device=device), torch.tensor([NAN], device=device)) is False
        assert torch.allclose(ours, ours * 1.000001) is True
    assert_native(device, torch.trace, x)
    assert_native(device, torch.trace, x.long())
    assert_native(device, torch.addbmm, random(3, 4), random(5, 3, 2), random(5, 2, 4))


def test_gradients_of_norms_and_variances(device):
    def gradient(x, function):
        x = x.clone().requires_grad_()
        function(x).sum().backward()
        return x.grad

    x = random(6, 7)
    for function in (
        lambda x: torch.linalg.vector_norm(x, 2, 1),
        lambda x: torch.linalg.vector_norm(x, 1),
        lambda x: torch.linalg.vector_norm(x, 3.0, 0),
        lambda x: x.var(1),
        lambda x: x.std(0, keepdim=True),
        lambda x: torch.var_mean(x, (0, 1))[0],
        lambda x: x.amax(1),
    ):
        assert_native(device, lambda x: gradient(x, function), x, without_fallback=False)  # masked_fill_
