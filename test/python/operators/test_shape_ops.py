"""Operators that move elements or compute them from their index - cat, flip, roll, arange, linspace, eye, tril, triu -
compared with CPU PyTorch. Each comparison runs with the strict fallback, so that it fails unless the device's kernels
ran."""

import itertools

import pytest
import torch
from native_reference import Sample, assert_same, place, strict

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool, torch.complex64, torch.complex128]  # fmt: skip
REAL = [dtype for dtype in DTYPES if not dtype.is_complex]


def same(function, *arguments, strides=True, **tolerance):
    """Runs a function on the CPU and natively on the device; results must be equal. Lists of samples are also moved."""

    def put(argument, device):
        return [put(a, device) for a in argument] if isinstance(argument, list) else place(argument, device)

    import torch_backend

    theirs = function(*(put(a, "cpu") for a in arguments))
    placed = [put(a, torch_backend.device_name()) for a in arguments]
    with strict():
        ours = function(*placed)
    assert_same(ours, theirs, strides=strides, **(tolerance or {"rtol": 0, "atol": 0}))
    return ours


def numbers(shape, dtype=torch.float32, view=lambda x: x, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return Sample(torch.randint(0, 2, shape, generator=generator).bool(), view)
    if dtype.is_floating_point or dtype.is_complex:
        return Sample(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype), view)
    return Sample(torch.randint(0, 100, shape, generator=generator).to(dtype), view)


# ---- cat, stack ----
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cat_of_every_dtype_along_every_dimension(dtype):
    for dim in (0, 1, 2, -1):
        same(lambda x: torch.cat(x, dim), [numbers((2, 3, 4), dtype, seed=s) for s in range(3)])
        same(lambda x: torch.stack(x, dim), [numbers((2, 3, 4), dtype, seed=s) for s in range(3)])


def test_cat_promotes_dtypes():
    for a, b in itertools.product(REAL, REAL):
        same(lambda x: torch.cat(x), [numbers((2, 3), a), numbers((4, 3), b, seed=1)])
    same(lambda x: torch.cat(x), [numbers((2,), torch.complex64), numbers((3,), torch.float64)])


def test_cat_of_views_and_of_nothing():
    transposed, strided = (lambda x: x.t()), (lambda x: x[::2, ::2])
    same(lambda x: torch.cat(x), [numbers((3, 5), view=transposed), numbers((4, 6), view=strided), numbers((1, 3), view=lambda x: x.expand(7, 3))])
    # empty vectors fit anywhere
    same(lambda x: torch.cat(x), [numbers((0,)), numbers((2, 3)), numbers((0,), torch.float64)])
    same(lambda x: torch.cat(x), [numbers((0, 3)), numbers((2, 3))])
    same(lambda x: torch.cat(x, 1), [numbers((0, 3)), numbers((0, 2))])
    same(lambda x: torch.cat(x), [numbers((0,)), numbers((0,))])
    same(lambda x: torch.cat(x, 3), [numbers((2, 1, 2, 3, 1, 2, 1, 2), seed=s) for s in range(2)])


def test_cat_keeps_channels_last():
    image = lambda x: x.contiguous(memory_format=torch.channels_last)  # noqa: E731
    same(lambda x: torch.cat(x, 1), [numbers((2, 3, 4, 5), view=image), numbers((2, 6, 4, 5), view=image)])
    same(lambda x: torch.cat(x, 1), [numbers((2, 3, 4, 5), view=image), numbers((2, 6, 4, 5))])


def test_cat_into_given_results():
    def into(x, out):
        return torch.cat(x, 1, out=out)

    for out in (Sample(torch.zeros(2, 7)), Sample(torch.zeros(7, 2), lambda x: x.t()), Sample(torch.zeros(2, 7, dtype=torch.float64)),
                Sample(torch.zeros(0)), Sample(torch.zeros(9, 20), lambda x: x[3:5, 4:18:2])):  # fmt: skip
        same(into, [numbers((2, 3)), numbers((2, 4))], out)


def test_cat_into_a_part_of_a_tensor_leaves_the_rest(device):
    around = torch.arange(180.0, device=device).view(9, 20)
    expected = around.cpu()
    expected[3:5, 4:18:2] = -1
    torch.cat([torch.full((2, 3), -1.0, device=device), torch.full((2, 4), -1.0, device=device)], 1, out=around[3:5, 4:18:2])
    torch.testing.assert_close(around.cpu(), expected, rtol=0, atol=0)


def test_cat_into_a_conjugate(device):
    parts = [torch.randn(2, 3, dtype=torch.complex64) for _ in range(2)]
    places = {}
    for place in ("cpu", device):
        places[place] = torch.zeros(4, 3, dtype=torch.complex64, device=place)
        torch.cat([part.to(place) for part in parts], out=places[place].conj())
    torch.testing.assert_close(places[device].cpu(), places["cpu"], rtol=0, atol=0)


def test_cat_of_conjugates_and_negatives():
    same(lambda x: torch.cat([x[0].conj(), x[1]]), [numbers((2, 3), torch.complex64), numbers((2, 3), torch.complex64, seed=1)])


@pytest.mark.parametrize("call", [
    lambda d: torch.cat([]),
    lambda d: torch.cat([torch.zeros(2, 3, device=d), torch.zeros(2, 4, device=d)]),
    lambda d: torch.cat([torch.zeros(2, device=d), torch.zeros((), device=d)]),
    lambda d: torch.cat([torch.zeros(2, 3, device=d)], dim=2),
    lambda d: (lambda x: torch.cat([x[:2], x[2:]], out=x))(torch.zeros(4, device=d)),
    lambda d: torch.cat([torch.zeros(2, device=d)], out=torch.zeros(1, device=d).expand(2)),
    lambda d: torch.cat([torch.zeros(2, device=d)], out=torch.zeros(2, dtype=torch.int64, device=d)),
])  # fmt: skip
def test_cat_refuses_as_the_cpu_does(device, call):
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as theirs:
        call("cpu")
    with pytest.raises(type(theirs.value)) as ours:
        call(device)
    assert str(ours.value).split("\n")[0].replace(f"'{device}'", "'cpu'") == str(theirs.value).split("\n")[0]


def test_cat_of_two_devices_is_refused(device):
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([torch.zeros(2, device=device), torch.zeros(2)])
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([torch.zeros(2, device=f"{device}:0"), torch.zeros(2, device=f"{device}:1")])


def test_gradient_of_cat(device):
    a, b = (torch.randn(2, 3, device=device, requires_grad=True) for _ in range(2))
    with strict():
        (torch.cat([a, b], 1) * 2).sum().backward()
    assert a.grad.eq(2).all() and b.grad.eq(2).all()


# ---- flip, roll ----
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flip_over_every_set_of_dimensions(dtype):
    for view in (lambda x: x, lambda x: x.permute(2, 0, 1), lambda x: x[:, ::2], lambda x: x[:, :1].expand(3, 4, 5)):
        for dims in ([], [0], [-1], [0, 1], [0, 1, 2]):
            same(lambda x: x.flip(dims), numbers((3, 4, 5), dtype, view))
    same(lambda x: x.flip([0]), numbers((0, 3), dtype))
    same(lambda x: x.flip([]), numbers((), dtype))
    same(lambda x: torch.rot90(x, 3, [0, 1]), numbers((3, 4), dtype))
    same(lambda x: x.flip(list(range(8))), numbers((2, 1, 2, 3, 1, 2, 1, 2), dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_roll(dtype):
    for shift, dim in ((1, 0), (-1, 1), (7, -1), (0, 0), ([1, 2], [0, 1]), ([1, -3, 5], [0, 0, 2])):
        same(lambda x: x.roll(shift, dim), numbers((3, 4, 5), dtype))
    same(lambda x: x.roll(7), numbers((3, 4, 5), dtype, lambda x: x.permute(2, 0, 1)))
    same(lambda x: x.roll(1, 0), numbers((0, 3), dtype))


def test_flip_and_roll_refuse_as_the_cpu_does(device):
    for call in (lambda x: x.flip([0, 0]), lambda x: x.flip([2]), lambda x: x.roll([1, 2], 0), lambda x: x.roll(1, 5), lambda x: x.roll([], [])):
        with pytest.raises((RuntimeError, IndexError)) as theirs:
            call(torch.zeros(2, 3))
        with pytest.raises(type(theirs.value)) as ours:
            call(torch.zeros(2, 3, device=device))
        assert str(ours.value) == str(theirs.value)


# ---- numbers computed from their index ----
@pytest.mark.parametrize("dtype", REAL[:-1], ids=str)
def test_arange_and_range(device, dtype):
    for arguments in ((10,), (0,), (2, 50, 3), (50, 2, -7), (100000 if dtype.itemsize > 2 else 100,), (5, 5)):
        with strict():
            ours = torch.arange(*arguments, dtype=dtype, device=device)
        assert_same(ours, torch.arange(*arguments, dtype=dtype), rtol=0, atol=0)
    out = torch.zeros(20, dtype=dtype, device=device)[::2]
    with strict():
        torch.arange(1, 11, out=out)
    assert out.tolist() == list(range(1, 11))
    if dtype not in (torch.float16, torch.bfloat16):  # which the CPU refuses
        with strict(), pytest.warns(UserWarning, match="range is deprecated"):
            ours = torch.range(1, 9, 2, dtype=dtype, device=device)
        assert ours.tolist() == [1, 3, 5, 7, 9]


def test_arange_of_fractions_and_large_integers(device):
    for dtype in (torch.float32, torch.float64):
        with strict():
            ours = torch.arange(0, 1000, 0.1, dtype=dtype, device=device)
        assert_same(ours, torch.arange(0, 1000, 0.1, dtype=dtype), rtol=1e-6, atol=0)
    with strict():
        ours = torch.arange(2**62, 2**62 + 5, device=device)
    assert ours.tolist() == [2**62 + i for i in range(5)]
    assert torch.arange(5.0, device=device).dtype == torch.float32


def test_arange_refuses_as_the_cpu_does(device):
    for arguments in ((0, 5, 0), (0, 5, -1), (0, float("inf"), 1), (0, float("nan"))):
        with pytest.raises(RuntimeError) as theirs:
            torch.arange(*arguments)
        with pytest.raises(RuntimeError) as ours:
            torch.arange(*arguments, device=device)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8], ids=str)
def test_linspace(device, dtype):
    for start, end, steps in ((0, 1, 11), (-3, 100, 1000), (5, 5, 3), (10, 0, 7), (3, 9, 1), (3, 9, 0), (0, 1, 2)):
        if start < 0 and dtype == torch.uint8:
            continue
        with strict():
            ours = torch.linspace(start, end, steps, dtype=dtype, device=device)
        assert_same(ours, torch.linspace(start, end, steps, dtype=dtype), rtol=1e-6, atol=1e-6)
    with pytest.raises(RuntimeError, match="number of steps must be non-negative"):
        torch.linspace(0, 1, -1, device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logspace(device, dtype):
    for start, end, steps, base in ((0, 3, 10, 10.0), (-2, 2, 101, 2.0), (1, 1, 1, 3.0), (0, 1, 0, 10.0)):
        with strict():
            ours = torch.logspace(start, end, steps, base, dtype=dtype, device=device)
        assert_same(ours, torch.logspace(start, end, steps, base, dtype=dtype), rtol=2e-6, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eye(device, dtype):
    for size in ((3,), (0,), (2, 5), (5, 2), (3, 0)):
        with strict():
            ours = torch.eye(*size, dtype=dtype, device=device)
        assert_same(ours, torch.eye(*size, dtype=dtype))
    with pytest.raises(RuntimeError, match="n must be greater or equal to 0, got -1"):
        torch.eye(-1, device=device)


# ---- triangles ----
@pytest.mark.parametrize("function", [torch.tril, torch.triu])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_triangles(function, dtype):
    views = (lambda x: x, lambda x: x.transpose(1, 2), lambda x: x[:, ::2], lambda x: x.transpose(0, 2), lambda x: x[:1].expand(4, 4, 6))
    for view, diagonal in itertools.product(views, (-9, -3, -1, 0, 1, 2, 9, -(2**62), 2**62)):
        same(lambda x: function(x, diagonal), numbers((3, 4, 6), dtype, view))
    same(function, numbers((0, 3), dtype))
    same(function, numbers((2, 0), dtype))
    same(function, numbers((2, 1, 2, 3, 2, 2, 2, 3, 3), dtype))
    if dtype.is_complex:
        same(lambda x: function(x.conj()), numbers((3, 4), dtype))


@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles_into_given_results(device, name):
    def in_place(x):
        getattr(x[:, 1:], name + "_")(1)
        return x

    same(in_place, numbers((4, 5)))
    function = getattr(torch, name)
    same(lambda x, out: function(x, out=out), numbers((4, 5)), Sample(torch.ones(5, 4), lambda x: x.t()))
    same(lambda x, out: function(x, out=out), numbers((4, 5)), Sample(torch.ones(0)))
    x = torch.arange(1.0, 17).reshape(4, 4)  # a result that is read in another order than it is written
    ours = x.to(device)
    with strict():
        function(ours, out=ours.t())
    assert ours.t().cpu().equal(function(x))
    with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
        function(torch.zeros(3, device=device))


@pytest.mark.parametrize("function", [torch.tril_indices, torch.triu_indices])
def test_lists_of_the_places_of_triangles(device, function):
    for row, col, offset in itertools.product((0, 1, 3, 7), (0, 1, 4, 6), (-9, -2, -1, 0, 1, 3, 9)):
        with strict():
            ours = function(row, col, offset, device=device)
        assert_same(ours, function(row, col, offset), strides=False)
    assert_same(function(300, 200, 5, dtype=torch.int32, device=device), function(300, 200, 5, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="row must be non-negative, got-1"):
        function(-1, 2, device=device)
