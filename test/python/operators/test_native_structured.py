"""Each generated operator that is not elementwise - reductions, softmax, matrix products - compared with CPU PyTorch;
each comparison checks that the device's kernel ran."""

import itertools

import pytest
import torch
from native_reference import DTYPES, Sample, assert_native, assert_same, load_model, native_count, overload, strict

STRUCTURED = {op.name: op for op in load_model().kernels if not op.entry.is_elementwise}
FLOATS = ["f32", "f64", "f16", "bf16"]
TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.float64: {"rtol": 1e-12, "atol": 1e-12},
             torch.float16: {"rtol": 3 * 2**-10, "atol": 1e-5}, torch.bfloat16: {"rtol": 3 * 2**-8, "atol": 1e-5}}  # fmt: skip

TENSORS = {
    "dense": ((3, 4, 5), lambda x: x),
    "transposed": ((5, 4, 3), lambda x: x.permute(2, 1, 0)),
    "strided": ((6, 4, 10), lambda x: x[::2, :, ::2]),
    "expanded": ((4, 1), lambda x: x.expand(3, 4, 5)),
    "channels last": ((2, 3, 4, 5), lambda x: x.contiguous(memory_format=torch.channels_last)),
    "long": ((3, 10007), lambda x: x),
    "long column": ((10007, 3), lambda x: x),
    "one element": ((1, 1), lambda x: x),
    "vector": ((1000,), lambda x: x),
    "no dimension": ((), lambda x: x),
}


def sample(case, dtype, seed=0):
    """Distinct integers in random order divided by 8: exact in each floating dtype, so that an index is unique."""
    shape, view = TENSORS[case] if isinstance(case, str) else (case, lambda x: x)
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    if dtype == torch.bool:
        return Sample((order % 3 == 0).reshape(shape), view)
    if not dtype.is_floating_point:
        return Sample(order.remainder(100).reshape(shape).to(dtype), view)
    return Sample(((order - count // 2).double() / max(count, 8)).to(dtype).reshape(shape), view)


def dims(case):
    ndim = TENSORS[case][1](torch.empty(TENSORS[case][0])).dim()
    lists = [d for n in range(1, ndim + 1) for d in itertools.combinations(range(ndim), n)]
    return [[], [-1], *map(list, lists)]


def check(name, function, arguments, *, strides=True, **tolerance):
    return assert_native(STRUCTURED[name].entry.name, function, arguments, strides=strides, **tolerance)


# ---- reductions ----
REDUCTIONS = ["sum.dim_IntList", "mean.dim", "amax", "amin"]


@pytest.mark.parametrize("case", TENSORS)
@pytest.mark.parametrize("name,token", [(name, token) for name in REDUCTIONS for token in STRUCTURED[name].entry.kernel.dtypes if token in DTYPES])
def test_reductions_over_every_set_of_dimensions(name, token, case):
    dtype = DTYPES[token]
    for dim, keepdim in itertools.product(dims(case), (False, True)):
        check(name, lambda x: overload(name)(x, dim, keepdim), [sample(case, dtype)], **TOLERANCE.get(dtype, {}))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_into_given_results(name):
    function = overload(str(STRUCTURED[name].group.out.func.name))
    for out in (Sample(torch.zeros(3, 5)), Sample(torch.zeros(5, 3), lambda x: x.t()), Sample(torch.zeros(0))):
        check(name, lambda x, out: function(x, [1], False, out=out), [sample("dense", torch.float32), out], **TOLERANCE[torch.float32])


@pytest.mark.parametrize("token", [t for t in DTYPES if t not in ("f16", "bf16") or t in STRUCTURED["sum.dim_IntList"].entry.kernel.dtypes])
def test_sum_of_integers_is_int64_and_dtype_casts_first(token):
    x = sample("dense", DTYPES[token])
    exact = {"rtol": 1e-6, "atol": 1e-6}
    check("sum.dim_IntList", lambda x: x.sum(), [x], **exact)
    check("sum.dim_IntList", lambda x: x.sum(0, dtype=torch.float64), [x], **exact)
    check("sum.dim_IntList", lambda x: torch.sum(x, 1, dtype=torch.int32), [x])
    check("mean.dim", lambda x: x.mean(1, dtype=torch.float32), [x], **exact)
    check("sum.dim_IntList", lambda x, out: torch.sum(x, 1, out=out), [x, Sample(torch.zeros(3, 5, dtype=torch.float64))], **exact)


def test_sum_into_its_own_operand(device):
    x = torch.arange(6.0).reshape(2, 3)
    ours = x.to(device)
    with strict():
        torch.sum(ours, 0, out=ours[0])
    assert torch.equal(ours[0].cpu(), x.sum(0))


def test_reductions_of_nothing():
    empty = Sample(torch.zeros(0, 4))
    for name in ("sum.dim_IntList", "mean.dim"):
        for dim in ([0], [1], [0, 1]):
            check(name, lambda x: overload(name)(x, dim), [empty])
    check("amax", lambda x: x.amax(1), [empty])


def test_empty_reductions_without_a_neutral_element_are_refused(device):
    empty = torch.zeros(0, 4, device=device)
    for call in (lambda: empty.amax(0), lambda: empty.max(0), lambda: empty.argmin(0), lambda: empty.argmax()):
        with pytest.raises((RuntimeError, IndexError), match="(non-zero size|numel|non-zero dim|Expected reduction dim)"):
            call()


def test_mean_of_integers_is_refused(device):
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        torch.ones(3, dtype=torch.int64, device=device).mean()


def test_not_a_number_wins():
    x = Sample(torch.tensor([[1.0, float("nan"), 3.0], [float("inf"), 2.0, float("nan")], [1.0, 2.0, -float("inf")]]))
    for name in ("amax", "amin", "sum.dim_IntList", "mean.dim"):
        for dim in ([0], [1], []):
            check(name, lambda x: overload(name)(x, dim), [x])
    for name in ("max.dim", "min.dim", "argmax", "argmin"):
        for dim in (0, 1):
            check(name, lambda x: overload(name)(x, dim), [x])


# ---- reductions with an index ----
INDEXED = ["max.dim", "min.dim", "argmax", "argmin"]


@pytest.mark.parametrize("case", TENSORS)
@pytest.mark.parametrize("name,token", [(name, t) for name in INDEXED for t in STRUCTURED[name].entry.kernel.dtypes])
def test_reductions_with_an_index(name, token, case):
    x = sample(case, DTYPES[token])
    ndim = x.on("cpu").dim()
    for dim, keepdim in itertools.product(range(-max(ndim, 1), max(ndim, 1)), (False, True)):
        if DTYPES[token].is_floating_point and case != "expanded":
            check(name, lambda x: overload(name)(x, dim, keepdim), [x])
        else:  # equal elements: each of their indices is correct, only the values are compared
            check(name, lambda x: by_value(name, x, dim, keepdim), [x], strides=False)
    if name.startswith("arg") and DTYPES[token].is_floating_point and case != "expanded":
        for keepdim in (False, True):
            check(name, lambda x: overload(name)(x, None, keepdim), [x])


def by_value(name, x, dim, keepdim):
    result = overload(name)(x, dim, keepdim)
    index = result[1] if isinstance(result, tuple) else result
    if x.dim() == 0:
        return index
    return x.gather(dim, index if keepdim else index.unsqueeze(dim)) if x.device.type == "cpu" else gather(x, dim, index, keepdim)


def gather(x, dim, index, keepdim):
    """Indexes on the CPU: gather is not tested here."""
    index = index.cpu() if keepdim else index.cpu().unsqueeze(dim)
    return x.cpu().gather(dim, index).to(x.device)


def test_reductions_with_an_index_into_given_results():
    x = sample("dense", torch.float32)
    outs = [Sample(torch.zeros(3, 5)), Sample(torch.zeros(5, 3, dtype=torch.int64), lambda x: x.t())]
    for function in (torch.max, torch.min):
        check(f"{function.__name__}.dim", lambda x, a, b: tuple(function(x, 1, out=(a, b))), [x, *outs])
    check("argmax", lambda x, out: torch.argmax(x, 1, out=out), [x, outs[1]])


# ---- softmax ----
@pytest.mark.parametrize("case", TENSORS)
@pytest.mark.parametrize("token", FLOATS)
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax_and_its_backward(name, token, case):
    dtype = DTYPES[token]
    x, grad = sample(case, dtype), sample(case, dtype, seed=1)
    ndim = x.on("cpu").dim()
    for dim in range(-max(ndim, 1), max(ndim, 1)):
        check(name, lambda x: overload(name)(x, dim, False), [x], **TOLERANCE[dtype])
        output = Sample(overload(name)(x.on("cpu"), dim, False))
        backward = f"{name}_backward_data"
        check(backward, lambda g, y: overload(backward)(g, y, dim, dtype), [grad, output], strides=False, **TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax_of_large_numbers_and_infinities(name):
    x = Sample(torch.tensor([[1e4, -1e4, 0.0], [float("inf"), 1.0, 2.0], [-float("inf"), 1.0, 2.0], [float("nan"), 1.0, 2.0]]))
    for dim in (0, 1):
        check(name, lambda x: overload(name)(x, dim, False), [x], **TOLERANCE[torch.float32])
    check(name, lambda x: overload(name)(x, 1, False), [Sample(torch.zeros(0, 3))])
    check(name, lambda x: overload(name)(x, 1, False), [Sample(torch.zeros(3, 0))])


def test_softmax_into_given_results_and_its_operand(device):
    x = sample("dense", torch.float32)
    check("_softmax", lambda x, out: torch.ops.aten._softmax.out(x, 1, False, out=out), [x, Sample(torch.zeros(0))],
          **TOLERANCE[torch.float32])  # fmt: skip
    # CPU PyTorch 2.13 writes such a result as if it were contiguous
    ours = torch.zeros(5, 4, 3, device=device).permute(2, 1, 0)
    with strict():
        torch.ops.aten._softmax.out(x.on(device), 1, False, out=ours)
    torch.testing.assert_close(ours.cpu(), x.on("cpu").softmax(1))
    ours = x.on(device)
    with strict():
        torch.ops.aten._softmax.out(ours, 1, False, out=ours)
    torch.testing.assert_close(ours.cpu(), x.on("cpu").softmax(1))


# ---- matrix products ----
def matrix(rows, columns, dtype, batch=(), seed=0):
    """A matrix in several layouts."""
    contiguous = sample((*batch, rows, columns), dtype, seed)
    transposed = Sample(sample((*batch, columns, rows), dtype, seed).base, lambda x: x.transpose(-1, -2))
    strided = Sample(sample((*batch, 2 * rows, 3 * columns), dtype, seed).base, lambda x: x[..., ::2, ::3])
    return {"contiguous": contiguous, "transposed": transposed, "strided": strided}


SIZES = [(1, 1, 1), (3, 4, 5), (17, 33, 65), (64, 64, 64), (1, 100, 7), (100, 1, 7), (130, 257, 1), (0, 3, 4), (3, 0, 4), (3, 4, 0)]


# Half precision is summed in float32 on both sides, in different orders, and rounded once.
PRODUCT_TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-4}, torch.float64: {"rtol": 1e-11, "atol": 1e-11},
                     torch.float16: {"rtol": 2**-9, "atol": 1e-4}, torch.bfloat16: {"rtol": 2**-6, "atol": 1e-4}}  # fmt: skip


@pytest.mark.parametrize("m,k,n", SIZES)
@pytest.mark.parametrize("token", FLOATS)
def test_matrix_products(token, m, k, n):
    dtype = DTYPES[token]
    tolerance = PRODUCT_TOLERANCE[dtype]
    for a, b in itertools.product(matrix(m, k, dtype).values(), matrix(k, n, dtype, seed=1).values()):
        check("mm", torch.mm, [a, b], **tolerance)
        for shape, beta in (((m, n), 1), ((n,), 0.5), ((m, 1), 2), ((), 1), ((m, n), 0)):
            added = sample(shape, dtype, seed=2)
            if beta == 0:
                added.base.fill_(float("nan"))  # beta 0 means that it is not read
            check("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=beta, alpha=0.5), [added, a, b], **tolerance)


@pytest.mark.parametrize("token", FLOATS)
def test_batched_matrix_products(token):
    dtype = DTYPES[token]
    tolerance = PRODUCT_TOLERANCE[dtype]
    for (m, k, n), batch in itertools.product([(3, 4, 5), (33, 17, 9), (2, 0, 3)], [1, 4, 0]):
        for a, b in itertools.product(matrix(m, k, dtype, (batch,)).values(), matrix(k, n, dtype, (batch,), 1).values()):
            check("bmm", torch.bmm, [a, b], **tolerance)
            for shape in ((batch, m, n), (m, n), (n,), (batch, 1, n)):
                added = sample(shape, dtype, seed=2)
                check("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=2, alpha=0.5), [added, a, b], **tolerance)


def test_matrix_products_into_given_results():
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    a, b, c = (sample((4, 4), torch.float32, seed) for seed in range(3))
    outs = [Sample(torch.zeros(4, 4)), Sample(torch.zeros(4, 4), lambda x: x.t()), Sample(torch.zeros(8, 8), lambda x: x[::2, 1::2]),
            Sample(torch.zeros(0))]  # fmt: skip
    for out in outs:
        check("mm", lambda a, b, out: torch.mm(a, b, out=out), [a, b, out], **tolerance)
        check("addmm", lambda c, a, b, out: torch.addmm(c, a, b, out=out), [c, a, b, out], **tolerance)
    check("addmm", lambda c, a, b: c.addmm_(a, b, beta=0.5, alpha=2), [c, a, b], **tolerance)
    check("addmm", lambda c, a, b: c.t().addmm_(a, b), [c, a, b], **tolerance)
    batch = [sample((2, 3, 3), torch.float32, seed) for seed in range(3)]
    check("baddbmm", lambda c, a, b: c.baddbmm_(a, b, beta=0.5), batch, **tolerance)


def test_matrix_product_into_its_operand(device):
    a, b = torch.randn(5, 5), torch.randn(5, 5)
    ours = a.to(device)
    with strict():
        torch.mm(ours, b.to(device), out=ours)
    torch.testing.assert_close(ours.cpu(), a @ b)


def test_matrix_product_errors_are_the_cpus(device):
    a, b = torch.ones(2, 3), torch.ones(4, 5)
    for call in (
        lambda d: a.to(d) @ b.to(d),
        lambda d: torch.addmm(torch.ones(7, device=d), a.to(d), torch.ones(3, 5, device=d)),
        lambda d: torch.bmm(torch.ones(2, 3, 4, device=d), torch.ones(3, 4, 5, device=d)),
        lambda d: a.to(d) @ torch.ones(3, 2, dtype=torch.float64, device=d),
    ):
        with pytest.raises(RuntimeError) as theirs:
            call("cpu")
        with pytest.raises(RuntimeError) as ours:
            call(device)
        assert str(ours.value).split("(")[0][:40] == str(theirs.value).split("(")[0][:40]


def test_matrix_product_refuses_mixed_devices(device):
    with pytest.raises(RuntimeError, match=f"at least two devices, {device}:0 and cpu!"):
        torch.ones(2, 2, device=device) @ torch.ones(2, 2)


def test_integer_matrix_product_is_right_and_counted_as_fallback(device):
    a = torch.arange(6).reshape(2, 3)
    before = native_count("mm")
    assert torch.equal((a.to(device) @ a.t().to(device)).cpu(), a @ a.t())
    assert native_count("mm") == before


# ---- autograd ----
def test_gradients_of_a_linear_layer_with_softmax(device):
    torch.manual_seed(0)
    x, weight, bias, wanted = torch.randn(6, 5), torch.randn(4, 5), torch.randn(4), torch.randn(6, 4)
    results = []
    for where in ("cpu", device):
        tensors = [t.to(where, copy=True).requires_grad_() for t in (x, weight, bias)]
        logits = torch.nn.functional.linear(*tensors)
        loss = (torch.log_softmax(logits, 1) * wanted.to(where)).sum(1).mean() + torch.softmax(logits, 0).amax(0).sum()
        loss.backward()
        results.append([t.grad for t in tensors])
    for theirs, ours in zip(*results):
        assert_same(ours, theirs, rtol=1e-5, atol=1e-5)
