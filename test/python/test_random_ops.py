"""Random operators: the device's seed rules, native and in the fallback; the numbers have the distribution asked for."""

import math

import pytest
import torch

DRAWS = {
    "uniform": lambda x: x.uniform_(-1, 3),
    "uniform half": lambda x: x.half().uniform_(),
    "normal": lambda x: x.normal_(2, 3),
    "normal bfloat16": lambda x: x.bfloat16().normal_(),
    "complex": lambda x: torch.randn(1000, dtype=torch.complex64, device=x.device),
    "bernoulli": lambda x: x.bernoulli_(0.25),
    "bernoulli tensor": lambda x: torch.bernoulli(torch.full_like(x, 0.25)),
    "exponential": lambda x: x.exponential_(2.0),
    "random": lambda x: x.random_(0, 100),
    "randint": lambda x: torch.randint(0, 9, (1000,), device=x.device),
    "randperm": lambda x: torch.randperm(1000, device=x.device),
    "multinomial": lambda x: torch.multinomial(torch.ones(100, device=x.device), 1000, replacement=True),
    "poisson": lambda x: torch.poisson(torch.full_like(x, 4.0)),
    "dropout": lambda x: torch.nn.functional.dropout(torch.ones_like(x), 0.5),
    "native_dropout": lambda x: torch.native_dropout(torch.ones_like(x), 0.5, True)[0],
    "rrelu": lambda x: torch.nn.functional.rrelu(-torch.ones_like(x), training=True),
    "gamma": lambda x: torch._standard_gamma(torch.full_like(x, 2.0)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_the_seed_decides_and_each_call_draws_other_numbers(device, module, draw):
    x = torch.empty(1000, device=device)
    module.manual_seed(7)
    first, second = draw(x).cpu().clone(), draw(x).cpu().clone()
    module.manual_seed(7)
    assert draw(x).cpu().equal(first)
    assert draw(x).cpu().equal(second)
    assert not first.equal(second)
    module.manual_seed(8)
    assert not draw(x).cpu().equal(first)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_the_cpus_generator_is_left_alone(device, draw):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    draw(torch.empty(1000, device=device))
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_moments(device, module, dtype):
    module.manual_seed(1)
    n = 1_000_000
    u = torch.empty(n, dtype=dtype, device=device).uniform_(-1, 3).cpu().double()
    assert u.min() >= -1 and u.max() < 3
    assert abs(u.mean() - 1) < 5 * (4 / math.sqrt(12)) / math.sqrt(n)
    assert abs(u.var() - 16 / 12) < 0.01
    g = torch.empty(n, dtype=dtype, device=device).normal_(2, 3).cpu().double()
    assert abs(g.mean() - 2) < 5 * 3 / math.sqrt(n)
    assert abs(g.std() - 3) < 0.02
    assert abs(((g - 2) / 3).pow(4).mean() - 3) < 0.05
    b = torch.empty(n, dtype=dtype, device=device).bernoulli_(0.3).cpu().double()
    assert set(b.unique().tolist()) == {0.0, 1.0} and abs(b.mean() - 0.3) < 5 * math.sqrt(0.21 / n)


def test_strides_do_not_change_the_sequence(device, module):
    module.manual_seed(5)
    dense = torch.empty(20, 30, device=device).uniform_()
    module.manual_seed(5)
    strided = torch.empty(30, 20, device=device).t().uniform_()
    assert strided.cpu().equal(dense.cpu())


def test_both_devices_draw_the_same_numbers_from_the_same_seed(device, module):
    module.manual_seed_all(11)
    a = [draw(torch.empty(1000, device=f"{device}:0")).cpu() for draw in DRAWS.values()]
    module.manual_seed_all(11)
    b = [draw(torch.empty(1000, device=f"{device}:1")).cpu() for draw in DRAWS.values()]
    assert all(x.equal(y) for x, y in zip(a, b))


def test_an_explicit_generator(device):
    def draw(seed):
        g = torch.Generator(device=device).manual_seed(seed)
        return [torch.rand(10, generator=g, device=device), torch.randperm(10, generator=g, device=device),
                torch.empty(10, device=device).exponential_(generator=g)]  # fmt: skip

    assert all(x.equal(y) for x, y in zip(draw(1), draw(1)))
    assert not any(x.equal(y) for x, y in zip(draw(1), draw(2)))


def test_a_generator_of_another_device_is_refused(device):
    for draw in (lambda g: torch.rand(3, generator=g, device=device),
                 lambda g: torch.empty(3, device=device).exponential_(generator=g)):  # fmt: skip
        with pytest.raises(RuntimeError, match=f"'{device}' device type for generator but found 'cpu'"):
            draw(torch.Generator())


def test_bad_parameters_are_refused_in_torchs_words(device):
    x = torch.empty(3, device=device)
    with pytest.raises(RuntimeError, match=r"expects to return a \[from, to\) range"):
        x.uniform_(2, 1)
    with pytest.raises(RuntimeError, match="std >= 0"):
        x.normal_(0, -1)
    with pytest.raises(RuntimeError, match=r"p to be in \[0, 1\]"):
        x.bernoulli_(1.5)


def test_many_fallback_calls_draw_independent_numbers(device, module):
    module.manual_seed(2)
    draws = [torch.empty(1, device=device).exponential_().item() for _ in range(3000)]
    assert len(set(draws)) == len(draws)
    assert abs(sum(draws) / len(draws) - 1) < 5 / math.sqrt(len(draws))


def test_dropout_keeps_the_expectation(device, module):
    module.manual_seed(4)
    y, mask = torch.native_dropout(torch.ones(100_000, device=device), 0.25, True)
    assert mask.dtype == torch.bool and abs(y.mean().item() - 1) < 0.02
    assert y.cpu().equal(mask.cpu() / 0.75)
    same, kept = torch.native_dropout(torch.ones(5, device=device), 0.25, False)
    assert same.eq(1).all() and kept.all()
