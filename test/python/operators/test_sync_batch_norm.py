"""The operators of torch.nn.SyncBatchNorm: two parts of a batch, as of two processes, have the result of one batch norm
in double precision on the CPU."""

import pytest
import torch
import torch.nn.functional as F

from torch_backend.fallback import strict

EPS, MOMENTUM = 1e-5, 0.1


@pytest.fixture(params=[(5, 3, 4, 4), (6, 3)], ids=str)
def batch(request):
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(request.param, generator=generator) * 2 + 5 for _ in range(2))
    return x, dy, torch.tensor([0.5, 1.0, -2.0]), torch.tensor([1.0, 0.0, 3.0])


def reference(x, dy, weight, bias):
    leaves = [t.double().requires_grad_() for t in (x, weight, bias)]
    mean, var = torch.zeros(3).double(), torch.ones(3).double()
    y = F.batch_norm(leaves[0], mean, var, *leaves[1:], training=True, momentum=MOMENTUM, eps=EPS)
    y.backward(dy.double())
    return y.detach(), mean, var, [leaf.grad for leaf in leaves]


def synchronised(device, x, dy, weight, bias, split, counted):
    """The operations of SyncBatchNorm in two processes, run in one."""
    parts, grads = x.to(device).split(split), dy.to(device).split(split)
    weight, bias = weight.to(device), bias.to(device)
    running = torch.zeros(3, device=device), torch.ones(3, device=device)
    means, rstds = zip(*(torch.batch_norm_stats(part, EPS) for part in parts))
    counts = torch.tensor([part.numel() // 3 for part in parts], dtype=torch.float32, device=device)
    last = counts if counted else int(counts[0])
    function = torch.batch_norm_gather_stats_with_counts if counted else torch.batch_norm_gather_stats
    mean, rstd = function(parts[0], torch.stack(means), torch.stack(rstds), *running, MOMENTUM, EPS, last)
    y = torch.cat([torch.batch_norm_elemt(part, weight, bias, mean, rstd, EPS) for part in parts])
    halves = [torch.batch_norm_backward_reduce(g, p, mean, rstd, weight, True, True, True) for g, p in zip(grads, parts)]
    sums = [sum(half[i] for half in halves) for i in range(4)]
    numbers = counts.to(torch.int32)
    dx = [torch.batch_norm_backward_elemt(g, p, mean, rstd, weight, *sums[:2], numbers) for g, p in zip(grads, parts)]
    return y, *running, [torch.cat(dx), *sums[2:]]


@pytest.mark.parametrize("counted", [True, False])
def test_two_parts_of_a_batch_are_normalized_as_one(device, batch, counted):
    split = (len(batch[0]) // 2, len(batch[0]) - len(batch[0]) // 2) if counted else len(batch[0]) // 2
    operands = batch if counted or len(batch[0]) % 2 == 0 else (batch[0][:4], batch[1][:4], *batch[2:])
    expected = reference(*operands)
    with strict():
        ours = synchronised(device, *operands, split, counted)
    for a, b in zip((*ours[:3], *ours[3]), (*expected[:3], *expected[3])):
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-4, atol=1e-4)


def test_half_precision_has_statistics_in_float32(device, batch):
    x = batch[0].half()
    mean, rstd = torch.batch_norm_stats(x.to(device), EPS)
    assert mean.dtype == rstd.dtype == torch.float32
    torch.testing.assert_close(mean.cpu(), x.float().transpose(0, 1).flatten(1).mean(1))
    assert torch.batch_norm_elemt(x.to(device), None, None, mean, rstd, EPS).dtype == torch.float16


def test_an_input_without_channels_is_refused(device):
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        torch.batch_norm_stats(torch.ones(3, device=device), EPS)
