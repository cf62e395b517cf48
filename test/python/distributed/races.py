"""Collectives between streams of a device that delays its work at random: no sum has a value that was not ready. Argument: the schedules."""

import random
import sys

import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin

TOTAL = sum(range(1, SIZE + 1))


def schedule(device, streams, source):
    """Computes operands on random streams, reduces them, and uses the results on others."""
    results = []
    for _ in range(source.randrange(1, 5)):
        made, used = source.choice(streams), source.choice(streams)
        size, factor = source.choice((10, 1000, 50000)), source.randrange(1, 5)
        with made:
            x = torch.full((size,), RANK + 1.0, device=device)
            for _ in range(source.randrange(4)):
                x = x + 1.0
                x = x - 1.0
            work = dist.all_reduce(x, async_op=True)
        with used:
            work.wait()
            results.append((x, x * factor, TOTAL * factor))  # x stays allocated until the stream is done
    for stream in streams:
        stream.synchronize()
    return sum(int((found != expected).sum().item()) for _, found, expected in results)


def main():
    device = begin("torch_backend")
    streams = [torch.Stream(device) for _ in range(3)]
    source = random.Random(5)  # the same schedules on all ranks
    wrong = sum(schedule(device, streams, source) for _ in range(int(sys.argv[4])))
    assert wrong == 0, f"{wrong} wrong sums"
    print("passed")
    dist.destroy_process_group()


main()
