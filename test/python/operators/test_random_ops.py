"""Random operators: they use the device's seed, natively and in the fallback, and the numbers have the requested
distribution."""

import math

import pytest
import torch
from torch_backend.fallback import strict

SAMPLERS = {
    "uniform": lambda x: x.uniform_(-1, 3),
    "uniform half": lambda x: x.half().uniform_(),
    "normal": lambda x: x.normal_(2, 3),
    "normal bfloat16": lambda x: x.bfloat16().normal_(),
    "complex": lambda x: torch.randn(1000, dtype=torch.complex64, device=x.device),
    "bernoulli": lambda x: x.bernoulli_(0.25),
    "bernoulli tensor": lambda x: torch.bernoulli(torch.full_like(x, 0.25)),
    "exponential": lambda x: x.exponential_(2.0),
    "geometric": lambda x: x.geometric_(0.25),
    "cauchy": lambda x: x.cauchy_(1.0, 2.0),
    "log_normal": lambda x: x.log_normal_(0.5, 0.25),
    "random": lambda x: x.random_(0, 100),
    "random without limits": lambda x: x.long().random_(),
    "randint": lambda x: torch.randint(0, 9, (1000,), device=x.device),
    "randperm": lambda x: torch.randperm(1000, device=x.device),
    "multinomial": lambda x: torch.multinomial(torch.ones(100, device=x.device), 1000, replacement=True),
    "poisson": lambda x: torch.poisson(torch.full_like(x, 4.0)),
    "dropout": lambda x: torch.nn.functional.dropout(torch.ones_like(x), 0.5),
    "native_dropout": lambda x: torch.native_dropout(torch.ones_like(x), 0.5, True)[0],
    "rrelu": lambda x: torch.nn.functional.rrelu(-torch.ones_like(x), training=True),
    "gamma": lambda x: torch._standard_gamma(torch.full_like(x, 2.0)),
}


@pytest.mark.parametrize("sample", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_the_seed_decides_and_each_call_generates_new_numbers(device, module, sample):
    x = torch.empty(1000, device=device)
    module.manual_seed(7)
    first, second = sample(x).cpu().clone(), sample(x).cpu().clone()
    module.manual_seed(7)
    assert sample(x).cpu().equal(first)
    assert sample(x).cpu().equal(second)
    assert not first.equal(second)
    module.manual_seed(8)
    assert not sample(x).cpu().equal(first)


@pytest.mark.parametrize("sample", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_the_cpus_generator_is_left_alone(device, sample):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    sample(torch.empty(1000, device=device))
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


def test_both_devices_generate_the_same_numbers_from_the_same_seed(device, module):
    module.manual_seed_all(11)
    a = [sample(torch.empty(1000, device=f"{device}:0")).cpu() for sample in SAMPLERS.values()]
    module.manual_seed_all(11)
    b = [sample(torch.empty(1000, device=f"{device}:1")).cpu() for sample in SAMPLERS.values()]
    assert all(x.equal(y) for x, y in zip(a, b))


def test_an_explicit_generator(device):
    def sample(seed):
        g = torch.Generator(device=device).manual_seed(seed)
        return [torch.rand(10, generator=g, device=device), torch.randperm(10, generator=g, device=device),
                torch.empty(10, device=device).exponential_(generator=g)]  # fmt: skip

    assert all(x.equal(y) for x, y in zip(sample(1), sample(1)))
    assert not any(x.equal(y) for x, y in zip(sample(1), sample(2)))


def test_a_generator_of_another_device_is_refused(device):
    for sample in (lambda g: torch.rand(3, generator=g, device=device),
                 lambda g: torch.empty(3, device=device).exponential_(generator=g)):  # fmt: skip
        with pytest.raises(RuntimeError, match=f"'{device}' device type for generator but found 'cpu'"):
            sample(torch.Generator())


WITH_GENERATOR = {
    "rand": lambda d, g: torch.rand(3, device=d, generator=g),
    "randn": lambda d, g: torch.randn(3, device=d, generator=g),
    "randint": lambda d, g: torch.randint(10, (3,), device=d, generator=g),
    "randint from": lambda d, g: torch.randint(2, 10, (3,), device=d, generator=g),
    "randperm": lambda d, g: torch.randperm(3, device=d, generator=g),
    "normal": lambda d, g: torch.normal(torch.zeros(3, device=d), 1.0, generator=g),
    "normal of deviations": lambda d, g: torch.normal(0.0, torch.ones(3, device=d), generator=g),
    "multinomial": lambda d, g: torch.multinomial(torch.ones(5, device=d), 2, generator=g),
    "bernoulli": lambda d, g: torch.bernoulli(torch.full((3,), 0.5, device=d), generator=g),
    "poisson": lambda d, g: torch.poisson(torch.ones(3, device=d), generator=g),
    "binomial": lambda d, g: torch.binomial(torch.full((3,), 9.0, device=d), torch.full((3,), 0.5, device=d), generator=g),
    "rrelu": lambda d, g: torch.ops.aten.rrelu_with_noise(torch.ones(3, device=d), torch.ones(3, device=d), training=True, generator=g),
    **{f"{name}_": lambda d, g, name=name, numbers=numbers: getattr(torch.ones(3, device=d), name + "_")(*numbers, generator=g)
       for name, numbers in {"uniform": (), "normal": (), "random": (), "exponential": (), "cauchy": (), "log_normal": (), "geometric": (0.5,),
                             "bernoulli": (0.5,)}.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_generator_of_another_index_is_refused(device, name):
    call = WITH_GENERATOR[name]
    with pytest.raises(RuntimeError, match=f"Expected a '{device}:0' generator device but found '{device}:1'"):
        call(f"{device}:0", torch.Generator(f"{device}:1"))
    assert call(f"{device}:1", torch.Generator(f"{device}:1")) is not None


@pytest.mark.parametrize("rate", [1.0, 1e3, 1e6, 1e30])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_exponential_numbers_are_positive_in_every_dtype(device, module, dtype, rate):
    """As PyTorch documents: the support is (0, inf). Half precision rounds small numbers to 0."""
    module.manual_seed(21)
    with strict():
        numbers = torch.empty(1 << 18, dtype=dtype, device=device).exponential_(rate)
    assert (numbers > 0).all() and numbers.isfinite().all()


def test_bad_parameters_are_refused_in_torchs_words(device):
    x = torch.empty(3, device=device)
    with pytest.raises(RuntimeError, match=r"expects to return a \[from, to\) range"):
        x.uniform_(2, 1)
    with pytest.raises(RuntimeError, match="std >= 0"):
        x.normal_(0, -1)
    with pytest.raises(RuntimeError, match=r"p to be in \[0, 1\]"):
        x.bernoulli_(1.5)


def test_many_fallback_calls_generate_independent_numbers(device, module):
    module.manual_seed(2)
    samples = [torch.empty(1, device=device).exponential_().item() for _ in range(3000)]
    assert len(set(samples)) == len(samples)
    assert abs(sum(samples) / len(samples) - 1) < 5 / math.sqrt(len(samples))


def test_dropout_keeps_the_expectation(device, module):
    module.manual_seed(4)
    y, mask = torch.native_dropout(torch.ones(100_000, device=device), 0.25, True)
    assert mask.dtype == torch.bool and abs(y.mean().item() - 1) < 0.02
    assert y.cpu().equal(mask.cpu() / 0.75)
    same, kept = torch.native_dropout(torch.ones(5, device=device), 0.25, False)
    assert same.eq(1).all() and kept.all()


# ---- the derived distributions run natively and have the documented distribution ----


def distance(numbers, cdf):
    """The Kolmogorov-Smirnov distance from a distribution, times the square root of the count: 1.95 is exceeded once in
    1000."""
    x = numbers.cpu().double().flatten().sort().values
    n = x.numel()
    below = cdf(x)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    return max((below - steps[:-1]).max(), (steps[1:] - below).max()).item() * math.sqrt(n)


CONTINUOUS = {
    "exponential": (lambda x: x.exponential_(2.5), lambda x: 1 - torch.exp(-2.5 * x)),
    "cauchy": (lambda x: x.cauchy_(1.5, 0.5), lambda x: 0.5 + torch.atan((x - 1.5) / 0.5) / math.pi),
    "log_normal": (lambda x: x.log_normal_(0.5, 0.75), lambda x: 0.5 * torch.erfc((0.5 - x.log()) / (0.75 * math.sqrt(2)))),
    "uniform": (lambda x: x.uniform_(-1, 3), lambda x: (x + 1) / 4),
    "normal": (lambda x: x.normal_(2, 3), lambda x: 0.5 * torch.erfc((2 - x) / (3 * math.sqrt(2)))),
}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_continuous_distributions(device, module, name, dtype):
    sample, cdf = CONTINUOUS[name]
    module.manual_seed(12)
    with strict():
        numbers = sample(torch.empty(1 << 18, dtype=dtype, device=device))
    assert numbers.isfinite().all()
    assert distance(numbers, cdf) < 1.95
    if name == "exponential":
        assert numbers.min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8], ids=str)
def test_geometric_numbers(device, module, dtype):
    module.manual_seed(13)
    n, p = 1 << 18, 0.3
    with strict():
        numbers = torch.empty(n, dtype=dtype, device=device).geometric_(p)
    numbers = numbers.cpu().double()
    assert numbers.min() == 1 and numbers.eq(numbers.round()).all()
    for k in range(1, 9):
        expected = p * (1 - p) ** (k - 1)
        assert abs((numbers == k).double().mean() - expected) < 5 * math.sqrt(expected / n)


INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_are_even_over_their_range(device, module, dtype):
    module.manual_seed(14)
    n = 1 << 18
    low, high = (3, 40) if dtype == torch.uint8 else (-20, 17)
    with strict():
        numbers = torch.empty(n, dtype=dtype, device=device).random_(low, high)
    counts = torch.bincount(numbers.cpu().long() - low, minlength=high - low).double()
    expected = n / (high - low)
    assert counts.numel() == high - low
    assert ((counts - expected).pow(2) / expected).sum() < 37 + 4 * math.sqrt(2 * 37)  # chi squared with 36 degrees of freedom


def test_integers_of_large_and_of_default_ranges(device, module):
    module.manual_seed(15)
    with strict():
        wide = torch.empty(4096, dtype=torch.int64, device=device).random_(-(2**62), 2**62).cpu()
        whole = torch.empty(4096, dtype=torch.int64, device=device).random_(-(2**63), None).cpu()
        positive = torch.empty(4096, dtype=torch.int64, device=device).random_().cpu()
        small = torch.empty(4096, dtype=torch.uint8, device=device).random_().cpu()
        flags = torch.empty(4096, dtype=torch.bool, device=device).random_().cpu()
        exact = torch.empty(4096, device=device).random_().cpu()
    assert wide.abs().max() <= 2**62 and wide.double().abs().mean() > 2**60
    assert 1800 < (whole < 0).sum() < 2300 and (positive >= 0).all() and positive.max() > 2**62
    assert small.unique().numel() == 256 and 1800 < flags.sum() < 2300
    assert exact.max() <= 2**24 and exact.max() > 2**23 and exact.eq(exact.round()).all()
    for call in (lambda x: x.random_(5, 5), lambda x: x.to(torch.uint8).random_(0, 300)):
        with pytest.raises(RuntimeError) as theirs:
            call(torch.zeros(3))
        with pytest.raises(RuntimeError) as ours:
            call(torch.zeros(3, device=device))
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 4096, 4097, 5000, 8192, 8193, 100_003])
def test_a_permutation_holds_every_number_once(device, module, n):
    module.manual_seed(16)
    with strict():
        order = torch.randperm(n, device=device)
    assert order.dtype == torch.int64 and order.cpu().sort().values.equal(torch.arange(n))
    if n > 4000:  # far from the identity: displacements are those of random positions
        displacement = (order.cpu() - torch.arange(n)).abs().double().mean() / n
        assert abs(displacement - 1 / 3) < 0.02
        assert not torch.randperm(n, device=device).cpu().equal(order.cpu())


def test_permutations_are_equally_likely(device, module):
    module.manual_seed(17)
    with strict():
        samples = [torch.randperm(3, device=device) for _ in range(3000)]
    counts = {}
    for sample in samples:
        key = tuple(sample.tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 6 and all(abs(count - 500) < 5 * math.sqrt(500) for count in counts.values())


def test_large_permutations_have_no_order_left(device, module):
    module.manual_seed(18)
    n = 1 << 16
    with strict():
        order = torch.randperm(n, device=device).cpu().double()
    place = torch.arange(n, dtype=torch.float64)
    for a, b in ((place, order), (order[:-1], order[1:]), (place.remainder(2), order), (place, order.remainder(2))):
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 5 / math.sqrt(n)


def test_bernoulli_numbers_of_given_probabilities(device, module):
    module.manual_seed(19)
    p = torch.tensor([0.0, 0.1, 0.5, 1.0])
    with strict():
        sampled = torch.bernoulli(p.to(device).expand(100_000, 4))
        flags = torch.empty(100_000, 4, dtype=torch.bool, device=device).bernoulli_(p.double().to(device))
    for numbers in (sampled, flags):
        mean = numbers.cpu().double().mean(0)
        assert mean[0] == 0 and mean[3] == 1
        assert (mean - p.double()).abs().max() < 5 * math.sqrt(0.25 / 100_000)


def test_dropout_trains_natively_and_its_gradient_has_the_same_mask(device, module):
    module.manual_seed(20)
    layer = torch.nn.Dropout(0.25)
    x = torch.ones(50, 2000, device=device, requires_grad=True)
    with strict():
        y = layer(x)
        y.backward(torch.full_like(y, 2.0))
    kept = y.detach().cpu() != 0
    assert abs(kept.double().mean() - 0.75) < 0.01
    assert torch.equal(x.grad.cpu(), kept * (2 / 0.75))
    assert layer.eval()(x) is x
    t = torch.ones(2000, 50, device=device).t()  # the same numbers in another memory order
    module.manual_seed(20)
    with strict():
        assert (torch.native_dropout(t, 0.25, True)[1].cpu() == kept).all()


def test_samples_of_given_probabilities(device, module):
    module.manual_seed(21)
    p = torch.tensor([0.1, 0.0, 0.6, 0.3])
    n = 1 << 16
    with strict():
        many = torch.multinomial(p.to(device), n, True)
        one_each = torch.multinomial(p.to(device).expand(n, 4).contiguous(), 1)
    for sampled in (many, one_each):
        assert sampled.dtype == torch.int64
        share = torch.bincount(sampled.cpu().flatten(), minlength=4).double() / n
        assert share[1] == 0 and (share - p.double()).abs().max() < 5 * math.sqrt(0.25 / n)
    rows = torch.multinomial(torch.ones(100, 7, device=device), 7).cpu()
    assert rows.sort(1).values.equal(torch.arange(7).expand(100, 7))  # without replacement: each category once


@pytest.mark.parametrize("call", [
    lambda d: torch.multinomial(torch.zeros(2, device=d), 1),
    lambda d: torch.multinomial(torch.tensor([-1.0, 2.0], device=d), 3, True),
    lambda d: torch.multinomial(torch.tensor([float("nan"), 2.0], device=d), 1),
    lambda d: torch.multinomial(torch.ones(3, device=d), 4),
    lambda d: torch.multinomial(torch.ones(3, device=d), 0),
    lambda d: torch.normal(torch.zeros(2, device=d), -1.0),
    lambda d: torch.normal(0.0, torch.tensor([-1.0], device=d)),
])  # fmt: skip
def test_impossible_distributions_are_refused_as_on_the_cpu(device, call):
    with pytest.raises(RuntimeError) as theirs:
        call("cpu")
    with pytest.raises(RuntimeError) as ours:
        call(device)
    assert str(ours.value) == str(theirs.value)


def test_normal_numbers_of_given_means_and_deviations(device, module):
    module.manual_seed(22)
    n, mean, std = 4096, torch.linspace(-5, 5, 50), torch.linspace(0, 3, 50)
    means, stds = mean.to(device).expand(n, 50), std.to(device).expand(n, 50)
    with strict():
        both, first, second = torch.normal(means, stds), torch.normal(means, 0.5), torch.normal(2.0, stds)
        given = torch.normal(means, stds, out=torch.empty(0, device=device))
    for numbers, m, s in ((both, mean, std), (first, mean, 0.5), (second, 2.0, std), (given, mean, std)):
        assert ((numbers.cpu().mean(0) - m).abs() <= 5 * s / math.sqrt(n) + 1e-6).all()
        assert ((numbers.cpu().std(0) - s).abs() <= 5 * s / math.sqrt(2 * n) + 1e-6).all()
