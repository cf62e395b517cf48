"""Groups of some of the ranks: split, subsets, nested, many, and what is left after a rank was killed."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin
from torch.distributed import distributed_c10d

LAST = SIZE - 1


def total(device, group=None, value=RANK + 1.0):
    """Returns the sum of the ranks' values in a group, by a collective."""
    x = torch.full((33,), value, device=device)
    dist.all_reduce(x, group=group)
    assert x.min() == x.max()
    return x[0].item()


def check_split(device):
    backend = dist.group.WORLD._get_backend(torch.device(device))
    assert backend.supports_splitting and type(backend).__name__ == "ProcessGroupDevice"
    before = backend.comm_split_count()
    colors = [[0], list(range(1, SIZE))]
    part = dist.split_group(split_ranks=colors)
    mine = colors[0] if RANK == 0 else colors[1]
    assert part.size() == len(mine) and part.rank() == mine.index(RANK)
    assert total(device, part) == sum(rank + 1 for rank in mine)
    host = torch.full((3,), RANK + 1.0)
    dist.all_reduce(host, group=part)  # torch splits a group once for each device type
    assert host[0].item() == sum(rank + 1 for rank in mine)
    assert backend.comm_split_count() > before
    some = dist.split_group(split_ranks=[[0, 1]])  # the others are in no group
    is_member = some not in (None, dist.GroupMember.NON_GROUP_MEMBER)  # the second since torch 2.15
    assert is_member == (RANK <= 1)
    if is_member:
        assert total(device, some) == 3
    again = dist.split_group(split_ranks=[list(range(SIZE))])
    assert total(device, again) == sum(range(1, SIZE + 1))  # torch's names for this group differ between the ranks
    counts = [None] * SIZE
    dist.all_gather_object(counts, backend.comm_split_count())
    assert counts == [before + 3] * SIZE, counts


def check_timeout_of_split(device):
    """The ranks of a split wait for the last one no longer than the split's timeout."""
    everybody = [list(range(SIZE))]
    group = dist.split_group(split_ranks=everybody, timeout=timedelta(seconds=5))
    assert total(device, group) == sum(range(1, SIZE + 1))
    if RANK != LAST:
        begun = time.monotonic()
        try:
            dist.all_reduce(torch.ones(3, device=device), group=group, async_op=True).wait(timedelta(seconds=40))
        except dist.DistBackendError as error:
            assert 4.5 < time.monotonic() - begun < 8, error
        else:
            raise AssertionError("the sum without a rank")
    dist.barrier()
    dist.destroy_process_group(group)


def check_nested_split(device):
    """After the last new_group: since torch 2.14 a split counts as a group on the ranks that call it, and new_group
    names its group by that count, so with every backend it would wait for ranks that use another name."""
    some = dist.split_group(split_ranks=[[0, 1]])
    if RANK <= 1:
        half = dist.split_group(some, split_ranks=[[0], [1]])
        assert total(device, half) == RANK + 1


def check_subsets(device):
    """torch calls perform_nocolor_split on the ranks that are not in a new group."""
    for ranks in ([0, LAST], [LAST], [0], [1, 0]):
        group = dist.new_group(ranks)
        if RANK in ranks:
            assert total(device, group) == sum(rank + 1 for rank in ranks)
        else:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
    groups, number = dist.new_subgroups(1)
    assert total(device, groups) == RANK + 1


def check_many(device):
    begun = time.monotonic()
    groups = [dist.new_group([0, 1]) for _ in range(64)]
    for number, group in enumerate(groups):
        if RANK < 2:
            assert total(device, group, number + RANK) == 2 * number + 1
    for group in groups:
        if RANK < 2:
            dist.destroy_process_group(group)
    seconds = time.monotonic() - begun
    print(f"64 groups in {seconds:.1f} s")
    assert seconds < 10 * float(os.environ.get("SECONDS_FACTOR", "3"))


def check_shrink(device):
    """A rank is killed while the others wait for it; they go on without it."""
    total(device)
    if RANK == LAST:
        os.kill(os.getpid(), 9)
    try:  # a wait with a limit is one of the host, which sees a failure of the plugin's library as well
        dist.all_reduce(torch.ones(3, device=device), async_op=True).wait(timedelta(seconds=40))
    except dist.DistBackendError as error:
        assert f"rank {LAST}" in str(error), error
    else:
        raise AssertionError("the sum without a rank")
    group = dist.shrink_group([LAST], shrink_flags=distributed_c10d.SHRINK_ABORT)
    assert group.size() == SIZE - 1 and dist.get_world_size() == SIZE - 1 and dist.get_rank() == RANK
    assert total(device) == sum(range(1, SIZE))
    host = torch.full((3,), RANK + 1.0)
    dist.all_reduce(host)
    assert host[0].item() == sum(range(1, SIZE))


def main():
    bound = sys.argv[4] != "unbound"
    index = RANK if "TORCH_BACKEND_TEST_DEVICES" in os.environ else 0
    device = begin(**{"device_id": torch.device(torch.accelerator.current_accelerator().type, index)} if bound else {})
    checks = (check_split, check_subsets, check_many, check_nested_split) if bound else (check_subsets,)
    checks = (check_timeout_of_split,) if sys.argv[4] == "timeout" else checks + ((check_shrink,) if SIZE > 2 else ())
    for check in checks:
        check(device)
        print("passed", check.__name__, flush=True)
    dist.destroy_process_group()


main()
