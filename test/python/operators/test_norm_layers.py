"""Layer, batch, group and instance normalization with their gradients compared with CPU PyTorch; the strict fallback
checks that the device's kernels ran."""

import pytest
import torch
import torch.nn.functional as F

from torch_backend.fallback import strict

CLOSE = {"rtol": 2e-4, "atol": 2e-4}  # sums of hundreds of rounded products


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def results(function, operands, device):
    """The value and the gradients of a weighted sum of it."""
    leaves = [x.clone().to(device).requires_grad_() for x in operands]
    y = function(*leaves)
    (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(device)).sum().backward()
    return [y.detach(), *(x.grad for x in leaves)]


def assert_native(device, function, *operands, **tolerance):
    theirs = results(function, operands, "cpu")
    with strict():
        ours = results(function, operands, device)
    for a, b in zip(ours, theirs):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        torch.testing.assert_close(a.cpu(), b, equal_nan=True, **(tolerance or CLOSE))
    assert ours[0].stride() == theirs[0].stride()


@pytest.mark.parametrize("shape", [(3, 4, 70), (5, 1), (2, 3), (700, 33), (1, 9000), (0, 7)])
def test_layer_norm(device, shape):
    n = shape[-1]
    x, w, b = random(*shape), random(n, seed=1), random(n, seed=2)
    assert_native(device, lambda x, w, b: F.layer_norm(x, (n,), w, b), x, w, b)
    assert_native(device, lambda x, w: F.layer_norm(x, (n,), w), x, w)
    assert_native(device, lambda x: F.layer_norm(x, (n,)), x)
    assert_native(device, lambda x, w, b: F.layer_norm(x, (n,), w, b), x.double(), w.double(), b.double(), rtol=1e-9, atol=1e-11)


def test_layer_norm_over_several_dimensions_and_of_views(device):
    x, w, b = random(3, 4, 70), random(4, 70, seed=1), random(4, 70, seed=2)
    assert_native(device, lambda x, w, b: F.layer_norm(x, (4, 70), w, b), x, w, b)
    assert_native(device, lambda x: F.layer_norm(x.transpose(0, 2)[::3], (3,)), x)
    assert_native(device, lambda x, w: F.layer_norm(x, (3,), w[::2, 0, 0][:3]), random(5, 3), random(6, 2, 2))


def test_layer_norm_of_part_of_the_gradients(device):
    x, w, b = random(4, 6).to(device), random(6).to(device).requires_grad_(), random(6).to(device)
    with strict():
        F.layer_norm(x, (6,), w, b).sum().backward()
    h = F.layer_norm(x.cpu(), (6,))
    torch.testing.assert_close(w.grad.cpu(), h.sum(0), **CLOSE)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (0,)])
def test_layer_norm_of_rows_of_nothing(device, shape):
    for dtype in (torch.float32, torch.float64, torch.float16):
        x = torch.zeros(shape, dtype=dtype)
        weight, bias = torch.ones(shape[-1:], dtype=dtype), torch.ones(shape[-1:], dtype=dtype)
        for parameters in ((None, None), (weight, bias)):
            ours = torch.native_layer_norm(x.to(device), shape[-1:], *(p if p is None else p.to(device) for p in parameters), 1e-5)
            theirs = torch.native_layer_norm(x, shape[-1:], *parameters, 1e-5)
            for a, b in zip(ours, theirs):
                assert torch.equal(a.cpu().nan_to_num(9).double(), b.nan_to_num(9).double())
        assert_native(device, lambda a, w, b: F.layer_norm(a, shape[-1:], w, b), x, weight, bias)


def test_layer_norm_far_from_zero_is_accurate(device):
    x = 1e3 + random(8, 4097)
    exact = F.layer_norm(x.double(), (4097,))
    with strict():
        ours = F.layer_norm(x.to(device), (4097,))
    assert (ours.cpu().double() - exact).abs().max() < 2e-4


def test_layer_norm_refuses_wrong_shapes_as_on_the_cpu(device):
    with pytest.raises(RuntimeError, match="Given normalized_shape="):
        F.layer_norm(random(3, 4).to(device), (5,))
    with pytest.raises(RuntimeError, match="Expected weight to be of same shape"):
        F.layer_norm(random(3, 4).to(device), (4,), random(5).to(device))


SHAPES = [(8, 5), (4, 3, 7), (2, 6, 5, 4), (2, 3, 2, 3, 4), (64, 6, 9, 9)]


@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm(device, shape):
    c = shape[1]
    x, w, b = random(*shape), random(c, seed=1), random(c, seed=2)

    def evaluation(x, w=None, b=None):
        return F.batch_norm(x, torch.full((c,), 0.3, device=x.device), torch.full((c,), 2.0, device=x.device), w, b)

    assert_native(device, lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, w, b)
    assert_native(device, lambda x: F.batch_norm(x, None, None, None, None, True), x)
    assert_native(device, lambda x, w: F.batch_norm(x, None, None, w, None, True), x, w)
    assert_native(device, evaluation, x, w, b)
    assert_native(device, evaluation, x)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_keeps_running_statistics(device, momentum):
    ours, theirs = (torch.nn.BatchNorm2d(6, momentum=momentum).to(where) for where in (device, "cpu"))
    for step in range(3):
        x = random(2, 6, 5, 4, seed=step) * (step + 1) + step
        with strict():
            y = ours(x.to(device))
        torch.testing.assert_close(y.cpu(), theirs(x), **CLOSE)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(ours, name).cpu(), getattr(theirs, name), **CLOSE)
    with strict():
        torch.testing.assert_close(ours.eval()(x.to(device)).cpu(), theirs.eval()(x), **CLOSE)


def in_format(x, layout):
    """The same numbers in another layout."""
    formats = {"channels last": {4: torch.channels_last, 5: torch.channels_last_3d}}
    if layout in formats and x.dim() in formats[layout]:
        return x.contiguous(memory_format=formats[layout][x.dim()])
    return x.transpose(0, -1).contiguous().transpose(0, -1) if layout == "transposed" else x


# Planes in one block and in several, columns with several channels or adjacent rows, few and many channels.
WALKS = [(3, 2, 70, 70), (2, 1, 9000), (17, 70), (300, 3), (16, 32, 8, 8), (16, 64, 4, 4), (1, 40, 7, 7), (64, 6, 7, 7), (2, 16, 3, 20, 5)]


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "transposed"])
@pytest.mark.parametrize("shape", WALKS, ids=str)
def test_batch_norm_in_every_walk_and_layout(device, shape, layout):
    c = shape[1]
    x, w, b = random(*shape).mul(3).add(5), random(c, seed=1), random(c, seed=2)

    def training(x, w, b):
        return F.batch_norm(in_format(x, layout), None, None, w, b, True)

    def evaluation(x, w, b):
        return F.batch_norm(in_format(x, layout), w.detach(), b.detach().square(), w, b)

    for function in (training, evaluation):
        assert_native(device, function, x.double(), w.double(), b.double(), rtol=1e-9, atol=1e-9)
        exact = results(function, (x.double(), w.double(), b.double()), "cpu")
        with strict():
            ours = results(function, (x, w, b), device)
        for a, e in zip(ours, exact):
            torch.testing.assert_close(a.cpu().double(), e, rtol=1e-4, atol=1e-5 * max(1.0, e.abs().max().item()))


@pytest.mark.parametrize("shape", [(16, 3, 32, 32), (2000, 5), (64, 2, 9)], ids=str)
def test_batch_norm_far_from_zero_is_accurate(device, shape):
    """Means are rounded to float32, which must not affect variances."""
    x = 1e4 + random(*shape) / 16
    ours, exact = torch.zeros(2, shape[1], device=device), torch.zeros(2, shape[1], dtype=torch.float64)
    with strict():
        F.batch_norm(x.to(device), ours[0], ours[1], training=True, momentum=1.0)
    F.batch_norm(x.double(), exact[0], exact[1], training=True, momentum=1.0)
    torch.testing.assert_close(ours[0].cpu().double(), exact[0], rtol=2**-23, atol=0)
    torch.testing.assert_close(ours[1].cpu().double(), exact[1], rtol=1e-5, atol=0)


def test_running_statistics_that_are_views_are_updated(device):
    x, w = random(4, 3, 5), random(3)
    for dtype in (torch.float32, torch.float16):
        statistics = [torch.ones(2, 6, dtype=dtype, device=where) for where in (device, "cpu")]
        with strict():
            F.batch_norm(x.to(device, dtype), statistics[0][0, ::2], statistics[0][1, ::2], w.to(device, dtype), training=True)
        F.batch_norm(x.to(dtype), statistics[1][0, ::2], statistics[1][1, ::2], w.to(dtype), training=True)
        torch.testing.assert_close(statistics[0].cpu(), statistics[1], rtol=2e-3, atol=1e-3)
        assert statistics[0][:, 1::2].eq(1).all()


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_has_second_derivatives(device, training):
    x, w, b = random(3, 2, 4).double(), random(2, seed=1).double(), random(2, seed=2).double()

    def gradients(where):
        leaves = [t.clone().to(where).requires_grad_() for t in (x, w, b)]
        mean, var = (torch.full((2,), v, device=where, dtype=torch.float64) for v in (0.3, 2.0))
        y = F.batch_norm(leaves[0], mean, var, leaves[1], leaves[2], training).sin().sum()
        first = torch.autograd.grad(y, leaves, create_graph=True)
        return torch.autograd.grad(sum(g.cos().sum() for g in first), leaves, allow_unused=True)

    for a, e in zip(gradients(device), gradients("cpu")):
        assert (a is None) == (e is None)
        if a is not None:
            torch.testing.assert_close(a.cpu(), e, rtol=1e-9, atol=1e-11)


def test_parts_of_the_gradients_of_batch_norm(device):
    """Outputs that are not requested are None, and requested ones do not depend on them."""
    x, dy, w = random(4, 3, 6), random(4, 3, 6, seed=1), random(3)
    for training in (True, False):
        full = None
        for mask in range(7, 0, -1):
            wanted = [bool(mask & bit) for bit in (1, 2, 4)]
            mean, rstd = torch.full((3,), 0.2), torch.full((3,), 1.5)
            operands = [t.to(device) for t in (dy, x, w, mean, rstd, mean, rstd)]
            with strict():
                parts = torch.ops.aten.native_batch_norm_backward(*operands, training, 1e-5, wanted)
            full = full or parts
            for part, whole, want in zip(parts, full, wanted):
                assert (part is not None) == want
                assert not want or torch.equal(part, whole)


def test_batch_norm_of_nothing_and_of_one_value_per_channel(device):
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        F.batch_norm(random(1, 3).to(device), None, None, training=True)
    layers = [torch.nn.BatchNorm1d(3).to(where) for where in (device, "cpu")]
    for where, layer in zip((device, "cpu"), layers):
        assert layer(torch.empty(0, 3, 4, device=where)).shape == (0, 3, 4)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(layers[0], name).cpu(), getattr(layers[1], name), equal_nan=True)


def test_other_entries_of_batch_norm(device):
    x, w, b = random(4, 3, 5), random(3), random(3)
    mean, var = torch.zeros(3), torch.ones(3)
    calls = [
        lambda x, w, b, mean, var: torch.ops.aten._native_batch_norm_legit(x, w, b, mean, var, True, 0.1, 1e-5)[:2],
        lambda x, w, b, mean, var: torch.ops.aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5),
        lambda x, w, b, mean, var: torch.ops.aten._native_batch_norm_legit_no_training(x, w, b, mean, var, 0.1, 1e-5)[:1],
        lambda x, w, b, mean, var: torch.ops.aten._batch_norm_with_update(x, w, b, mean, var, 0.1, 1e-5)[:3],
    ]
    for call in calls:
        theirs = call(*(t.clone() for t in (x, w, b, mean, var)))
        with strict():
            ours = call(*(t.to(device) for t in (x, w, b, mean, var)))
        for a, e in zip(ours, theirs):
            torch.testing.assert_close(a.cpu(), e, **CLOSE)


ENTRIES = {
    "native_batch_norm": lambda x, w, b, mean, var, training: torch.native_batch_norm(x, w, b, mean, var, training, 0.1, 1e-3),
    "legit": lambda x, w, b, mean, var, training: torch.ops.aten._native_batch_norm_legit(x, w, b, mean, var, training, 0.1, 1e-3),
    "no training": lambda x, w, b, mean, var, training: torch.ops.aten._native_batch_norm_legit_no_training(x, w, b, mean, var, 0.1, 1e-3),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_saved_statistics_are_those_of_the_call_in_the_computing_dtype(device, dtype, entry):
    """FakeTensor's rule for accelerators: the mean and rstd with which the result was normalized. The CPU saves nothing
    in evaluation."""
    for shape in SHAPES + [(0, 3, 4), (300, 3, 1), (1, 40, 7, 7)]:
        for training in {entry != "no training", False}:
            if training and (0 in shape or entry == "no training"):
                continue
            x = random(*shape).to(dtype)
            running = [random(shape[1], seed=5).to(dtype), random(shape[1], seed=6).abs().to(dtype) + 1]
            with strict():
                _, mean, rstd = ENTRIES[entry](x.to(device), None, None, *(r.to(device) for r in running), training)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            dims = [d for d in range(len(shape)) if d != 1]
            exact = [r.double() for r in running]
            if training:
                exact = [x.double().mean(dims), x.double().var(dims, unbiased=False)]
            assert mean.dtype == rstd.dtype == wide
            torch.testing.assert_close(mean.cpu(), exact[0].to(wide), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(rstd.cpu(), (exact[1] + 1e-3).rsqrt().to(wide), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_group_and_instance_norm(device, shape):
    c = shape[1]
    x, w, b = random(*shape), random(c, seed=1), random(c, seed=2)
    for groups in {1, c, 3 if c % 3 == 0 else 1}:
        assert_native(device, lambda x, w, b: F.group_norm(x, groups, w, b), x, w, b)
        assert_native(device, lambda x: F.group_norm(x, groups), x)
    if len(shape) > 2:
        assert_native(device, lambda x, w, b: F.instance_norm(x, None, None, w, b), x, w, b)


def test_rms_norm(device):
    assert_native(device, lambda x, w: F.rms_norm(x, (40,), w), random(5, 40), random(40))


# ---- half precision: computed in float32, rounded once ----
HALVES = [torch.float16, torch.bfloat16]
NORMS = {
    "batch": lambda x, w=None, b=None: F.batch_norm(x, None, None, w, b, True),
    "evaluation": lambda x, w=None, b=None: F.batch_norm(x, *statistics(x, w), w, b),
    "group": lambda x, w=None, b=None: F.group_norm(x, 3, w, b),
    "one group": lambda x, w=None, b=None: F.group_norm(x, 1, w, b),
    "instance": lambda x, w=None, b=None: F.instance_norm(x, None, None, w, b),
    "layer": lambda x, w=None, b=None: F.layer_norm(x.transpose(1, -1), (6,), w, b),
}


def statistics(x, w):
    """Running statistics in the dtype of the weight."""
    dtype = x.dtype if w is None else w.dtype
    return tuple(torch.linspace(low, 2, 6).to(x.device, dtype) for low in (-1, 0.5))


def close_to(a, b, dtype, roundings):
    limit = roundings * torch.finfo(dtype).eps
    error = (a.detach().cpu().double() - b.detach().double()).abs().max()
    assert error <= limit * b.detach().double().abs().max(), (error, limit)


@pytest.mark.parametrize("parameters", ["half", "float32", "none"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_half_precision_is_rounded_once(device, name, dtype, parameters):
    for shape in ((4, 6, 5), (2, 6, 9, 8), (3, 6, 2, 3, 4)):
        kind = dtype if parameters == "half" else torch.float32
        operands = [random(*shape).add(2).to(dtype)]
        if parameters != "none":
            operands += [random(6, seed=1).to(kind), random(6, seed=2).to(kind)]
        exact = NORMS[name](*(t.double() for t in operands))
        with strict():
            ours = NORMS[name](*(t.to(device) for t in operands))
        assert (ours.dtype, ours.shape) == (dtype, exact.shape)
        close_to(ours, exact, dtype, 0.51)


@pytest.mark.parametrize("parameters", ["half", "float32"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_gradients_of_half_precision(device, name, dtype, parameters):
    """The CPU rounds saved statistics to the parameters' dtype; those of batch norms are float32 here. The reference is
    double precision, also for layer_norm: CPU PyTorch sums its parameters' gradients in half precision, with an error
    of a tenth."""
    kind = dtype if parameters == "half" else torch.float32
    operands = [random(2, 6, 9, 8).to(dtype), random(6, seed=1).to(kind), random(6, seed=2).to(kind)]
    theirs = results(NORMS[name], operands, "cpu")
    truth = results(NORMS[name], [o.double() for o in operands], "cpu") if name in ("layer", "batch", "instance") else theirs
    with strict():
        ours = results(NORMS[name], operands, device)
    for a, b, exact in zip(ours, theirs, truth):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        close_to(a, exact, dtype, 4)


@pytest.mark.parametrize("kind", ["half", "float32"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_batch_norm_of_halves_keeps_running_statistics(device, dtype, kind):
    ours, theirs = (torch.nn.BatchNorm2d(6).to(where, dtype if kind == "half" else torch.float32) for where in (device, "cpu"))
    for step in range(3):
        x = (random(2, 6, 5, 4, seed=step) * (step + 1) + step).to(dtype)
        with strict():
            y = ours(x.to(device))
        close_to(y, theirs(x), dtype, 2)
    for name in ("running_mean", "running_var"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert a.dtype == b.dtype
        close_to(a, b, b.dtype if kind == "half" else torch.float16, 2)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_statistics_have_the_parameters_dtype(device, dtype):
    x = random(4, 6, 5).to(dtype)
    for w in (None, torch.ones(6, dtype=dtype), torch.ones(6)):
        moved = None if w is None else w.to(device)
        with strict():
            batch = torch.native_batch_norm(x.to(device), moved, moved, None, None, True, 0.1, 1e-5)
            group = torch.native_group_norm(x.to(device), moved, moved, 4, 6, 5, 2, 1e-5)
        assert [t.dtype for t in batch] == [dtype, torch.float32, torch.float32]  # of batch norms as in FakeTensor
        assert [t.dtype for t in group] == [t.dtype for t in torch.native_group_norm(x, w, w, 4, 6, 5, 2, 1e-5)]


def test_parameters_that_the_cpu_refuses_are_refused(device):
    x, w, mean = random(4, 6, 5).half(), torch.ones(6).half(), torch.zeros(6)
    for where in ("cpu", device):
        with pytest.raises(RuntimeError, match="expected scalar type Half but found Float|mixed dtype"):
            F.batch_norm(*(t.to(where) for t in (x, mean, mean + 1, w, w)), training=True)


@pytest.mark.parametrize("stranger", ["weight", "bias", "running_mean", "running_var"])
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_refuses_parameters_of_another_device(device, stranger, training):
    operands = {name: torch.ones(3, device=f"{device}:0") for name in ("weight", "bias", "running_mean", "running_var")}
    operands[stranger] = operands[stranger].to(f"{device}:1")
    with pytest.raises(RuntimeError, match=f"same device.*{device}:0 and {device}:1"):
        F.batch_norm(random(4, 3, 5).to(f"{device}:0"), training=training, **operands)
    assert all(value.cpu().equal(torch.ones(3)) for value in operands.values())


def test_batch_norm_refuses_a_gradient_of_another_device(device):
    x, numbers = random(4, 3, 5).to(f"{device}:0"), torch.ones(3, device=f"{device}:0")
    with pytest.raises(RuntimeError, match="same device"):
        torch.ops.aten.native_batch_norm_backward(x.to(f"{device}:1"), x, numbers, None, None, numbers, numbers, True, 1e-5, [True] * 3)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_batch_norm_of_nothing_is_refused_as_on_the_cpu_and_leaves_the_statistics(device, shape):
    sentences, kept = [], []
    for place in ("cpu", device):
        mean, var = torch.zeros(shape[1], device=place), torch.ones(shape[1], device=place)
        with pytest.raises(RuntimeError) as error:
            torch.ops.aten.native_batch_norm(torch.empty(shape, device=place), None, None, mean, var, True, 0.1, 1e-5)
        sentences.append(str(error.value).splitlines()[0])
        kept.append((mean.cpu(), var.cpu()))
    assert sentences[0] == sentences[1]
    assert all(torch.equal(a, b) for a, b in zip(*kept))
