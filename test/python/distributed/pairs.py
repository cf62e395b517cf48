"""Messages of 64 MiB between two pairs of ranks, which cross, compared with the same in one direction. The last word is the ratio of their times."""

import time

import torch
import torch.distributed as dist
from ranks import RANK, begin

COUNT, PEER = 1 << 24, RANK ^ 1


def seconds(operations):
    """Returns the shortest of several times of the slowest rank."""
    times = []
    for _ in range(7):
        torch.accelerator.synchronize()
        dist.barrier()
        begun = time.monotonic()
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        torch.accelerator.synchronize()
        passed = torch.tensor([time.monotonic() - begun])
        dist.all_reduce(passed, dist.ReduceOp.MAX)
        times.append(passed.item())
    return min(times)


device = begin()
sent, received = torch.full((COUNT,), float(RANK), device=device), torch.zeros(COUNT, device=device)
send, receive = dist.P2POp(dist.isend, sent, PEER), dist.P2POp(dist.irecv, received, PEER)
one_way, crossed = seconds([receive if RANK % 2 else send]), seconds([send, receive])
assert received.unique().tolist() == [float(PEER)]
print(f"one direction {one_way * 1e3:.1f} ms, crossed {crossed * 1e3:.1f} ms, ratio {crossed / one_way:.2f}")
dist.destroy_process_group()
