"""Pooling, interpolation, reflection and replication padding, unfolding: forward and backward compared with CPU
PyTorch. Each comparison runs with the strict fallback, so that it fails unless the device's kernels ran."""

import pytest
import torch
import torch.nn.functional as F
import torch_backend
from native_reference import assert_same, strict

TOLERANCE = {torch.float32: {"rtol": 2e-6, "atol": 2e-6}, torch.float64: {"rtol": 1e-12, "atol": 1e-12}}
LAST = torch.channels_last


def image(shape, dtype=torch.float32, view=lambda x: x, seed=0):
    """Random numbers around one with few digits: few equal adjacent elements, and sums with little rounding."""
    numbers = torch.randint(-10000, 10000, shape, generator=torch.Generator().manual_seed(seed))
    return view((numbers / 8192 if dtype.is_floating_point or dtype.is_complex else numbers).to(dtype))


def compare(function, x, *, backward=True, strides=True):
    """Runs a function of a leaf on the CPU and natively on the device; compares results and the gradient of a weighted
    sum."""
    device = torch_backend.device_name()
    tolerance = TOLERANCE.get(x.dtype, {"rtol": 0, "atol": 0})

    def run(tensor):
        leaf = tensor.detach().requires_grad_(backward)
        results = function(leaf)
        results = results if isinstance(results, tuple) else (results,)
        if backward:
            result = results[0]
            weight = torch.arange(result.numel(), dtype=torch.float64).reshape(result.shape).remainder(7).sub(3)
            result.backward(weight.to(result.dtype).to(result.device))
        return results, leaf.grad

    theirs, their_gradient = run(x)
    placed = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=device).copy_(x) if x.numel() else x.to(device)
    with strict():
        ours, our_gradient = run(placed)
    for a, b in zip(ours, theirs):
        assert_same(a.detach(), b.detach(), strides=strides, **(tolerance if a.dtype == x.dtype else {"rtol": 0, "atol": 0}))
    if backward:
        assert_same(our_gradient, their_gradient, strides=strides, **{k: 8 * v for k, v in tolerance.items()})


VIEWS = {"dense": lambda x: x, "channels last": lambda x: x.contiguous(memory_format=LAST), "transposed": lambda x: x.transpose(2, 3),
         "strided": lambda x: x[:, ::2, ::2, 1:]}  # fmt: skip
FLOATS = [torch.float32, torch.float64]


# ---- max pooling ----
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_pool2d(dtype, view):
    for options in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": (3, 2), "stride": (1, 3)},
                    {"kernel_size": 3, "stride": 2, "ceil_mode": True}, {"kernel_size": 2, "dilation": 3},
                    {"kernel_size": 3, "padding": 1, "dilation": 2, "ceil_mode": True}):  # fmt: skip
        compare(lambda x: F.max_pool2d(x, return_indices=True, **options), image((2, 4, 12, 11), dtype, view))


def test_max_pool_of_other_dimensions():
    compare(lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), image((2, 3, 11)))
    compare(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), image((3, 11, 9)))
    for options in ({"kernel_size": 2}, {"kernel_size": (3, 2, 2), "stride": (2, 1, 3), "padding": (1, 0, 1), "ceil_mode": True}):
        compare(lambda x: F.max_pool3d(x, return_indices=True, **options), image((2, 3, 7, 8, 9)))
        compare(lambda x: F.max_pool3d(x, return_indices=True, **options), image((3, 7, 8, 9)))
    compare(lambda x: F.max_pool2d(x, 2), image((0, 3, 4, 4)))


@pytest.mark.parametrize("channels", [3, 5, 64, 130])
def test_max_pool_of_channels_that_are_last(channels):
    """Fewer channels than the least number for which they are computed together, and more than one run of them."""
    x = image((2, channels, 9, 11), view=VIEWS["channels last"])
    x[0, :, 3, 4], x[1, -1, 5, 5:8] = float("nan"), float("-inf")
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for options in ({"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2, "dilation": 3, "stride": 1}):
            compare(lambda x: F.max_pool2d(x, return_indices=True, **options), x.to(dtype))
        compare(lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True), x.to(dtype))
    volume = image((2, channels, 4, 6, 5)).to(memory_format=torch.channels_last_3d)
    compare(lambda x: F.max_pool3d(x, 3, 2, 1, return_indices=True), volume)


def test_max_pool_of_special_values(device):
    x = image((1, 2, 6, 6))
    x[0, 0, 1, 1] = x[0, 0, 1, 2] = x[0, 1, 3, 4] = float("nan")
    x[0, 1, :2] = float("-inf")
    compare(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), x)
    compare(lambda x: F.max_pool2d(x, 2, return_indices=True), torch.zeros(1, 1, 4, 4))
    for dtype in (torch.int64, torch.int32, torch.uint8):
        compare(lambda x: F.max_pool2d(x, 3, return_indices=True), image((2, 3, 9, 9), torch.int64).abs().remainder(200).to(dtype), backward=False)


@pytest.mark.parametrize("options", [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2, "stride": 3},
                                     {"kernel_size": 5, "stride": 1, "dilation": 2}], ids=str)  # fmt: skip
def test_gradients_of_max_pooling_that_are_computed_in_parts(device, options):
    """Images of several parts, several images in one part, parts that begin within an image; the same bits in each run.
    """
    for x in (image((1, 2, 300, 200)), image((70, 30, 14, 14)), image((3, 32, 40, 41)).contiguous(memory_format=LAST)):
        compare(lambda x: F.max_pool2d(x, **options), x)
        values, places = F.max_pool2d(x, return_indices=True, **options)
        window = [options["kernel_size"], options.get("stride", []), options.get("padding", 0), options.get("dilation", 1), False]
        runs = [torch.ops.aten.max_pool2d_with_indices_backward(values.to(device), x.to(device), *window, places.to(device)) for _ in range(3)]
        assert all(torch.equal(runs[0], run) for run in runs[1:])
    compare(lambda x: F.max_pool3d(x, **options), image((2, 2, 9, 60, 50)))
    compare(lambda x: F.max_pool1d(x, **options), image((2, 3, 30000)))


def test_gradients_of_places_that_do_not_exist_go_nowhere(device):
    x, grad = image((2, 3, 8, 8)), torch.ones(2, 3, 4, 4)
    places = F.max_pool2d(x, 2, return_indices=True)[1]
    bad = places.clone()
    bad[:, :, 1, 2], bad[:, :, 3, 3], bad[:, :, 0, 0] = -1, 64, 2**62
    grads = [grad, torch.where(bad == places, grad, 0)]
    for format in (torch.contiguous_format, LAST):
        ours, expected = (torch.ops.aten.max_pool2d_with_indices_backward(g.to(device), x.to(device, memory_format=format), 2, [], 0, 1, False,
                                                                          i.to(device)) for g, i in zip(grads, (bad, places)))  # fmt: skip
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_adaptive_max_pool2d(view):
    for size in (1, (3, 4), (5, 2), (None, 3)):
        compare(lambda x: F.adaptive_max_pool2d(x, size, return_indices=True), image((2, 4, 12, 11), view=view))


def test_adaptive_max_pool_of_other_dimensions():
    compare(lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), image((2, 3, 11)))
    compare(lambda x: F.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True), image((2, 3, 5, 6, 7)))
    compare(lambda x: F.adaptive_max_pool2d(x, (2, 3)), image((3, 5, 6)))
    compare(lambda x: F.adaptive_max_pool2d(x, (7, 9)), image((2, 3, 5, 6)))  # more windows than places


@pytest.mark.parametrize("call", [lambda x: F.max_pool2d(x, 2, padding=2), lambda x: F.max_pool2d(x, 0), lambda x: F.max_pool2d(x, 9),
                                  lambda x: F.max_pool2d(x[0, 0], 2), lambda x: F.max_pool2d(x, (1, 2, 3))])  # fmt: skip
def test_max_pool_refuses_as_the_cpu_does(device, call):
    with pytest.raises(RuntimeError) as theirs:
        call(torch.zeros(1, 2, 4, 4))
    with pytest.raises(RuntimeError) as ours:
        call(torch.zeros(1, 2, 4, 4, device=device))
    assert str(ours.value) == str(theirs.value)


def test_max_pool_backward_has_equal_bits_in_every_run(device):
    x = image((4, 8, 33, 33)).to(device).requires_grad_()
    weight = torch.randn(4, 8, 17, 17, device=device)
    gradients = [torch.autograd.grad(F.max_pool2d(x, 3, 2, 1), x, weight)[0].cpu() for _ in range(3)]
    assert gradients[0].equal(gradients[1]) and gradients[0].equal(gradients[2])


# ---- averages ----
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_avg_pool2d(dtype, view):
    for options in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": (3, 2), "stride": (1, 3)},
                    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, {"kernel_size": 2, "divisor_override": 5},
                    {"kernel_size": 3, "padding": 1, "count_include_pad": False, "ceil_mode": True}):  # fmt: skip
        compare(lambda x: F.avg_pool2d(x, **options), image((2, 4, 12, 11), dtype, view))


def test_avg_pool_of_other_dimensions():
    compare(lambda x: F.avg_pool1d(x, 3, 2, 1), image((2, 3, 11)))
    compare(lambda x: F.avg_pool2d(x, 3, 2, 1), image((3, 11, 9)))
    compare(lambda x: F.avg_pool3d(x, (3, 2, 2), (2, 1, 3), (1, 0, 1), ceil_mode=True), image((2, 3, 7, 8, 9)))
    compare(lambda x: F.avg_pool3d(x, 2, divisor_override=3), image((3, 7, 8, 9)))


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_adaptive_avg_pool2d(view):
    for size in (1, (3, 4), (5, 2), (7, 13)):
        compare(lambda x: F.adaptive_avg_pool2d(x, size), image((2, 4, 12, 11), view=view), strides=size != 1)


def test_adaptive_avg_pool_of_other_dimensions():
    compare(lambda x: F.adaptive_avg_pool1d(x, 4), image((2, 3, 11)))
    compare(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), image((2, 3, 5, 6, 7)))
    compare(lambda x: F.adaptive_avg_pool2d(x, (2, 3)), image((3, 5, 6)))


# ---- interpolation ----
MODES = [("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1), ("nearest-exact", 2), ("nearest-exact", 3), ("linear", 1),
         ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)]  # fmt: skip


@pytest.mark.parametrize("mode,dims", MODES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_interpolation(mode, dims, dtype):
    shape = (2, 3, 5, 7, 6)[: dims + 2]
    corners = [None] if mode.startswith("nearest") else [False, True]
    for align in corners:
        for options in ({"size": (9, 4, 11)[:dims]}, {"scale_factor": 2}, {"scale_factor": 0.6}, {"size": shape[2:]},
                        {"scale_factor": 1.7, "recompute_scale_factor": True}, {"size": (1,) * dims}):  # fmt: skip
            compare(lambda x: F.interpolate(x, mode=mode, align_corners=align, **options), image(shape, dtype))


def test_interpolation_of_images_in_channels_last_order():
    for mode in ("nearest", "bilinear", "bicubic"):
        compare(lambda x: F.interpolate(x, size=(9, 5), mode=mode), image((2, 16, 6, 7), view=VIEWS["channels last"]))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolation_with_antialiasing(mode):
    for align in (False, True):
        for size in ((3, 4), (5, 13), (20, 9)):
            compare(lambda x: F.interpolate(x, size=size, mode=mode, align_corners=align, antialias=True), image((2, 3, 11, 12)))


# ---- padding ----
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64], ids=str)
def test_padding(mode, dtype):
    cases = [((2, 3, 7), (2, 3)), ((3, 7), (4, 0)), ((2, 3, 5, 6), (1, 2, 3, 4)), ((3, 5, 6), (0, 0, 2, 1)), ((2, 3, 5, 6), (-1, 2, 0, -2)),
             ((2, 3, 4, 5, 6), (1, 2, 3, 0, 2, 1)), ((3, 4, 5, 6), (1, 0, 0, 2, 0, 3)), ((0, 3, 7), (1, 1))]  # fmt: skip
    for shape, padding in cases:
        compare(lambda x: F.pad(x, padding, mode), image(shape, torch.float64).to(dtype))
    for channels in (3, 9, 70):  # fewer than are computed as columns, one strip of columns, and several
        for padding in ((1, 1, 2, 2), (0, 3, 1, 0), (-1, 2, 0, -2)):
            compare(lambda x: F.pad(x, padding, mode), image((2, channels, 5, 6), dtype=torch.float64, view=VIEWS["channels last"]))


def test_constant_and_circular_padding():
    for mode in ("constant", "circular"):
        compare(lambda x: F.pad(x, (1, 2, 3, 0), mode), image((2, 3, 5, 6)))


def test_padding_refuses_as_the_cpu_does(device):
    for call in (lambda x: F.pad(x, (4, 0, 0, 0), "reflect"), lambda x: F.pad(x, (-2, -2), "replicate"), lambda x: F.pad(x, (1, 1, 0), "reflect")):
        with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
            call(torch.zeros(1, 2, 4, 4))
        with pytest.raises(type(theirs.value)) as ours:
            call(torch.zeros(1, 2, 4, 4, device=device))
        assert str(ours.value) == str(theirs.value)


# ---- unfolding ----
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unfold_and_fold(dtype):
    for options in ({"kernel_size": 3}, {"kernel_size": (2, 3), "stride": (3, 1), "padding": (1, 2), "dilation": (2, 1)},
                    {"kernel_size": 1, "stride": 2}):  # fmt: skip
        for view in VIEWS.values():
            compare(lambda x: F.unfold(x, **options), image((2, 4, 12, 11), dtype, view))
        columns = F.unfold(image((2, 4, 12, 11), dtype), **options)
        compare(lambda x: F.fold(x, (12, 11), **options), columns)
        compare(lambda x: F.fold(x, (12, 11), **options), columns[0])
    compare(lambda x: F.unfold(x, 2), image((4, 5, 6), dtype))


def test_shuffles():
    compare(lambda x: F.pixel_shuffle(x, 2), image((2, 12, 3, 4)))
    compare(lambda x: F.pixel_unshuffle(x, 2), image((2, 3, 6, 4)))
    compare(lambda x: F.channel_shuffle(x, 3), image((2, 12, 3, 4)))


# ---- copies of a call ----
MAPPED = {
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "avg_pool3d": lambda x: F.avg_pool3d(x[None], 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic of float64": lambda x: F.interpolate(x.double(), size=(5, 7), mode="bicubic", antialias=True),
    "reflect": lambda x: F.pad(x, (1, 2, 1, 2), mode="reflect"),
}


@pytest.mark.parametrize("function", MAPPED.values(), ids=MAPPED)
def test_a_call_needs_nothing_of_the_host_but_its_numbers(function):
    """Indices and weights are computed on the device; forward and backward."""
    leaf = image((2, 4, 8, 9)).to(torch_backend.device_name()).requires_grad_()
    grad, results = torch.ones_like(function(leaf)), []
    assert uploads(lambda: results.append(function(leaf))) == 0
    assert uploads(lambda: torch.autograd.grad(results[0], leaf, grad)) == 0


def test_padding_of_integers_needs_nothing_of_the_host_either():
    x = image((2, 4, 8, 9), torch.int64).to(torch_backend.device_name())
    assert uploads(lambda: F.pad(x, (1, 2, 1, 2), mode="reflect")) == 0


def uploads(call):
    """Counts the copies from the host to the device that a call makes."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.accelerator.synchronize()
    return sum(event.name == "Memcpy HtoD" for event in profile.events())
