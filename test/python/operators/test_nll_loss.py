"""nll_loss, nll_loss2d and cross_entropy with their gradients compared with CPU PyTorch; the strict fallback checks
that the device's kernels ran."""

import math

import pytest
import torch
import torch.nn.functional as F

from torch_backend.fallback import strict

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def targets(classes, *shape, dtype=torch.int64):
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def results(function, x, device):
    leaf = x.clone().to(device).requires_grad_()
    y = function(leaf)
    (y * torch.linspace(1, 2, y.numel()).reshape(y.shape).to(device)).sum().backward()
    return y.detach().cpu(), leaf.grad.cpu()


def assert_native(device, function, x, without_fallback=True, **tolerance):
    """`function` receives the input and a function that moves further operands to its device."""
    theirs = results(lambda leaf: function(leaf, lambda t: t), x, "cpu")
    with strict(without_fallback):
        ours = results(lambda leaf: function(leaf, lambda t: t.to(device)), x, device)
    for a, b in zip(ours, theirs):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        torch.testing.assert_close(a, b, equal_nan=True, **(tolerance or CLOSE))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(7, 5), (1, 3), (5000, 4), (5,), (3, 4, 6), (2, 5, 9, 8), (2, 3, 4, 2, 3), (0, 4)])
def test_every_shape_and_reduction(device, shape, reduction, dtype):
    classes = shape[0] if len(shape) == 1 else shape[1]
    y = targets(classes, *(shape[:1] + shape[2:] if len(shape) > 1 else ()))
    weight = random(classes, seed=2).abs().to(dtype)
    x = random(*shape).to(dtype)
    for ignore in (-100, 1):
        assert_native(device, lambda x, to: F.nll_loss(x, to(y), reduction=reduction, ignore_index=ignore), x, rtol=1e-5, atol=1e-5)
        assert_native(
            device, lambda x, to: F.nll_loss(x, to(y), to(weight), reduction=reduction, ignore_index=ignore), x, rtol=1e-5, atol=1e-5
        )


def test_only_ignored_samples_have_no_mean(device):
    x, y = random(4, 3), torch.full((4,), 2)
    assert_native(device, lambda x, to: F.nll_loss(x, to(y), ignore_index=2), x)
    assert_native(device, lambda x, to: F.nll_loss(x, to(y), ignore_index=2, reduction="sum"), x)


def test_views_and_bytes(device):
    x, y = random(9, 12), targets(9, 12, dtype=torch.uint8)
    assert_native(device, lambda x, to: F.nll_loss(x.t(), to(y)), x)
    assert_native(device, lambda x, to: F.nll_loss(x.t()[::2], to(y)[::2], reduction="none"), x)
    image, places = random(2, 4, 5, 6), targets(5, 2, 4, 6)  # the CPU has no gradient for a view of images
    with strict():
        ours = F.nll_loss(image.to(device).permute(0, 2, 1, 3), places.to(device))
    torch.testing.assert_close(ours.cpu(), F.nll_loss(image.permute(0, 2, 1, 3), places))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy(device, reduction, smoothing):
    x, y, weight = random(33, 10), targets(10, 33), random(10, seed=2).abs()
    plain = smoothing == 0  # smoothing fills the ignored samples by a mask
    assert_native(device, lambda x, to: F.cross_entropy(x, to(y), reduction=reduction, label_smoothing=smoothing), x, plain)
    if plain:
        assert_native(device, lambda x, to: F.cross_entropy(x, to(y), to(weight), reduction=reduction, ignore_index=3), x)
    probabilities = random(33, 10, seed=3).softmax(1)
    assert_native(device, lambda x, to: F.cross_entropy(x, to(probabilities), reduction=reduction, label_smoothing=smoothing), x)


def test_long_batches_are_accurate(device):
    x, y = random(200001, 3).log_softmax(1), targets(3, 200001)
    exact = F.nll_loss(x.double(), y).item()
    with strict():
        assert abs(F.nll_loss(x.to(device), y.to(device)).item() - exact) < 1e-6 * exact


def test_results_given_by_the_caller(device):
    x, y = random(6, 4), targets(4, 6)
    output, total = torch.zeros(0, device=device), torch.zeros(0, device=device)
    with strict():
        torch.ops.aten.nll_loss_forward.output(x.to(device), y.to(device), None, 1, -100, output=output, total_weight=total)
    assert math.isclose(output.item(), F.nll_loss(x, y).item(), rel_tol=1e-6) and total.item() == 6


def test_wrong_shapes_are_refused_as_on_the_cpu(device):
    x, y = random(6, 4).to(device), targets(4, 5).to(device)
    with pytest.raises((RuntimeError, ValueError), match="batch_size"):
        F.nll_loss(x, y)
    with pytest.raises(RuntimeError, match="weight tensor should be defined"):
        F.nll_loss(x[:5], y, torch.ones(3, device=device))
    with pytest.raises(RuntimeError):
        F.nll_loss(random(2, 3, 4, 4).to(device), targets(3, 2, 4, 5).to(device))
    with pytest.raises(RuntimeError, match="Long or Byte|expected scalar type"):
        F.nll_loss(x[:5], y.float())
