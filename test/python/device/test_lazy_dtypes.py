"""LTC_USE_BF16, LTC_USE_32BIT_LONG and similar variables: lazy tensors are computed in narrower dtypes than they
report. Each test runs in a separate process, because the environment is read once."""

import textwrap

import pytest

PROLOGUE = """
import os
import torch
from torch import nn
import torch_backend
torch_backend.use("fake")
torch_backend.lazy.device.enable()
device, ours = "lazy", torch.get_device_module("fake")
BF16 = os.environ.get("LTC_USE_BF16") == "1"

def holds(make):   # bytes of the device's memory
    torch_backend.lazy.mark_step()
    before = ours.memory_allocated()
    kept = make()
    torch_backend.lazy.mark_step()
    return ours.memory_allocated() - before
"""


@pytest.fixture
def run(run_python):
    return lambda script, **settings: run_python(PROLOGUE + textwrap.dedent(script), **settings)


NARROWED = """
    for make in (lambda d: torch.full((4,), 4096, dtype=d, device=device), lambda d: torch.full((4,), 4096, dtype=d).to(device), lambda d: torch.tensor([4096] * 4, dtype=d, device=device)):
        for dtype, reads in expected:
            x = make(dtype) + 1
            assert x.dtype == dtype and x.cpu().dtype == dtype and x.cpu()[0].item() == reads, (dtype, x.cpu())
            assert (x + 1).to("fake").dtype == dtype and x.tolist()[0] == reads
    sizes = {dtype: holds(lambda: torch.ones(1 << 20, dtype=dtype).to(device)) >> 20 for dtype, _ in expected}
    assert sizes == bytes_each, sizes
    a, b = torch.ones(4, device=device), torch.ones(4, device=device, dtype=torch.float64)
    half, brain, whole = (torch.ones(4, device=device, dtype=d) for d in (torch.half, torch.bfloat16, torch.int64))
    assert (a + b).dtype == torch.float64 and (a * half).dtype == torch.float32 and (a * brain).dtype == torch.float32 and (brain * 2).dtype == torch.bfloat16
    assert (whole / 2).dtype == torch.float32 and (whole + a).dtype == torch.float32 and (a > b).dtype == torch.bool and torch.result_type(a, brain) == torch.float32
    assert a.double().dtype == torch.float64 and b.float().dtype == torch.float32 and a.bfloat16().dtype == torch.bfloat16 and a.sum(dtype=torch.float64).dtype == torch.float64
    assert a.view(2, 2).dtype == a.t().dtype == a[1:].dtype == torch.float32 and torch.arange(3.0, device=device).dtype == torch.float32
    assert torch.zeros_like(b).dtype == torch.float64 and torch.randn(3, device=device).dtype == torch.float32 and b.new_ones(2).dtype == torch.float64
    assert [t.dtype for t in torch.cat([b, b]).chunk(2)] == [torch.float64] * 2 and torch.stack([a, brain]).dtype == torch.float32
    base = torch.zeros(4, 4, device=device)
    base[1:3].add_(1)
    base[0, whole[:2]] = 5.0
    assert base.cpu().sum() == 13 and base.dtype == torch.float32
    out = torch.empty(4, device=device)
    assert torch.add(a, a, out=out) is out and out.cpu().tolist() == [2.0] * 4
    host = torch.empty(4)
    host.copy_(a + 1)
    assert host.tolist() == [2.0] * 4 and out.copy_(torch.full((4,), 7.0, dtype=torch.float64)).cpu().tolist() == [7.0] * 4
    for one, other in ((a, torch.int32), (torch.ones(4, device=device, dtype=torch.int32), torch.float32)):
        try:
            one.view(other)
        except NotImplementedError as error:
            assert "no such bits" in str(error)
        else:
            raise SystemExit("the bits of a narrowed dtype were shown")
"""


def test_float_and_double_are_bfloat16_and_report_their_own_dtypes(run):
    run("expected, bytes_each = ((torch.float32, 4096), (torch.float64, 4096), (torch.bfloat16, 4096)), {torch.float32: 2, torch.float64: 2, torch.bfloat16: 2}\n"
        + textwrap.dedent(NARROWED), LTC_USE_BF16=1)  # fmt: skip


@pytest.mark.parametrize("name", ["XLA_USE_BF16", "LTC_DOWNCAST_BF16", "XLA_DOWNCAST_BF16"])
def test_float_is_bfloat16_and_double_float(run, name):
    run("expected, bytes_each = ((torch.float32, 4096), (torch.float64, 4097), (torch.bfloat16, 4096)), {torch.float32: 2, torch.float64: 4, torch.bfloat16: 2}\n"
        + textwrap.dedent(NARROWED), **{name: 1})  # fmt: skip


def test_without_the_variables_dtypes_are_as_reported(run):
    run("""
        for dtype, reads, size in ((torch.float32, 4097, 4), (torch.float64, 4097, 8), (torch.bfloat16, 4096, 2)):
            x = torch.full((4,), 4096, dtype=dtype, device=device) + 1
            assert x.dtype == dtype and x.cpu()[0].item() == reads
            assert holds(lambda: torch.ones(1 << 20, dtype=dtype).to(device)) >> 20 == size
        assert torch.ones(2, device=device).view(torch.int32).cpu()[0] == 0x3F800000
    """, LTC_USE_BF16=0)


def test_a_network_trains_narrowed_and_is_saved_in_its_reported_dtype(run):
    run("""
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        x, y = torch.randn(4, 3, 8, 8).to(device), torch.randint(5, (4,)).to(device)
        losses = []
        for _ in range(12):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.1 < losses[0] and loss.dtype == torch.float32
        assert {p.dtype for p in net.parameters()} == {p.grad.dtype for p in net.parameters()} == {torch.float32}
        torch.save(net.state_dict(), "net.pt")
        back = torch.load("net.pt", map_location="cpu")
        assert {v.dtype for v in back.values()} == {torch.float32, torch.int64} and back["4.weight"].bfloat16().float().equal(back["4.weight"])
    """, LTC_USE_BF16=1)


@pytest.mark.parametrize("name", ["LTC_USE_32BIT_LONG", "XLA_USE_32BIT_LONG"])
def test_long_is_32_bits_and_indices_work(run, name):
    run("""
        from torch.nn import functional as F
        assert holds(lambda: torch.arange(1 << 20).to(device)) >> 20 == 4 and holds(lambda: torch.arange(1 << 20, device=device)) >> 20 == 4
        x, host = torch.arange(12, device=device), torch.arange(12)
        assert x.dtype == torch.int64 and x.cpu().dtype == torch.int64 and (x + 1).dtype == torch.int64 and x.to("fake").dtype == torch.int64
        big = torch.full((2,), 2**31 - 1, dtype=torch.int64, device=device) + 1
        assert big.tolist() == [-(2**31)] * 2, "as 32 bits do"
        short = torch.ones(3, dtype=torch.int32, device=device)
        assert (short + short).dtype == torch.int32 and (short + x[:3]).dtype == torch.int64 and x.sum().dtype == torch.int64 and x.sum().item() == 66
        assert (x / 2).dtype == torch.float32 and (x > 3).sum().item() == 8 and x.float().long().dtype == torch.int64 and torch.randint(9, (3,), device=device).dtype == torch.int64
        m = torch.arange(12.0).view(3, 4)
        g, i = m.to(device), torch.tensor([2, 0, 1])
        lazily = i.to(device)
        for call in (lambda m, i: m[i], lambda m, i: m.gather(1, i[:, None]), lambda m, i: m.index_select(0, i), lambda m, i: torch.take(m, i), lambda m, i: m.scatter(1, i[:, None], -1.0),
                     lambda m, i: F.cross_entropy(m, i), lambda m, i: F.embedding(i, m), lambda m, i: F.one_hot(i, 4), lambda m, i: m.scatter_add(0, i[:, None], m[:, :1]), lambda m, i: m.topk(2).indices,
                     lambda m, i: m.argmax(1), lambda m, i: m.index_add(0, i, m), lambda m, i: F.nll_loss(m, i), lambda m, i: m.index_put((i,), m), lambda m, i: i.sort().indices, lambda m, i: m.argsort(1),
                     lambda m, i: i.bincount(), lambda m, i: torch.where(i > 0, i, -i), lambda m, i: i.cumsum(0), lambda m, i: i.unique(), lambda m, i: torch.nonzero(i), lambda m, i: i.max(0).indices):
            expected, given = call(m, i), call(g, lazily)
            assert given.dtype == expected.dtype and torch.equal(given.cpu(), expected), (given, expected)
        torch.manual_seed(0)
        net = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(32, 5)).to(device)
        loss = F.cross_entropy(net(torch.randint(10, (6, 4)).to(device)), torch.randint(5, (6,)).to(device))
        loss.backward()
        assert net[0].weight.grad.cpu().abs().sum() > 0
    """, **{name: 1})  # fmt: skip


def test_a_value_that_means_nothing_is_refused(run):
    done = run("", LTC_USE_BF16="yes", check=False)
    assert done.returncode == 1 and "LTC_USE_BF16=yes: expected 0 or 1" in done.stderr


def test_double_is_float_on_a_device_that_has_none(run_python, build_plugin):
    run_python("""
        import torch, torch_backend
        torch_backend.lazy.device.enable()
        x = torch.full((2,), 1 / 3, dtype=torch.float64, device="lazy")
        y = torch.full((2,), 1 / 3, dtype=torch.float64).to("lazy") + 0
        for one in (x, y):
            assert one.dtype == one.cpu().dtype == torch.float64 and one.cpu()[0].item() == torch.tensor(1 / 3).double().item()
    """, TORCH_BACKEND=build_plugin("five"), HAL_ALLOW_UNSAFE_PLUGINS=1)  # fmt: skip
