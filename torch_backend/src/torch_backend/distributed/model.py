"""Estimates the time of collectives: the alpha-beta model of common algorithms, fitted to measured times.

A step that sends B bytes over a link takes ``latency + B / bandwidth``. Sources: Thakur, Rabenseifner, Gropp,
"Optimization of Collective Communication Operations in MPICH" (2005) for ring and halving-doubling; Sanders, Speck,
Traeff, "Two-tree algorithms" (2009) for the tree.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, replace

OPERATORS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


@dataclass(frozen=True)
class Link:
    """A link between hosts. latency: seconds of a step; bandwidth: bytes per second of a host in one direction."""

    latency: float
    bandwidth: float

    def __post_init__(self):
        if not (self.latency >= 0 and self.bandwidth > 0 and math.isfinite(self.latency) and math.isfinite(self.bandwidth)):
            raise ValueError(f"a link has latency {self.latency} s and bandwidth {self.bandwidth} B/s; latency is >= 0, bandwidth > 0, both finite")

    def step(self, size: float) -> float:
        """Returns the seconds of one step of `size` bytes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Host:
    """Ranks that share the memory of one host.

    latency: seconds of an empty collective of two ranks. cores: processors that the ranks share. copies: pairs
    (bytes of a message, seconds for a byte that is copied once), sorted by bytes, because caches are faster than
    memory. sharing: pairs (bytes of a message, part of its time that is added with each doubling of the ranks beyond
    the cores), because ranks that share processors wait for threads that do not run.
    """

    latency: float
    cores: int
    copies: tuple[tuple[int, float], ...]
    sharing: tuple[tuple[int, float], ...] = ()

    def copied(self, size: float) -> float:
        """Returns the seconds for a byte of a message of `size` bytes."""
        return _interpolated(self.copies, size)

    def turns(self, ranks: int, size: float) -> float:
        """Returns how many times longer a collective takes because the ranks share processors; 1 if they do not."""
        turns = max(1.0, ranks / self.cores)
        return turns * (1.0 + (_interpolated(self.sharing, size) * math.log2(turns) if self.sharing else 0.0))


def _interpolated(pairs: tuple[tuple[int, float], ...], size: float) -> float:
    """Returns the value at `size`, interpolated logarithmically between measured sizes."""
    at = bisect.bisect_left([measured for measured, _ in pairs], size)
    if at == 0 or at == len(pairs):
        return pairs[min(at, len(pairs) - 1)][1]
    (below, low), (above, high) = pairs[at - 1 : at + 1]
    return low + (high - low) * math.log(size / below) / math.log(above / below)


def copies(operator: str, ranks: int) -> float:
    """Returns how often a rank copies the message of a collective in shared memory.

    The message is the whole tensor: the result of all_gather, the input of reduce_scatter and all_to_all. A read of
    n numbers and a write of one count as (n + 1) / 2 copies.
    """
    part, reduced = (ranks - 1) / ranks, (ranks + 1) / 2 / ranks
    return {
        "all_reduce": 2 * part + reduced,
        "all_gather": 1 / ranks + 1.0,
        "reduce_scatter": part + reduced,
        "all_to_all": 2 * part,
        "broadcast": 1.0,
    }[_known(operator)]


def on_host(operator: str, ranks: int, size: float, host: Host) -> float:
    """Returns the seconds of a collective in the shared memory of one host. If there are more ranks than cores, the
    ranks share the cores.
    """
    return (host.latency * math.log2(ranks) + copies(operator, ranks) * size * host.copied(size)) * host.turns(ranks, size) if ranks > 1 else 0.0


def ring(operator: str, ranks: int, size: float, link: Link) -> float:
    """Returns the seconds over a ring: each rank sends an n-th of the message to the next rank in each step."""
    steps = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "broadcast": 2}[_known(operator)] * (ranks - 1)
    return steps * link.step(size / ranks)


def halving_doubling(operator: str, ranks: int, size: float, link: Link) -> float:
    """Returns the seconds of recursive halving and doubling, with partners at distances 1, 2, 4 and so on. If the
    number of ranks is not a power of two, one step of the whole message is added before and after.
    """
    rounds, part = math.floor(math.log2(ranks)), (ranks - 1) / ranks
    if _known(operator) == "all_to_all":  # each round sends half of the message (Bruck)
        return math.ceil(math.log2(ranks)) * link.step(size / 2)
    passes = 1 if operator in ("all_gather", "reduce_scatter") else 2
    rest = 0 if ranks & (ranks - 1) == 0 else passes * link.step(size)
    return passes * (rounds * link.latency + part * size / link.bandwidth) + rest


def double_tree(operator: str, ranks: int, size: float, link: Link) -> float:
    """Returns the seconds of two binary trees, each with half of the message in a pipeline; infinite for operators that
    trees do not support.
    """
    passes = {"all_reduce": 2, "broadcast": 1}.get(_known(operator))
    return math.inf if passes is None else passes * (math.ceil(math.log2(ranks)) * link.latency + size / link.bandwidth)


ALGORITHMS = {"ring": ring, "halving-doubling": halving_doubling, "double tree": double_tree}


def hierarchical(operator: str, ranks: int, size: float, host: Host, link: Link, ranks_per_host: int) -> tuple[float, str]:
    """Returns the seconds of a collective in two levels, and the algorithm between the hosts. The ranks of a host
    divide the message. Ranks with the same number on each host exchange their part, all at the same time over the
    one link of the host.
    """
    hosts = math.ceil(ranks / ranks_per_host)
    if hosts == 1:
        return on_host(operator, ranks, size, host), "shared memory"
    across, name = min((function(operator, hosts, size, link), name) for name, function in ALGORITHMS.items())
    if ranks_per_host == 1:
        return across, name
    phases = ("reduce_scatter", "all_gather") if operator == "all_reduce" else (operator,)
    part = size if operator in ("all_reduce", "broadcast", "all_to_all") else size / hosts
    return across + sum(on_host(phase, ranks_per_host, part, host) for phase in phases), f"hierarchical, {name}"


def best(operator: str, ranks: int, size: float, host: Host | None, link: Link | None, ranks_per_host: int) -> tuple[float, str]:
    """Returns the shortest time of a collective in seconds, and its algorithm. host None: the ranks share no memory;
    link None: all are on one host. Raises ValueError if neither is possible.
    """
    _known(operator)
    if ranks < 2:
        return 0.0, "none"
    if host is not None and ranks <= ranks_per_host:
        return on_host(operator, ranks, size, host), "shared memory"
    if link is None:
        raise ValueError(f"{ranks} ranks with {ranks_per_host} on a host need a link between hosts")
    if host is None or ranks_per_host == 1:
        return min((function(operator, ranks, size, link), name) for name, function in ALGORITHMS.items())
    return hierarchical(operator, ranks, size, host, link, ranks_per_host)


def fit_host(times: dict[int, float], cores: int, operator: str = "all_reduce", ranks: int = 2) -> Host:
    """Returns the host that explains the measured `times` (bytes of the message to seconds). The smallest size
    determines the latency, the others the time of a copied byte. Raises ValueError for fewer than two sizes.
    """
    sizes = sorted(times)
    if len(sizes) < 2:
        raise ValueError(f"expected the times of two sizes or more, got {len(sizes)}")
    turns = max(1.0, ranks / cores)
    latency = times[sizes[0]] / turns / math.log2(ranks)
    rate = [(size, max(0.0, times[size] / turns - latency * math.log2(ranks)) / (copies(operator, ranks) * size)) for size in sizes[1:]]
    return Host(latency, cores, tuple(rate))


def fit_sharing(host: Host, times: dict[int, float], ranks: int, operator: str = "all_reduce") -> Host:
    """Returns the host with the `sharing` that explains the measured `times` of `ranks`, which are more than its cores
    (bytes of the message to seconds). Raises ValueError for fewer ranks.
    """
    if ranks <= host.cores:
        raise ValueError(f"{ranks} ranks do not share {host.cores} cores; expected the times of more ranks")
    alone = replace(host, sharing=())
    doublings = math.log2(ranks / host.cores)
    return replace(host, sharing=tuple((size, (times[size] / on_host(operator, ranks, size, alone) - 1.0) / doublings) for size in sorted(times)))


def fit_link(times: dict[int, float], ranks: int, operator: str = "all_reduce") -> Link:
    """Returns the link that explains the measured `times` of a ring of `ranks` (bytes of the message to seconds). The
    smallest size determines the latency, the largest the bandwidth. Raises ValueError for fewer than two sizes, or
    times that do not increase.
    """
    small, large = min(times, default=0), max(times, default=0)
    steps = round(ring(operator, ranks, 0, Link(1.0, 1.0)))
    if small == large or times[large] <= times[small]:
        raise ValueError(f"invalid times {times}: expected at least two sizes, and a longer time for the larger one")
    rate = (times[large] - times[small]) / (steps * (large - small) / ranks)
    return Link(max(0.0, times[small] / steps - small / ranks * rate), 1 / rate)


def _known(operator: str) -> str:
    if operator not in OPERATORS:
        raise ValueError(f"the model has no operator {operator!r}; it has {', '.join(OPERATORS)}")
    return operator
