"""Lazy mode: reductions, softmax and layer norm become steps of the groups of adjacent element-wise operators, with the
bits of eager mode."""

import itertools

import pytest
import torch
from torch.nn import functional as F

import torch_backend
from torch_backend import lazy

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Rows and their length: one row, few and many, the shortest that are reduced as rows, several per block of the device,
# longer ones, and rows that are reduced in chunks, also of different lengths.
SHAPES = [(1, 40), (3, 32), (1000, 33), (257, 768), (5, 4096), (7, 5000), (2, 20000), (1, 100001), (300000,)]


@pytest.fixture(autouse=True)
def fresh_metrics():
    lazy.reset_metrics()


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w


def standardised(x, w):
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered * centered).mean(-1, keepdim=True).sqrt() + w


def attention_weights(x, w):
    return F.softmax(x * 0.125 + w, -1) * 2


def residual_norm(x, w):
    return F.gelu(F.layer_norm(x + x * 0.5, x.shape[-1:], w, None)) + 1


def statistics(x, w):
    """Further results of an operator, in memory that an earlier value used: that value is read, or only the results
    are."""
    first, second = x.float().sum(-1, keepdim=True), x.float().amax(-1, keepdim=True)
    x = (x - first.to(x.dtype) * 0.5).minimum(second.to(x.dtype))
    del first, second
    y, mean, rstd = torch.native_layer_norm(x * 2, x.shape[-1:], w, w, 1e-5)
    z = (y - mean) * rstd + 1
    return z + torch.native_layer_norm(z * 2, x.shape[-1:], None, None, 1e-5)[1]


def residual_norm_backward(x, w):
    leaf = (x * 2).requires_grad_()
    F.layer_norm(leaf * 0.5, x.shape[-1:], w, w).mul(3).sigmoid().backward(torch.ones_like(x))
    return leaf.grad


def softmax_backward(x, w):
    leaf = (x * 2).detach().requires_grad_()
    F.log_softmax(leaf * 0.5, -1).mul(w).backward(x)
    return leaf.grad


CHAINS = {
    "rms_norm": rms_norm,
    "standardised": standardised,
    "attention_weights": attention_weights,
    "residual_norm": residual_norm,
    "residual_norm_backward": residual_norm_backward,
    "softmax_backward": softmax_backward,
    "statistics": statistics,
    "mean of squares": lambda x, w: ((x - w) * (x - w)).mean(),
    "sums and elements": lambda x, w: torch.cat([(s := (x * 2 + 1)).sum(-1, keepdim=True), s], -1),
    "largest": lambda x, w: (x.abs() + 1).amax(-1).neg() * 2,
    "norm": lambda x, w: (x * 3).norm(dim=-1, keepdim=True) * x,
    "count": lambda x, w: ((x - 1) * w).count_nonzero(-1) + 1,
    "in place": lambda x, w: x.clone().mul_(2).sub_(x.amax(-1, keepdim=True)).exp_().div_(x.sum(-1, keepdim=True).abs_().add_(1)),
}


# For float32 functions, compilers contract the operations differently.
ROUNDED_OTHERWISE = {"residual_norm", "residual_norm_backward"}


def numbers(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def fuses_segments():
    """Only if the host runs the kernels: otherwise groups are element-wise."""
    return torch_backend.device_name() == "fake"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_has_the_bits_of_eager_mode(device, name, dtype):
    for shape in SHAPES:
        x, w = numbers(shape, dtype).to(device), numbers(shape[-1:], dtype, 1).to(device)
        eager = CHAINS[name](x, w)
        with lazy.record():
            put_off = CHAINS[name](x, w)
        if not fuses_segments() and dtype == torch.float32 and name in ROUNDED_OTHERWISE:
            torch.testing.assert_close(put_off, eager, rtol=1e-6, atol=1e-6)
            continue
        assert torch.equal(eager.isnan(), put_off.isnan()) and torch.equal(eager.nan_to_num(), put_off.nan_to_num()), (shape, (eager - put_off).abs().max())


def test_a_norm_is_one_group(device):
    if not fuses_segments():
        pytest.skip("element-wise groups only")
    x, w = numbers((64, 768), torch.float32).to(device), numbers((768,), torch.float32).to(device)
    lazy.reset_metrics()
    with lazy.record():
        y = rms_norm(x, w)
    metrics = lazy.metrics()
    assert metrics["queued"] == 1 and metrics["fused"] == 6, metrics
    torch.testing.assert_close(y.cpu(), rms_norm(x.cpu(), w.cpu()))
    lazy.reset_metrics()
    with lazy.record():
        y = F.softmax(x * 0.5 + w, -1).mul(3)
    assert lazy.metrics()["queued"] == 1, lazy.metrics()
    torch.testing.assert_close(y.cpu(), F.softmax(x.cpu() * 0.5 + w.cpu(), -1) * 3)


def test_a_reduction_belongs_to_the_group_of_its_elements_on_every_device(device):
    x = numbers((64, 768), torch.float32).to(device)
    lazy.reset_metrics()
    with lazy.record():
        kept = x * 2
        y = (kept + 1).abs().sum(-1) * 3 + 1
    assert lazy.metrics()["queued"] == 1 and lazy.metrics()["fused"] == 6, lazy.metrics()
    assert torch.equal(kept.cpu(), x.cpu() * 2)
    torch.testing.assert_close(y.cpu(), (x.cpu() * 2 + 1).abs().sum(-1) * 3 + 1)


def test_segments_of_different_lengths_end_a_group(device):
    x = numbers((96, 64), torch.float32).to(device)
    with lazy.record():
        rows = (x * 2).sum(-1)
        halves = (x * 2).view(96, 2, 32).sum(-1)
        both = (x * 2).sum()
    torch.testing.assert_close(rows.cpu(), (x.cpu() * 2).sum(-1))
    torch.testing.assert_close(halves.cpu(), (x.cpu() * 2).view(96, 2, 32).sum(-1))
    torch.testing.assert_close(both.cpu(), (x.cpu() * 2).sum())


VIEWS = {
    "every other row": lambda x: x[::2],
    "every other matrix row": lambda x: x.view(6, 10, 96)[:, ::2],
    "parts of rows": lambda x: x[:, :64],
    "columns": lambda x: x.t(),
    "turned": lambda x: x.view(6, 10, 96).transpose(0, 1),
    "the same row": lambda x: x[:1].expand(60, 96),
    "the last elements": lambda x: x.flatten()[7:].view(-1)[:4800].view(50, 96),
}


@pytest.mark.parametrize("name", VIEWS)
def test_rows_that_are_not_consecutive_in_memory(device, name):
    def work(x):
        x = x * 1  # a step of the group
        y = VIEWS[name](x)
        first = y.sum(-1, keepdim=True) * 2
        second = F.softmax(y, -1) + first
        third = torch.zeros_like(x)
        if name != "the same row":
            torch.sum(y, -1, keepdim=True, out=VIEWS[name](third)[..., :1])
        return second, third * 0.5, y.amax(-1) + 1, (y * 2).mean()

    x = numbers((60, 96), torch.float32).to(device)
    eager = work(x.clone())
    with lazy.record():
        put_off = work(x.clone())
    for a, b in zip(eager, put_off):
        assert torch.equal(a.nan_to_num(), b.nan_to_num())


@pytest.mark.parametrize("seed", range(40))
def test_random_chains_have_the_bits_of_eager_mode(device, seed):
    """Values of both widths, in place and not, kept and not, repeatedly."""
    shape = [(64, 48), (3, 5, 100), (40, 4097), (1, 70), (2, 9000)][seed % 5]
    dtype = FLOATS[seed // 5 % 4]

    def work():
        generator = torch.Generator().manual_seed(seed)
        pick = lambda n: int(torch.randint(n, (1,), generator=generator))  # noqa: E731
        x = numbers(shape, dtype, seed).to(device)
        wide, narrow = [x, x.flip(-1).contiguous()], [x.sum(-1, keepdim=True), x.amax(-1, keepdim=True)]
        for _ in range(24):
            a, b, m = wide[pick(len(wide))], wide[pick(len(wide))], narrow[pick(len(narrow))]
            action = pick(12)
            if action < 3:
                wide.append([a + b, a * m, torch.where(a > m, a, b)][action])
            elif action < 6:
                narrow.append([a.mean(-1, keepdim=True), (a * b).amin(-1, keepdim=True), m * 0.5 + narrow[0]][action - 3])
            elif action == 6:
                wide.append(F.softmax(a, -1))
            elif action == 7:
                wide.append(F.layer_norm(a, a.shape[-1:], b.flatten()[: a.shape[-1]].contiguous() if pick(2) else None))
            elif action == 8:
                a.mul_(0.5).sub_(m)
            elif action == 9:
                m.sigmoid_()
            elif action == 10 and len(wide) > 3:
                wide.pop(pick(len(wide)))
            elif len(narrow) > 3:
                narrow.pop(pick(len(narrow)))
            wide[-1] = wide[-1].clamp(-100, 100)
        return wide + narrow

    eager = work()
    with lazy.record():
        put_off = work()
    for i, (a, b) in enumerate(itertools.zip_longest(eager, put_off)):
        assert torch.equal(a.nan_to_num(), b.nan_to_num()), (i, a.shape)


def test_memory_that_is_given_back_and_taken_again_within_a_group(device):
    def work(x):
        for _ in range(6):
            y = x * 2 + 1
            m = y.mean(-1, keepdim=True)
            del x
            x = F.layer_norm(y - m, y.shape[-1:])
            del y, m
        return x

    x = numbers((300, 200), torch.float32).to(device)
    eager = work(x.clone())
    with lazy.record():
        put_off = work(x.clone())
    assert torch.equal(eager, put_off)
