"""Cumulative operators, sorting and searching along a dimension compared with CPU PyTorch, natively (strict fallback).
"""

import pytest
import torch
from native_reference import Sample, assert_native
from test_indexing import natively, numbers

REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
        torch.bool]  # fmt: skip
SHAPES = {
    "dense": ((3, 4, 50), lambda x: x),
    "transposed": ((50, 4, 3), lambda x: x.permute(2, 1, 0)),
    "strided": ((6, 4, 100), lambda x: x[::2, :, ::2]),
    "long": ((2, 40001), lambda x: x),
    "long column": ((40001, 2), lambda x: x),
    "one": ((1, 1), lambda x: x),
    "empty": ((0, 3), lambda x: x),
}


def special(shape, seed=0):
    """Normal numbers with ties, zeros of both signs, infinities and NaN."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    choice = torch.randint(0, 12, shape, generator=generator)
    for i, value in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0)):
        x = x.masked_fill(choice == i, value)
    return x


def dims(case):
    return range(SHAPES[case][1](torch.empty(SHAPES[case][0])).dim())


# ---- running values ----
@pytest.mark.parametrize("dtype", REAL + [torch.complex64])
@pytest.mark.parametrize("case", SHAPES)
def test_cumsum(case, dtype):
    shape, view = SHAPES[case]
    for dim in dims(case):
        assert_native("cumsum", lambda x: x.cumsum(dim), [Sample(numbers(shape, dtype), view)]) if min(shape) else None
        natively(lambda x: x.cumsum(dim), Sample(numbers(shape, dtype), view))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("case", SHAPES)
def test_cumprod_cummax_cummin(case, dtype):
    shape, view = SHAPES[case]
    ones = numbers(shape).sign().masked_fill(numbers(shape) == 0, 1).to(dtype)
    for dim in dims(case):
        natively(lambda x: x.cumprod(dim), Sample(ones, view))
        natively(lambda x: x.cummax(dim), Sample(numbers(shape, dtype), view))
        natively(lambda x: x.cummin(dim), Sample(numbers(shape, dtype), view))


@pytest.mark.parametrize("case", SHAPES)
def test_running_values_of_special_numbers(case):
    shape, view = SHAPES[case]
    for dim in dims(case):
        natively(lambda x: x.cummax(dim), Sample(special(shape), view))
        natively(lambda x: x.cummin(dim), Sample(special(shape), view))
        natively(lambda x: x.cumsum(dim), Sample(special(shape), view), rtol=1e-4, atol=1e-4)
        natively(lambda x: x.logcumsumexp(dim), Sample(special(shape), view), rtol=1e-5, atol=1e-5)
        natively(lambda x: x.logcumsumexp(dim), Sample(torch.randn(shape).double(), view), rtol=1e-12, atol=1e-12)


def test_cumsum_casts_and_writes_to_given_tensors():
    x = Sample(numbers((5, 4), torch.int8))
    natively(lambda x: x.cumsum(0, dtype=torch.float64), x)
    natively(lambda x: x.cumsum(1, dtype=torch.int16), x)
    natively(lambda x: x.cumsum_(1), Sample(numbers((5, 4)), lambda x: x.t()))
    natively(lambda x, out: torch.cumsum(x, 0, out=out), Sample(numbers((5, 4))), Sample(torch.zeros(4, 5), lambda x: x.t()))
    natively(lambda x: x.cumsum(0), Sample(torch.tensor(3)))
    natively(lambda x: torch.cumsum(x.expand(6), 0), Sample(torch.ones(1)))


# ---- sorting ----
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("case", SHAPES)
def test_sort_is_stable_in_every_dtype(case, dtype, descending):
    shape, view = SHAPES[case]
    for dim in dims(case):
        natively(lambda x: x.sort(dim=dim, descending=descending, stable=True), Sample(numbers(shape, dtype), view))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("case", SHAPES)
def test_sort_puts_nan_after_infinity_and_treats_both_zeros_as_equal(case, dtype, descending):
    shape, view = SHAPES[case]
    for dim in dims(case):
        natively(lambda x: x.sort(dim=dim, descending=descending, stable=True), Sample(special(shape).to(dtype), view))


def test_extremes_of_integers_sort():
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        x = torch.tensor([info.max, info.min, 0, info.max - 1, info.min + 1, 1], dtype=dtype).repeat(600)
        natively(lambda x: x.sort(stable=True), Sample(x))
        natively(lambda x: x[:20].sort(stable=True, descending=True), Sample(x))


def test_forms_of_sort():
    x = Sample(torch.randperm(40).float().view(5, 8))
    natively(lambda x: x.sort(), x)
    natively(lambda x: x.argsort(0), x)
    natively(lambda x: x.msort(), x)
    natively(lambda x: torch.tensor(3.0, device=x.device).sort(), x)
    natively(lambda x, v, i: torch.sort(x, out=(v, i)), x, Sample(torch.zeros(5, 8)), Sample(torch.zeros(5, 8, dtype=torch.long)))
    natively(lambda x: torch.sort(x, out=(x, torch.zeros(5, 8, dtype=torch.long, device=x.device)))[0], x)


@pytest.mark.parametrize("n", [1, 7, 16, 17, 33, 1000, 2048, 2049, 16384, 16385, 50000])
def test_sort_of_lengths_around_the_limits_of_the_kernels(n):
    x = torch.randn(2, n, generator=torch.Generator().manual_seed(n))
    natively(lambda x: x.sort(stable=True), Sample(x))
    natively(lambda x: x.sort(stable=True, dim=0), Sample(x.t().contiguous()))


@pytest.mark.parametrize("dtype", REAL[:-1])
def test_topk_kthvalue(dtype):
    # no ties: their order is undefined
    x = torch.randperm(90, generator=torch.Generator().manual_seed(0)).view(3, 30).to(dtype)
    for largest in (True, False):
        natively(lambda x: x.topk(5, largest=largest), Sample(x))
        natively(lambda x: x.topk(5, 0, largest=largest), Sample(x.t().contiguous()))
    natively(lambda x: x.topk(0), Sample(x))
    natively(lambda x: x.kthvalue(7), Sample(x))
    natively(lambda x: x.kthvalue(1, 0, keepdim=True), Sample(x))


@pytest.mark.parametrize("n, k", [(1, 1), (100, 3), (3000, 2999), (40000, 1), (40000, 700), (70000, 30000)])
def test_topk_of_lengths_around_the_limits_of_the_kernels(n, k, device):
    x = torch.stack([torch.randperm(n, generator=torch.Generator().manual_seed(seed)) for seed in (n, k)]).float()
    x[:, : n // 9] = float("nan") if n > 9 else 0
    values, indices = x.sort(descending=True, stable=True)
    for given in (x, x.t().contiguous().t()):
        ours = given.to(device).topk(k)
        assert torch.equal(ours.values.cpu().nan_to_num(-1), values[:, :k].nan_to_num(-1)) and torch.equal(ours.indices.cpu(), indices[:, :k])
        unsorted = given.to(device).topk(k, sorted=False, largest=False)
        assert torch.equal(unsorted.indices.cpu().sort().values, x.sort(stable=True).indices[:, :k].sort().values)


def test_medians():
    x = Sample(torch.randperm(105).float().view(5, 21))
    for function in (torch.median, torch.nanmedian):
        natively(function, x)
        for dim in (0, 1):
            natively(lambda x: function(x, dim), x)
            natively(lambda x: function(x, dim, keepdim=True), x)
            natively(lambda x: function(x.long(), dim), x)
    holes = torch.randperm(105).float().view(5, 21)
    holes[0, 3] = holes[0, 9] = holes[2] = float("nan")
    natively(lambda x: x.median(1), Sample(holes))
    natively(lambda x: x.nanmedian(1)[0], Sample(holes))
    natively(torch.nanmedian, Sample(holes))
    natively(torch.median, Sample(torch.tensor(4.0)))


# ---- searching ----
@pytest.mark.parametrize("dtype", REAL[:-1])
def test_searchsorted_and_bucketize(dtype):
    rows, values = numbers((3, 20), dtype).sort()[0], numbers((3, 7), dtype, 5)
    for right in (False, True):
        natively(lambda s, v: torch.searchsorted(s, v, right=right), Sample(rows), Sample(values))
        natively(lambda s, v: torch.searchsorted(s[0], v, right=right, out_int32=True), Sample(rows), Sample(values))
        natively(lambda s, v: torch.bucketize(v, s[1], right=right), Sample(rows), Sample(values))
    natively(lambda s, v: torch.searchsorted(s, v, side="right"), Sample(rows), Sample(values))
    natively(lambda s: torch.searchsorted(s[0], 2), Sample(rows))


def test_searchsorted_of_unsorted_rows_and_special_values():
    rows = torch.randn(3, 20)
    natively(lambda s, o, v: torch.searchsorted(s, v, sorter=o), Sample(rows), Sample(rows.argsort()), Sample(torch.randn(3, 4)))
    natively(lambda s, v: torch.searchsorted(s, v), Sample(special((30,)).sort()[0]), Sample(special((40,))))
    natively(lambda s, v: torch.searchsorted(s, v), Sample(torch.zeros(0)), Sample(torch.randn(4)))
