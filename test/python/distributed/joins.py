"""What a process reports about the beginning of its group: a rank that comes late, and a device that is another rank's. The fourth argument: the kind."""

import os
import sys
import time

import torch
import torch.distributed as dist
from ranks import RANK, begin

KIND = sys.argv[4]
SECONDS = 6  # of the group's timeout; the late rank comes after two thirds of it


def come_late(rank):
    if RANK == rank:
        time.sleep(SECONDS * 2 / 3)


def late(rank):
    """A rank is late for the group, then for its first collective."""
    come_late(rank)
    device = begin(seconds=SECONDS)
    come_late(rank)
    return device


def local_rank():
    """As a launcher starts the processes. Which device a rank uses is the fifth argument."""
    os.environ["LOCAL_RANK"] = str(RANK)
    if sys.argv[5] == "set":
        torch.accelerator.set_device_index(RANK)
    device = torch.accelerator.current_accelerator().type
    return begin(**({"device_id": torch.device(device, 0)} if sys.argv[5] == "bound" else {}))


device = local_rank() if KIND == "local_rank" else late(int(sys.argv[5]))
x = torch.ones(3, device=device)
dist.all_reduce(x)
assert x.cpu().tolist() == [2.0] * 3
dist.destroy_process_group()
