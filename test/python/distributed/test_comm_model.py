"""The times of the alpha-beta model compared with the algorithms themselves, run step by step with a clock for each
rank."""

import argparse
import math

import pytest

from torch_backend.distributed import measure, model

LINK = model.Link(5e-6, 2e9)
HOST = model.Host(1e-5, 4, ((1 << 10, 1e-10), (1 << 20, 1e-10), (1 << 26, 4e-10)))


class Ranks:
    """Ranks with a vector each, cut into as many parts as there are ranks, and a clock."""

    def __init__(self, ranks, size):
        self.ranks, self.part = ranks, size / ranks
        self.parts = [[{(rank, part)} for part in range(ranks)] for rank in range(ranks)]  # which rank's part each part is the sum of
        self.clocks = [0.0] * ranks

    def step(self, messages):
        """Sends (from, to, parts, add) at the same time, each over a link of its own."""
        taken = [(source, target, parts, add, [set(self.parts[source][part]) for part in parts]) for source, target, parts, add in messages]
        ends = {}
        for source, target, parts, add, values in taken:
            end = max(self.clocks[source], self.clocks[target]) + LINK.latency + len(parts) * self.part / LINK.bandwidth
            ends[source], ends[target] = max(end, ends.get(source, 0)), max(end, ends.get(target, 0))
            for part, value in zip(parts, values):
                self.parts[target][part] = self.parts[target][part] | value if add else value
        for rank, end in ends.items():
            self.clocks[rank] = end

    def is_reduced(self):
        return all(held == {(rank, part) for rank in range(self.ranks)} for row in self.parts for part, held in enumerate(row))


def run_ring(ranks, size):
    group = Ranks(ranks, size)
    for add in (True, False):
        for step in range(ranks - 1):
            shift = 0 if add else 1
            group.step([(rank, (rank + 1) % ranks, [(rank - step + shift) % ranks], add) for rank in range(ranks)])
    return group


def run_halving_doubling(ranks, size):
    group = Ranks(ranks, size)
    spans = [range(ranks)] * ranks
    distances = [ranks >> at for at in range(1, int(math.log2(ranks)) + 1)]
    for distance in distances:
        kept = [span[: len(span) // 2] if not rank & distance else span[len(span) // 2 :] for rank, span in enumerate(spans)]
        group.step([(rank, rank ^ distance, list(kept[rank ^ distance]), True) for rank in range(ranks)])
        spans = kept
    for distance in reversed(distances):
        group.step([(rank, rank ^ distance, list(spans[rank]), False) for rank in range(ranks)])
        spans = [sorted({*spans[rank], *spans[rank ^ distance]}) for rank in range(ranks)]
    return group


@pytest.mark.parametrize("size", [1 << 10, 1 << 26])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 13, 64])
def test_a_ring_takes_what_its_steps_take(ranks, size):
    group = run_ring(ranks, size)
    assert group.is_reduced()
    assert model.ring("all_reduce", ranks, size, LINK) == pytest.approx(max(group.clocks))


@pytest.mark.parametrize("size", [1 << 10, 1 << 26])
@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_halving_and_doubling_take_what_their_steps_take(ranks, size):
    group = run_halving_doubling(ranks, size)
    assert group.is_reduced()
    assert model.halving_doubling("all_reduce", ranks, size, LINK) == pytest.approx(max(group.clocks))


@pytest.mark.parametrize("operator", model.OPERATORS)
def test_the_best_algorithm_takes_at_least_what_the_data_take(operator):
    """No algorithm beats the link: every rank receives what it lacks of the result, and has to hear from the rank that
    is the most steps away."""
    for ranks in (2, 3, 16, 1024):
        for size in (1, 1 << 10, 1 << 30):
            seconds, name = model.best(operator, ranks, size, None, LINK, 1)
            least = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(operator, (ranks - 1) / ranks)
            assert seconds >= max(least * size / LINK.bandwidth, math.ceil(math.log2(ranks)) * LINK.latency * (1 - 1e-9)) * (1 - 1e-9)
            assert name in model.ALGORITHMS


def test_small_messages_take_few_steps_and_large_ones_little_data():
    assert model.best("all_reduce", 1024, 8, None, LINK, 1)[1] != "ring"
    seconds, _ = model.best("all_reduce", 1024, 1 << 34, None, LINK, 1)
    assert seconds == pytest.approx(2 * (1 << 34) / LINK.bandwidth, rel=0.01)


def test_a_host_is_fitted_to_its_own_times():
    times = {size: model.on_host("all_reduce", 2, size, HOST) for size in (1 << 4, 1 << 20, 1 << 26)}
    fitted = model.fit_host(times, 4)
    for size, seconds in times.items():
        assert model.on_host("all_reduce", 2, size, fitted) == pytest.approx(seconds, rel=0.01)
    assert model.on_host("all_reduce", 8, 1 << 26, fitted) > 2 * model.on_host("all_reduce", 4, 1 << 26, fitted)  # twice as many as cores


def test_ranks_that_share_processors_are_fitted_to_their_own_times():
    times = {1 << 10: 1e-4, 1 << 26: 0.9}
    fitted = model.fit_sharing(HOST, times, 8)  # two ranks for each core
    for size, seconds in times.items():
        assert model.on_host("all_reduce", 8, size, fitted) == pytest.approx(seconds)
        for ranks in (2, 4):  # a core each
            assert model.on_host("all_reduce", ranks, size, fitted) == model.on_host("all_reduce", ranks, size, HOST)
    lasts = [model.on_host("all_reduce", ranks, 1 << 26, fitted) for ranks in range(4, 33)]
    assert lasts == sorted(lasts)


def test_a_link_is_fitted_to_the_times_of_a_ring():
    fitted = model.fit_link({size: run_ring(4, size).clocks[0] for size in (1 << 10, 1 << 26)}, 4)
    assert fitted.latency == pytest.approx(LINK.latency, rel=1e-3) and fitted.bandwidth == pytest.approx(LINK.bandwidth, rel=1e-3)


def test_two_levels_send_each_part_once_between_hosts():
    seconds, name = model.best("all_reduce", 16, 1 << 26, HOST, LINK, 8)
    assert name.startswith("hierarchical")
    assert seconds > 2 * (1 / 2) * (1 << 26) / LINK.bandwidth  # two hosts exchange the message
    shared = model.Link(LINK.latency, LINK.bandwidth / 8)  # eight ranks that know nothing of each other
    assert seconds < model.best("all_reduce", 16, 1 << 26, None, shared, 1)[0] / 2
    assert model.best("all_reduce", 8, 1 << 26, HOST, LINK, 8)[1] == "shared memory"


@pytest.mark.parametrize("act, words", [
    (lambda: model.Link(-1.0, 1.0), "latency"),
    (lambda: model.Link(0.0, 0.0), "bandwidth"),
    (lambda: model.best("sum", 4, 8, HOST, LINK, 8), "no operator 'sum'"),
    (lambda: model.best("all_reduce", 16, 8, HOST, None, 8), "link between hosts"),
    (lambda: model.fit_host({8: 1.0}, 4), "two sizes"),
    (lambda: model.fit_link({8: 1.0, 16: 0.5}, 2), "the larger one"),
    (lambda: model.fit_sharing(HOST, {8: 1.0}, 4), "4 ranks do not share 4 cores"),
])  # fmt: skip
def test_what_the_model_cannot_compute_is_an_error(act, words):
    with pytest.raises(ValueError, match=words):
        act()


def test_sizes_are_read_with_their_units():
    assert [measure.size(text) for text in ("7", "64K", "1m", "2G")] == [7, 1 << 16, 1 << 20, 1 << 31]
    for text in ("", "K", "0", "-1", "1.5K", "1T", "999999G", "\u0661"):
        with pytest.raises(argparse.ArgumentTypeError):
            measure.size(text)
