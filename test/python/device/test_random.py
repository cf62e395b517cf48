"""Seeds, generators and their states."""

import copy
import pickle

import pytest
import torch


def test_the_same_seed_generates_the_same_numbers(device):
    torch.manual_seed(42)
    first = torch.rand(1000, device=device).cpu()
    second = torch.rand(1000, device=device).cpu()
    torch.manual_seed(42)
    assert torch.equal(torch.rand(1000, device=device).cpu(), first)
    assert not torch.equal(first, second)


def test_manual_seed_seeds_every_device_without_a_warning(module, device, recwarn):
    torch.manual_seed(7)
    assert [generator.initial_seed() for generator in module.default_generators] == [7, 7]
    assert torch.equal(torch.rand(8, device=f"{device}:0").cpu(), torch.rand(8, device=f"{device}:1").cpu())
    assert not [warning for warning in recwarn if "seed" in str(warning.message)]


def test_the_default_seed_is_torchs(run_python):
    run_python(
        """
        import torch
        assert torch.fake.initial_seed() == torch.Generator().initial_seed() == torch.Generator(device="fake").initial_seed()
        """,
        TORCH_BACKEND="fake",
    )


def test_uniform_numbers_are_philox4x32_10(device):
    """Compared with a Philox implementation from the paper's constants (Salmon et al., 2011)."""

    def philox(seed, block):
        low, high = 0xD2511F53, 0xCD9E8D57
        key = [seed & 0xFFFFFFFF, seed >> 32]
        counter = [block & 0xFFFFFFFF, block >> 32, 0, 0]
        for _ in range(10):
            a, b = low * counter[0], high * counter[2]
            counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        return counter

    seed = 0x123456789ABCDEF
    generator = torch.Generator(device=device).manual_seed(seed)
    words = [word for block in range(8) for word in philox(seed, block)]
    numbers = torch.rand(32, device=device, generator=generator).cpu()
    expected = torch.tensor([(word >> 8) * 2.0**-24 for word in words])
    torch.testing.assert_close(numbers, expected, rtol=0, atol=2.0**-23)


def test_a_state_round_trip_repeats_the_numbers(module, device):
    state = module.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu" and state.numel() == 16
    first = torch.randn(100, device=device).cpu()
    assert not torch.equal(module.get_rng_state(), state)  # the offset went on
    module.set_rng_state(state)
    assert torch.equal(torch.randn(100, device=device).cpu(), first)
    states = module.get_rng_state_all()
    assert len(states) == 2
    module.set_rng_state_all(states)
    module.set_rng_state(state, f"{device}:1")
    assert torch.equal(module.get_rng_state(1), state)


def test_a_state_is_seed_then_offset(device):
    generator = torch.Generator(device=device).manual_seed(0x0102030405060708)
    generator.set_offset(12)
    assert generator.get_offset() == 12
    assert generator.get_state().numpy().view("uint64").tolist() == [0x0102030405060708, 12]


def test_seeding_sets_the_offset_to_zero(device):
    generator = torch.Generator(device=device)
    torch.rand(10, device=device, generator=generator)
    assert generator.get_offset() > 0
    assert generator.manual_seed(3).get_offset() == 0


@pytest.mark.parametrize(
    "state, words",
    [(torch.zeros(15, dtype=torch.uint8), "16 bytes"), (torch.zeros(5056, dtype=torch.uint8), "wrong size"),
     (torch.zeros(2), "ByteTensor")],
)  # fmt: skip
def test_a_wrong_state_is_refused(module, state, words):
    with pytest.raises((RuntimeError, TypeError), match=words):
        module.set_rng_state(state)


def test_an_explicit_generator_leaves_the_default_alone(module, device):
    before = module.get_rng_state()
    generator = torch.Generator(device=device).manual_seed(5)
    first = torch.rand(64, device=device, generator=generator).cpu()
    assert torch.equal(module.get_rng_state(), before)
    assert torch.equal(torch.rand(64, device=device, generator=generator.manual_seed(5)).cpu(), first)


def test_a_generator_of_another_device_is_refused(device):
    with pytest.raises(RuntimeError, match=f"Expected a '{device}' device type for generator but found 'cpu'"):
        torch.rand(3, device=device, generator=torch.Generator())
    with pytest.raises(RuntimeError, match=f"'{device}:0'.*'{device}:1'"):
        torch.rand(3, device=f"{device}:0", generator=torch.Generator(device=f"{device}:1"))
    with pytest.raises(RuntimeError, match="7"):
        torch.Generator(device=f"{device}:7")


def test_clone_and_graphsafe_state(device):
    generator = torch.Generator(device=device).manual_seed(11)
    torch.rand(9, device=device, generator=generator)
    clone = generator.clone_state()
    assert clone.get_state().equal(generator.get_state())
    shared = generator.graphsafe_get_state()
    torch.rand(9, device=device, generator=shared)
    assert generator.get_offset() == shared.get_offset() > clone.get_offset()
    other = torch.Generator(device=device)
    other.graphsafe_set_state(shared)
    assert other.initial_seed() == 11


def test_operators_use_the_graphsafe_state_of_the_default_generator(device, module):
    default = module.default_generators[0]
    own, other = default.graphsafe_get_state(), default.clone_state().manual_seed(77)
    expected = torch.rand(9, device=device, generator=default.clone_state().manual_seed(77))
    default.graphsafe_set_state(other)
    try:
        found = torch.rand(9, device=device)
    finally:
        default.graphsafe_set_state(own)
    assert torch.equal(found.cpu(), expected.cpu())
    assert other.get_offset() > 0


def test_generators_are_pickled_and_copied_by_their_state(device):
    generator = torch.Generator(device=f"{device}:1").manual_seed(13)
    generator.set_offset(5)
    for twin in (pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator)):
        assert twin.device == generator.device
        assert twin.get_state().equal(generator.get_state())


def test_seed_changes_the_seed(module):
    module.manual_seed(1)
    module.seed()
    assert module.initial_seed() != 1
    module.seed_all()
    assert len({generator.initial_seed() for generator in module.default_generators}) == 1


def test_fork_rng_restores_the_state(module, device):
    before = module.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type=device):
        torch.rand(5, device=device)
        assert not torch.equal(module.get_rng_state(), before)
    assert torch.equal(module.get_rng_state(), before)


def test_fork_rng_of_all_devices_of_some_and_of_none(module, device):
    def sample():
        return torch.rand(5), torch.rand(5, device=f"{device}:0"), torch.rand(5, device=f"{device}:1")

    before = [torch.get_rng_state(), *module.get_rng_state_all()]
    for options, kept in ((dict(devices=range(2)), (0, 1)), (dict(devices=[1], device_type=device), (1,)), (dict(devices=[]), ())):
        with torch.random.fork_rng(**options):
            sample()
        after = [torch.get_rng_state(), *module.get_rng_state_all()]
        assert torch.equal(after[0], before[0])  # the CPU's always
        assert [torch.equal(after[1 + index], before[1 + index]) for index in (0, 1)] == [index in kept for index in (0, 1)]
        module.set_rng_state_all(before[1:])
    with pytest.raises(KeyError), torch.random.fork_rng(devices=range(2)):
        sample()
        raise KeyError
    assert all(map(torch.equal, module.get_rng_state_all(), before[1:]))
    with torch.random.fork_rng(enabled=False):
        sample()
    assert not torch.equal(module.get_rng_state(1), before[2])


def test_torch_seed_reaches_every_device(module):
    seed = torch.seed()
    assert [generator.initial_seed() for generator in module.default_generators] == [seed, seed] == [torch.initial_seed()] * 2


@pytest.mark.parametrize("seed", [-1, 0, 2**63, 2**64 - 1])
def test_seeds_mean_what_they_mean_on_the_cpu(module, device, seed):
    expected = torch.Generator().manual_seed(seed).initial_seed()
    module.manual_seed(seed)
    assert module.initial_seed() == torch.Generator(device=device).manual_seed(seed).initial_seed() == expected


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, "a"])
def test_what_is_no_seed_is_refused(module, seed):
    with pytest.raises((RuntimeError, ValueError, OverflowError)):
        module.manual_seed(seed)


SAMPLERS = {
    "rand": lambda device, generator: torch.rand(64, device=device, generator=generator),
    "randn": lambda device, generator: torch.randn(64, device=device, generator=generator),
    "randint": lambda device, generator: torch.randint(1000, (64,), device=device, generator=generator),
    "randperm": lambda device, generator: torch.randperm(64, device=device, generator=generator),
    "normal": lambda device, generator: torch.normal(torch.zeros(64, device=device), 1.0, generator=generator),
    "bernoulli": lambda device, generator: torch.bernoulli(torch.full((64,), 0.5, device=device), generator=generator),
    "multinomial": lambda device, generator: torch.multinomial(torch.ones(64, device=device), 32, generator=generator),
    "poisson": lambda device, generator: torch.poisson(torch.full((64,), 9.0, device=device), generator=generator),
    **{name: lambda device, generator, name=name, arguments=arguments:
       getattr(torch.empty(64, device=device), name)(*arguments, generator=generator)
       for name, arguments in {"uniform_": (2, 3), "normal_": (), "random_": (5,), "exponential_": (), "geometric_": (0.5,), "cauchy_": (),
                               "log_normal_": (), "bernoulli_": (0.5,)}.items()},
}  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_every_operator_samples_from_the_given_generator_only(module, device, sample):
    generator = torch.Generator(device=device).manual_seed(5)
    before = module.get_rng_state_all()
    state = generator.get_state()
    first, second = sample(device, generator).cpu(), sample(device, generator).cpu()
    assert not torch.equal(first, second) and not torch.equal(generator.get_state(), state)
    assert torch.equal(sample(device, generator.manual_seed(5)).cpu(), first)
    assert all(map(torch.equal, module.get_rng_state_all(), before))
    with pytest.raises(RuntimeError, match="generator"):
        sample(device, torch.Generator())


def test_threads_sample_disjoint_numbers_from_one_generator(device):
    """The offset is reserved atomically: no block of Philox is used twice."""
    from concurrent.futures import ThreadPoolExecutor

    generator = torch.Generator(device=device).manual_seed(17)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: torch.rand(4, dtype=torch.float64, device=device, generator=generator).cpu(), range(64)))
    assert torch.cat(parts).unique().numel() == 256


@pytest.mark.skipif(not hasattr(torch.Generator, "philox_state"), reason="torch has Generator.philox_state from 2.14 on")
@pytest.mark.parametrize("increment, blocks", [(0, 0), (1, 1), (4, 1), (6, 2), (4096, 1024)])
def test_philox_state_reserves_numbers_that_no_other_call_generates(device, increment, blocks):
    """As in PyTorch: (seed, offset, 0) as int64 of the host. The offset counts numbers and advances by whole blocks of
    four."""
    generator = torch.Generator(device).manual_seed(2**63 + 5)
    torch.rand(12, device=device, generator=generator)
    before = generator.get_offset()
    state = generator.philox_state(increment)
    assert all(word.device.type == "cpu" and word.dtype is torch.int64 and word.shape == (1,) for word in state)
    assert [word.item() & (2**64 - 1) for word in state] == [2**63 + 5, 4 * before, 0]
    assert generator.get_offset() == before + blocks
    other = torch.Generator(device).manual_seed(2**63 + 5)
    other.set_offset(before + blocks)
    assert torch.equal(torch.rand(8, device=device, generator=generator), torch.rand(8, device=device, generator=other))
