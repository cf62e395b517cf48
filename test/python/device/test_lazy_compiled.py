"""Lazy mode on the fake device: groups that the host's compiler compiles to one kernel have the bits of eager mode,
also in training; a custom kernel in the portable dialect runs there."""

import pytest

COMMON = """
import time

import torch

import torch_backend
from torch_backend import _C, lazy

torch_backend.use("fake")


def compiled_count(least):
    # the compiler is done when no kernel has come for half a second; it may need longer for the first ones
    end, before = time.monotonic() + 60, -1
    while before != (before := _C.kernel_stats(0)["compiled"]) or (before < least and time.monotonic() < end):
        time.sleep(0.5)
    return before


def bits(results):
    # if both operands are NaN, the compiler chooses which one is the result
    results = [result.cpu().reshape(-1) for result in results]  # of one stride: results have the CPU's in dimensions of size 1
    return [result.where(result == result, torch.nan if result.is_floating_point() else 0).view(torch.uint8) for result in results]
"""

FUNCTIONS = COMMON + """
def chain(x, y, mask):
    z = ((x * y) + y).clamp(min=-1) * 0.75
    return z, z - x, torch.where(mask, z, y)


def in_place(x, y, mask):
    x = x.clone().mul_(0.9).add_(y)
    y = y.clone().add_(x, alpha=-0.125).neg_()
    return x, y, x.gt(y)


def broadcast(x, y, mask):
    column = x[..., :1]
    return (x + column) * 2, (x * 3) - 1, (y + 1).abs()


def kinds(x, y, mask):
    return x.to(torch.float64) * 2, (mask & (y > 0)).logical_not(), (x > 0).to(torch.int32) + 1, torch.full_like(x, 3) + y


def view(x, y, mask):
    return (x.view(-1)[1:] * 2 + 1).relu(), y.t() * 2 + 1, x.sqrt().reciprocal()


cases = []
for dtype in (torch.float32, torch.float64, torch.int64, torch.float16):
    for shape in ((3, 5), (1, 1), (1, 4095), (3, 100003)):
        x, y = ((torch.randn(shape) * 3).to(dtype).to("fake") for _ in range(2))
        if dtype.is_floating_point and x.numel() > 10:
            x.view(-1)[:6] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40]).to(dtype).to("fake")
        mask = (torch.rand(shape) > 0.5).to("fake")
        functions = (chain, in_place, broadcast, kinds, view) if dtype.is_floating_point else (kinds,)
        cases += [(function, (x, y, mask), bits(function(x, y, mask))) for function in functions]
for _ in range(2):  # interpreted, in part, and compiled
    for function, given, expected in cases:
        with lazy.record():
            results = function(*given)
        for got, want in zip(bits(results), expected):
            assert torch.equal(got, want), (function.__name__, given[0].dtype, given[0].shape)
    count = compiled_count(least=12)
assert count >= 12, count
"""

TRAINING = COMMON + """
def train(put_off):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10)).to("fake")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    generator = torch.Generator().manual_seed(1)
    for step in range(20):
        x, y = torch.randn(16, 64, generator=generator).to("fake"), torch.randint(10, (16,), generator=generator).to("fake")
        with put_off():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        schedule.step()
        if step == 4:
            compiled_count(least=put_off is lazy.record)
    return bits([parameter.detach() for parameter in model.parameters()])


import contextlib

expected = train(contextlib.nullcontext)
assert _C.kernel_stats(0)["compiled"] == 0
assert all(torch.equal(got, want) for got, want in zip(train(lazy.record), expected))
assert _C.kernel_stats(0)["compiled"] > 0
"""

OWN = COMMON + """
text = '''
#define ARGS(X) X(OUT, float, to), X(IN, float, from), X(VALUE, pk_i64, n)
PK_KERNEL(softened, ARGS) { PK_PROLOGUE(ARGS)
  PK_ITEM(i, n) { to[i] = pk_tanh_f32(from[i]) * 0.5f; }
}
'''
kernel = _C.Kernel(0, "softened", text, "ppi", False, False)
x = torch.randn(1000)
y = torch.empty(1000, device="fake")
kernel.launch(1000, y, x.to("fake"), 1000)
torch.testing.assert_close(y.cpu(), x.tanh() * 0.5)
try:
    _C.Kernel(0, "wrong", "this is no C", "ppi", False, False)
except (RuntimeError, ValueError) as error:
    assert "<stdin>:1:1: error" in str(error), error
else:
    raise AssertionError("a text that is no C was compiled")
"""


@pytest.mark.parametrize("mode", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_compiled_groups_have_the_bits_of_eager_mode(mode, run_python):
    run_python(FUNCTIONS, timeout=300, TORCH_BACKEND="fake", HAL_LAZY_COMPILE=1, HAL_FAKE_ASYNC=mode)


@pytest.mark.parametrize("isa", ["", pytest.param("base", marks=pytest.mark.slow)])
def test_training_has_the_bits_of_eager_mode(isa, run_python):
    run_python(TRAINING, timeout=300, TORCH_BACKEND="fake", HAL_LAZY_COMPILE=1, HAL_HOST_ISA=isa)


@pytest.mark.slow
def test_protected_memory_too(run_python):
    run_python(TRAINING, timeout=300, TORCH_BACKEND="fake", HAL_LAZY_COMPILE=1, HAL_FAKE_PROTECT=1)


def test_a_kernel_of_ones_own(run_python):
    run_python(OWN, TORCH_BACKEND="fake")
