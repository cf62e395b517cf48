"""Indexing by tensors, gather, scatter and masks compared with CPU PyTorch, natively: each comparison runs with the
strict fallback."""

import os
import subprocess
import sys
import warnings

import pytest
import torch
from native_reference import Sample, assert_native, assert_same, place, strict

import torch_backend

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool, torch.complex64, torch.complex128]  # fmt: skip
SUMMED = [dtype for dtype in DTYPES if dtype != torch.complex128]


def numbers(shape, dtype=torch.float32, seed=0):
    """Small integers in any dtype: sums of them are exact."""
    made = torch.randint(-4 if dtype != torch.uint8 else 0, 5, shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype)


def places(shape, bound, seed=1, negative=False):
    return torch.randint(-bound if negative else 0, bound, shape, generator=torch.Generator().manual_seed(seed))


def natively(function, *arguments, **tolerance):
    """Runs a function on CPU and device, strict, and compares the results and the modified arguments."""
    device = torch_backend.device_name()
    cpu, ours = [place(a, "cpu") for a in arguments], [place(a, device) for a in arguments]
    theirs = function(*cpu)
    with strict():
        result = function(*ours)
    assert_same(result, theirs, strides=False, **tolerance)
    for a, b in zip(ours, cpu):
        if isinstance(a, torch.Tensor) and a.device.type == device:
            torch.testing.assert_close(a.cpu(), b, equal_nan=True, **tolerance)
    return result


SOURCES = {
    "dense": ((5, 4, 6), lambda x: x),
    "transposed": ((6, 4, 5), lambda x: x.permute(2, 1, 0)),
    "strided": ((10, 4, 12), lambda x: x[::2, :, ::2]),
    "expanded": ((5, 1, 6), lambda x: x.expand(5, 4, 6)),
}


# ---- reading ----
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SOURCES)
def test_gather_moves_elements_of_every_dtype(case, dtype):
    shape, view = SOURCES[case]
    x = Sample(numbers(shape, dtype), view)
    for dim, size in enumerate((5, 4, 6)):
        index = Sample(places((3, 2, 4), size if dim < 3 else 1))
        assert_native("gather", lambda x, i: torch.gather(x, dim, i), [x, index])
        assert_native("gather", lambda x, i: torch.gather(x, dim - 3, i.int()), [x, index])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SOURCES)
def test_index_select_of_every_dimension(case, dtype):
    shape, view = SOURCES[case]
    for dim, size in enumerate((5, 4, 6)):
        for index in (places((7,), size), places((), size), places((0,), size), places((14,), size)[::2]):
            natively(lambda x, i: torch.index_select(x, dim, i), Sample(numbers(shape, dtype), view), Sample(index))


INDICES = {
    "vector": lambda: (places((7,), 5, negative=True),),
    "matrix": lambda: (places((2, 3), 5, negative=True),),
    "scalar": lambda: (torch.tensor(-2),),
    "second": lambda: (None, places((3,), 4, negative=True)),
    "last": lambda: (None, None, places((2, 2), 6, negative=True)),
    "two adjacent": lambda: (places((3,), 5, negative=True), places((3,), 4, 2, negative=True)),
    "two broadcast": lambda: (places((3, 1), 5), places((2,), 4, 2)),
    "after": lambda: (None, places((3,), 4), places((2, 1), 6, 2)),
    "apart": lambda: (places((3,), 5), None, places((3,), 6, 2, negative=True)),
    "all": lambda: (places((4,), 5), places((4,), 4, 2), places((4,), 6, 3)),
    "empty": lambda: (places((0,), 5),),
    "two empty": lambda: (places((0,), 5), places((0,), 4)),
    "mask": lambda: (places((5,), 2) == 1,),
    "mask of two": lambda: (places((5, 4), 2) == 1,),
    "mask of all": lambda: (places((5, 4, 6), 2) == 1,),
    "mask after": lambda: (None, places((4, 6), 2) == 1),
    "mask and index": lambda: (torch.tensor([True, False, True, False, True]), places((3,), 4)),
    "empty mask": lambda: (torch.zeros(5, dtype=torch.bool),),
    "int32": lambda: (places((3,), 5, negative=True).int(),),
    "strided": lambda: (places((6, 2), 5)[::2, 1],),
}


@pytest.mark.parametrize("case", SOURCES)
@pytest.mark.parametrize("name", INDICES)
def test_indexing_by_tensors(name, case):
    shape, view = SOURCES[case]
    indices = INDICES[name]()
    on = [Sample(i) for i in indices if i is not None]

    def read(x, *given):
        given = iter(given)
        return torch.ops.aten.index.Tensor(x, [None if i is None else next(given) for i in indices])

    natively(read, Sample(numbers(shape), view), *on)


@pytest.mark.parametrize("dtype", DTYPES)
def test_indexing_moves_elements_of_every_dtype(dtype):
    x = Sample(numbers((5, 4, 6), dtype))
    natively(lambda x, i: x[i], x, Sample(places((7,), 5)))
    natively(lambda x, i, j: x[i, :, j], x, Sample(places((7,), 5)), Sample(places((7,), 6)))


def test_uint8_masks_warn_and_select():
    mask = (places((5,), 2)).byte()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        natively(lambda x, m: x[m], Sample(numbers((5, 3))), Sample(mask))


def test_indices_on_the_host_index_device_tensors(device):
    x, index, mask = numbers((5, 4)), places((3,), 5, negative=True), places((5,), 2) == 1
    with strict():
        ours = x.to(device)
        assert torch.equal(ours[index].cpu(), x[index])
        assert torch.equal(ours[mask].cpu(), x[mask])
        ours[index] = 7.0
    x[index] = 7.0
    assert torch.equal(ours.cpu(), x)


def test_more_than_six_dimensions():
    shape = (2, 3, 2, 1, 3, 2, 2, 3)
    x = Sample(numbers(tuple(reversed(shape))), lambda x: x.permute(*reversed(range(8))))
    natively(lambda x, i: x[:, :, :, :, i], x, Sample(places((2,), 3)))
    natively(lambda x, i: torch.gather(x, 1, i), x, Sample(places((2, 4, 2, 1, 3, 2, 2, 3), 3)))
    natively(lambda x, i, s: x.scatter_add(4, i, s), x, Sample(places(shape, 3)), Sample(numbers(shape)))


def test_take_and_embedding():
    for shape in ((3,), (2, 3), ()):
        natively(torch.take, Sample(numbers((6, 5)), lambda x: x.t()), Sample(places(shape, 30, negative=True)))
    natively(torch.nn.functional.embedding, Sample(places((4, 3), 10)), Sample(numbers((10, 5))))


# ---- writing ----
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ["dense", "transposed", "strided"])
def test_scatter_of_every_dtype(case, dtype):
    shape, view = SOURCES[case]
    x, src = Sample(numbers(shape, dtype), view), Sample(numbers((3, 4, 5), dtype, 2))
    for dim, size in enumerate((5, 4, 6)):
        index = Sample(places((3, 3, 4), size))
        natively(lambda x, i, s: x.scatter(dim, i, s), x, index, src)
        natively(lambda x, i: x.scatter_(dim, i, 2), x, index)


@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.parametrize("case", ["dense", "transposed", "strided"])
def test_scatter_add_of_every_dtype(case, dtype):
    shape, view = SOURCES[case]
    for dim, size in enumerate((5, 4, 6)):
        natively(lambda x, i, s: x.scatter_add_(dim, i, s), Sample(numbers(shape, dtype), view), Sample(places((3, 3, 4), size)),
                 Sample(numbers((3, 4, 5), dtype, 2)))  # fmt: skip


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8])
def test_scatter_reduce_and_index_reduce(dtype, reduce, include_self):
    x, index, src = Sample(numbers((5, 4), dtype)), Sample(places((7, 4), 5)), Sample(numbers((7, 4), dtype, 2))
    if reduce == "mean" and not dtype.is_floating_point:
        return  # divides integers
    natively(lambda x, i, s: x.scatter_reduce(0, i, s, reduce, include_self=include_self), x, index, src)
    if reduce != "sum" and dtype.is_floating_point:
        natively(lambda x, i, s: x.index_reduce(0, i, s, reduce, include_self=include_self), x, Sample(places((7,), 5)), src)


def test_old_reductions_of_scatter():
    x, index, src = Sample(numbers((5, 4))), Sample(places((7, 4), 5)), Sample(numbers((7, 4), seed=2))
    for reduce in ("add", "multiply"):
        natively(lambda x, i, s: x.scatter(0, i, s, reduce=reduce), x, index, src)
        natively(lambda x, i: x.scatter(0, i, 3, reduce=reduce), x, index)


@pytest.mark.parametrize("dtype", SUMMED)
def test_index_add_copy_fill(dtype):
    x = Sample(numbers((5, 4, 6), dtype))
    for dim, size in enumerate((5, 4, 6)):
        shape = [5, 4, 6]
        shape[dim] = 3
        src = Sample(numbers(shape, dtype, 2))
        natively(lambda x, i, s: x.index_add(dim, i, s), x, Sample(places((3,), size)), src)
        natively(lambda x, i, s: x.index_copy(dim, i, s), x, Sample(torch.randperm(size)[:3]), src)
        natively(lambda x, i: x.index_fill(dim, i, 1), x, Sample(places((3,), size, negative=True)))
    if dtype != torch.bool and not dtype.is_complex:
        natively(lambda x, i, s: x.index_add(0, i, s, alpha=2), x, Sample(places((3,), 5)), Sample(numbers((3, 4, 6), dtype, 2)))


def test_tensors_without_dimensions():
    zero, x = Sample(torch.tensor(0)), Sample(torch.tensor(3.0))
    natively(lambda x, i: x.gather(0, i), x, zero)
    natively(lambda x, i: x.index_select(0, i), x, zero)
    natively(lambda x, i, s: x.scatter(0, i, s), x, zero, Sample(torch.tensor(5.0)))
    natively(lambda x, i, s: x.scatter_add(0, i, s), x, zero, Sample(torch.tensor(5.0)))
    natively(lambda x, i, s: x.index_add(0, i, s), x, zero, Sample(torch.tensor(5.0)))
    natively(lambda x, i, s: x.index_copy(0, i, s), x, zero, Sample(torch.tensor(5.0)))
    natively(lambda x, i: x.index_fill(0, i, 4.0), x, zero)
    natively(lambda x, m: x.masked_fill(m, 4.0), x, Sample(torch.tensor(True)))
    natively(lambda x, m: x.masked_select(m), x, Sample(torch.tensor(True)))
    natively(lambda x, m: x[m], x, Sample(torch.tensor(True)))
    natively(lambda x: x.nonzero(), x)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("case", ["dense", "transposed", "strided"])
@pytest.mark.parametrize("name", INDICES)
def test_index_put(name, case, accumulate):
    shape, view = SOURCES[case]
    indices = INDICES[name]()
    result = numbers((5, 4, 6))[indices if len(indices) > 1 or indices[0] is None else indices[0]] if None not in indices else None
    values = [numbers((), seed=3)] if result is None else [numbers((), seed=3), numbers(result.shape, seed=3)]

    def write(x, value, *given):
        given = iter(given)
        return torch.ops.aten.index_put_(x, [None if i is None else next(given) for i in indices], value, accumulate)

    for value in values:
        natively(write, Sample(numbers(shape), view), Sample(value), *[Sample(i) for i in indices if i is not None])


@pytest.mark.parametrize("dtype", SUMMED)
def test_index_put_accumulates_equal_indices_in_every_dtype(dtype):
    x, index, values = Sample(numbers((5, 4), dtype)), Sample(places((50,), 5, negative=True)), Sample(numbers((50, 4), dtype, 2))
    natively(lambda x, i, v: x.index_put_((i,), v, accumulate=True), x, index, values)
    natively(lambda x, i, j, v: x.index_put_((i, j), v, accumulate=True), x, index, Sample(places((50,), 4)),
             Sample(numbers((50,), dtype, 2)))  # fmt: skip


def test_the_last_of_equal_indices_wins():
    """The CPU is not a reference here: with two threads any of them may be last."""
    device = torch_backend.device_name()
    for _ in range(20):
        x, places, values = torch.zeros(3, device=device), torch.zeros(5000, dtype=torch.long), torch.arange(5000.0)
        with strict():
            x.index_put_((places.to(device),), values.to(device))
        assert x.tolist() == [4999, 0, 0]


def test_put():
    for accumulate in (False, True):
        for view in (lambda x: x, lambda x: x.t()):
            natively(lambda x, i, s: x.put_(i, s, accumulate), Sample(numbers((4, 5)), view), Sample(torch.randperm(20)[:6].view(2, 3) - 10),
                     Sample(numbers((2, 3), seed=4)))  # fmt: skip


def test_embedding_backward():
    def run(words, weight, **options):
        weight = weight.clone().requires_grad_()
        torch.nn.functional.embedding(words, weight, **options).square().sum().backward()
        return weight.grad

    words, weight = Sample(places((20, 3), 10)), Sample(numbers((10, 5)))
    natively(run, words, weight)
    natively(lambda i, w: run(i, w, padding_idx=2), words, weight)
    natively(lambda i, w: run(i, w, scale_grad_by_freq=True), words, weight)


# ---- masks ----
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != torch.complex128])
def test_masked_fill_select_scatter(dtype):
    x, mask = Sample(numbers((5, 4), dtype)), Sample(places((5, 4), 2) == 1)
    natively(lambda x, m: x.masked_fill(m, 1), x, mask)
    natively(lambda x, m: x.masked_fill_(m[:, :1], 1), x, mask)
    natively(lambda x, m, v: x.masked_fill(m, v), x, mask, Sample(numbers((), dtype)))
    natively(lambda x, m: x.masked_select(m), x, mask)
    natively(lambda x, m, s: x.masked_scatter(m, s), x, mask, Sample(numbers((5, 4), dtype, 3)))


def test_masks_broadcast_and_views_are_filled():
    x = Sample(numbers((6, 4)), lambda x: x.t()[:, ::2])
    natively(lambda x, m: x.masked_fill_(m, float("nan")), x, Sample(torch.tensor([True, False, True])))
    natively(lambda x, m: torch.masked_select(x, m), Sample(numbers((4, 1))), Sample(torch.tensor([True, False, True])))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5000,), (3, 0), (7, 11), (3, 4, 5), (70, 130)])
def test_nonzero(shape):
    for x in (numbers(shape), numbers(shape, torch.uint8), numbers(shape) > 0, torch.zeros(shape), torch.ones(shape, dtype=torch.bool)):
        natively(torch.nonzero, Sample(x))
    natively(lambda x: torch.nonzero(x, as_tuple=True), Sample(numbers((4, 5)), lambda x: x.t()))


@pytest.mark.parametrize("shape", [(4, 5), (7,), (), (0, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("size", [0, 1, 3, 50])
def test_nonzero_static_fills_up_or_cuts_off(shape, size):
    x = numbers(shape)
    natively(lambda x: torch.nonzero_static(x, size=size), Sample(x))
    natively(lambda x: torch.nonzero_static(x, size=size, fill_value=7), Sample(x))
    natively(lambda x: torch.nonzero_static(x, size=size, out=torch.empty(0, dtype=torch.long, device=x.device)), Sample(x))


def test_nonzero_static_reads_no_device_memory_by_the_host():
    """ATen's own function, of the CPU, reads the elements and writes the result."""
    program = """import torch
for shape in ((2, 3), (), (0, 3), (5,)):
    x = torch.arange(max(1, torch.Size(shape).numel())).reshape(-1)[:torch.Size(shape).numel()].reshape(shape) % 2
    for size in (0, 1, 4):
        out = torch.empty(0, dtype=torch.long, device="fake")
        torch.nonzero_static(x.to("fake"), size=size, fill_value=7, out=out)
        theirs = torch.nonzero_static(x, size=size, fill_value=7)
        for ours in (torch.nonzero_static(x.to("fake"), size=size, fill_value=7), out):
            assert torch.equal(ours.cpu(), theirs), (shape, size, ours.cpu(), theirs)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], env={**os.environ, "TORCH_BACKEND": "fake", "HAL_FAKE_PROTECT": "1"}, capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_nonzero_static_refuses_as_on_the_cpu(device):
    x = torch.tensor([[0, 1, 2], [3, 0, 0]])
    for call in (lambda x: torch.nonzero_static(x, size=-1), lambda x: torch.nonzero_static(x, size=2, out=x.new_empty(0, dtype=torch.float32)),
                 lambda x: torch.nonzero_static(x, size=2, out=x.flatten()[:4].view(2, 2))):  # fmt: skip
        said = []
        for tensor in (x, x.to(device)):
            with pytest.raises(RuntimeError) as error:
                call(tensor)
            said.append(str(error.value).splitlines()[0])
        assert said[0] == said[1]


# ---- errors ----
def read_bad(x, index):
    return x[index]


BAD = {
    "index": (read_bad, IndexError, "index 9 is out of bounds for dimension 0 with size 5"),
    "negative": (lambda x, i: x[-i], IndexError, "index -9 is out of bounds for dimension 0 with size 5"),
    "two": (lambda x, i: x[torch.zeros_like(i), i], IndexError, "index 9 is out of bounds for dimension 1 with size 4"),
    "gather": (lambda x, i: x.gather(0, i.unsqueeze(1)), IndexError, "gather: index 9 is out of bounds for dimension 0 with size 5"),
    "index_select": (lambda x, i: x.index_select(1, i), IndexError, "index_select: index 9 is out of bounds for dimension 1 with size 4"),
    "scatter": (lambda x, i: x.scatter_(0, i.unsqueeze(1), 1.0), IndexError, "scatter.src: index 9"),
    "scatter_add": (lambda x, i: x.scatter_add_(0, i.unsqueeze(1), torch.ones_like(x)), IndexError, "index 9"),
    "index_add": (lambda x, i: x.index_add_(0, i, torch.ones_like(x)[:3]), IndexError, "index 9"),
    "index_put": (lambda x, i: x.index_put_((i,), torch.ones_like(x[:1])), IndexError, "index_put: index 9"),
    "index_fill": (lambda x, i: x.index_fill_(0, i, 1.0), IndexError, "index 9"),
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x), IndexError, "index_select: index 9"),
    "take": (lambda x, i: x.take(i + 11), IndexError, "index 20 is out of bounds"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_index_is_reported_once_and_writes_nothing(name, device, module):
    function, error, message = BAD[name]
    guarded = torch.full((7, 4), 3.0, device=device)
    x = guarded[1:6]
    with pytest.raises(error, match=message):
        function(x, torch.tensor([0, 9, 1], device=device))
        module.synchronize()
    module.synchronize()
    assert torch.equal(guarded[[0, 6]].cpu(), torch.full((2, 4), 3.0))
    assert (x + 1).sum().item() is not None


def test_bad_indices_of_two_streams_are_reported_by_each(device, module):
    x, bad = torch.ones(5, device=device), torch.tensor([8], device=device)
    module.synchronize()
    first, second = module.Stream(), module.Stream()
    with first:
        with pytest.raises(IndexError, match="index 8"):
            x[bad]
            first.synchronize()
    with second:
        assert x.sum().item() == 5
        with pytest.raises(IndexError, match="index 8"):
            x[bad]
            second.synchronize()
    module.synchronize()


@pytest.mark.parametrize("call", [
    lambda x: x[torch.tensor([0.5], device=x.device)],
    lambda x: x[torch.zeros(3, dtype=torch.bool, device=x.device)],
    lambda x: x.gather(0, torch.zeros(1, device=x.device)),
    lambda x: x.gather(0, torch.zeros(1, dtype=torch.long, device=x.device)),
    lambda x: x.gather(0, torch.zeros(1, 9, dtype=torch.long, device=x.device)),
    lambda x: x.scatter(0, torch.zeros(1, 1, dtype=torch.long, device=x.device), torch.zeros(1, 1, dtype=torch.long, device=x.device)),
    lambda x: x.index_select(5, torch.zeros(1, dtype=torch.long, device=x.device)),
    lambda x: x.index_select(0, torch.zeros(1, 1, dtype=torch.long, device=x.device)),
    lambda x: x.masked_fill(torch.zeros(5, 4, device=x.device), 1),
    lambda x: x.masked_select(torch.zeros(5, 4, device=x.device)),
    lambda x: x.index_put_((torch.zeros(1, dtype=torch.long, device=x.device),), torch.zeros(1, dtype=torch.long, device=x.device)),
    lambda x: x[torch.zeros(2, dtype=torch.long, device=x.device), torch.zeros(3, dtype=torch.long, device=x.device)],
    lambda x: x.take(torch.zeros(1, device=x.device)),
    lambda x: x.index_add(0, torch.zeros(2, dtype=torch.long, device=x.device), torch.zeros(3, 4, device=x.device)),
])  # fmt: skip
def test_wrong_calls_raise_the_kind_of_error_that_the_cpu_raises(call, device):
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        call(torch.ones(5, 4))
    with pytest.raises(type(theirs.value)):
        call(torch.ones(5, 4, device=device))


def test_operands_of_two_devices_are_refused(device):
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(5, device=device).gather(0, torch.zeros(1, dtype=torch.long))
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(5, device=device).index_select(0, torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("indices", [[], [None], [None, None]], ids=str)
def test_an_assignment_without_an_index_is_refused(device, indices, accumulate):
    """The CPU raises, too, with an internal assertion or about undefined tensors."""
    aten, value = torch.ops.aten, torch.ones(1, device=device)
    for x in (torch.ones(3, 2, device=device), torch.ones((), device=device), torch.ones(0, device=device)):
        for call in (aten.index_put, aten.index_put_, aten._unsafe_index_put, aten._index_put_impl_):
            with pytest.raises(RuntimeError, match=f"index_put_: expected at least one tensor among the indices, and got {len(indices)}"):
                call(x.clone(), indices, value, accumulate)
