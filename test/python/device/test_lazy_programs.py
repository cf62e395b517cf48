"""Random programs of element-wise operators, in-place writes, views, broadcasts and frees: lazy mode produces the bits
of eager mode."""

import os
import random

import pytest
import torch

from torch_backend import lazy

PROGRAMS = int(os.environ.get("HAL_TEST_PROGRAMS", "100"))  # of each test

SHAPES = [(6, 8), (48,), (1, 8), (6, 1), (), (8,)]


def same(tensors, of):
    return [t for t in tensors if t.shape == of.shape]


STEPS = [
    lambda a, r, live: live.append(a + r.choice(live)),
    lambda a, r, live: live.append(a * r.choice([2.5, -1, 0.3])),
    lambda a, r, live: a.mul_(r.choice([0.5, 1.5])),
    lambda a, r, live: live.append(torch.relu(a)),
    lambda a, r, live: live.append(torch.sigmoid(a)),
    lambda a, r, live: a.add_(r.choice(same(live, a))),
    lambda a, r, live: live.append(torch.where(a > 0, a, r.choice([t for t in same(live, a) if t.dtype == a.dtype]))),
    lambda a, r, live: live.append(a.t().clone(memory_format=torch.contiguous_format) if a.dim() == 2 else a.flip(0)),
    lambda a, r, live: live.append(a.reshape(-1) if a.dim() == 2 else a.reshape(6, 8)),
    lambda a, r, live: live.append(a.half()),
    lambda a, r, live: live.append(a.float() if a.dtype != torch.float32 else a.double()),
    lambda a, r, live: (a[1:] if a.dim() == 1 else a[:, 1:]).add_(1),
    lambda a, r, live: live.pop(r.randrange(len(live))),
    lambda a, r, live: live.append(a.view(6, 8).sum(1, keepdim=True) if a.dim() == 1 else a.sum(1, keepdim=True)),
    lambda a, r, live: a.copy_(r.choice(same(live, a))),
    lambda a, r, live: live.append(a.clone()),
    lambda a, r, live: live.append(torch.full_like(a, r.choice([0, -1.5, 3]))),
    lambda a, r, live: (a[::2] if a.dim() == 1 else a[:, :4] if r.random() < 0.5 else a).fill_(r.choice([0, 2.5])),
    lambda a, r, live: live.append(torch.zeros_like(a).add_(a)),
    lambda a, r, live: live.append(a.clamp(-1, 1).to(torch.int32) + 1),
]


def program(seed, where):
    """Returns the tensors that exist at the end of a program, on the CPU."""
    r, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    live = [torch.randn(shape, generator=generator).to(where) for shape in (r.choice(SHAPES[:2]), (48,), *SHAPES)]
    for _ in range(r.randint(5, 60)):
        full = [t for t in live if t.numel() == 48 and t.is_floating_point()]
        if not full:
            live.append(torch.ones(48).to(where))
            continue
        try:
            r.choice(STEPS)(r.choice(full), r, live)
        except (RuntimeError, IndexError):  # shapes that do not match: the same in all modes
            live.append(torch.full((48,), 0.5).to(where))
    return [t.cpu() for t in live]


def check(seeds, device, function):
    for seed in seeds:
        for i, (one, other) in enumerate(zip(program(seed, device), function(seed), strict=True)):
            assert one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num()), (seed, i)


@pytest.mark.parametrize("piece", [1, 7, 2**32 - 1])
def test_deferred_work_has_the_bits_of_eager_mode(device, piece):
    def lazily(seed):
        with lazy.record(piece=piece):
            return program(seed, device)

    check(range(100 * piece % 977, 100 * piece % 977 + PROGRAMS), device, lazily)


def test_the_lazy_device_has_the_bits_of_eager_mode(device):
    lazy.device.enable()
    try:
        check(range(5000, 5000 + PROGRAMS), device, lambda seed: program(seed, "lazy"))
    finally:
        lazy.device.stop()
