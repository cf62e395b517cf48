"""Layer, batch, group and instance normalisation with their gradients against CPU torch; the strict fallback proves that kernels of
ours ran."""

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


def test_batch_norm_keeps_the_memory_format(device):
    def function(x, w, b):
        return F.batch_norm(x.contiguous(memory_format=torch.channels_last), None, None, w, b, True)

    assert_native(device, function, random(2, 6, 5, 4), random(6), random(6))


def test_other_entries_of_batch_norm(device):
    x, w, b = random(4, 3, 5), random(3), random(3)
    mean, var = torch.zeros(3), torch.ones(3)
    calls = [
        lambda x, w, b, mean, var: torch.ops.aten._native_batch_norm_legit(x, w, b, mean, var, True, 0.1, 1e-5)[:2],
        lambda x, w, b, mean, var: torch.ops.aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5),
        lambda x, w, b, mean, var: torch.ops.aten._native_batch_norm_legit_no_training(x, w, b, mean, var, 0.1, 1e-5),
        lambda x, w, b, mean, var: torch.ops.aten._batch_norm_with_update(x, w, b, mean, var, 0.1, 1e-5)[:3],
    ]
    for call in calls:
        theirs = call(*(t.clone() for t in (x, w, b, mean, var)))
        with strict():
            ours = call(*(t.to(device) for t in (x, w, b, mean, var)))
        for a, e in zip(ours, theirs):
            torch.testing.assert_close(a.cpu(), e, **CLOSE)


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
    """Saved statistics are rounded to the parameters' dtype, on the CPU as here."""
    kind = dtype if parameters == "half" else torch.float32
    operands = [random(2, 6, 9, 8).to(dtype), random(6, seed=1).to(kind), random(6, seed=2).to(kind)]
    theirs = results(NORMS[name], operands, "cpu")
    with strict():
        ours = results(NORMS[name], operands, device)
    for a, b in zip(ours, theirs):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        close_to(a, b, dtype, 4)


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
        for call in (lambda x, w: torch.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5),
                     lambda x, w: torch.native_group_norm(x, w, w, 4, 6, 5, 2, 1e-5)):  # fmt: skip
            with strict():
                ours = call(x.to(device), None if w is None else w.to(device))
            assert [t.dtype for t in ours] == [t.dtype for t in call(x, w)]


def test_parameters_that_the_cpu_refuses_are_refused(device):
    x, w, mean = random(4, 6, 5).half(), torch.ones(6).half(), torch.zeros(6)
    for where in ("cpu", device):
        with pytest.raises(RuntimeError, match="expected scalar type Half but found Float|mixed dtype"):
            F.batch_norm(*(t.to(where) for t in (x, mean, mean + 1, w, w)), training=True)
