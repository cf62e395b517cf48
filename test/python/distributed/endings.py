"""Ends a process of a group in the way that the fourth argument names, after a collective."""

import os
import sys
import time

import torch
import torch.distributed as dist
from ranks import RANK, begin
from torch.nn.parallel import DistributedDataParallel

WAY = sys.argv[4]


def in_a_hook(model, device):
    model.register_comm_hook(None, lambda state, bucket: sys.exit(5))
    model(torch.ones(2, 4, device=device)).sum().backward()


def in_a_fork():
    child = os.fork()
    if child == 0:
        sys.exit(0)  # by the destructors of the parent's objects
    _, status = os.waitpid(child, 0)
    assert status == 0, status


def with_work_of_gloo():
    """The end of the group waits for Gloo's thread, which releases a tensor of Python when its work ends."""
    global model
    del model  # the last other owner of the group
    if RANK == 1:
        time.sleep(1)
    numbers = torch.ones(3)
    dist.all_reduce(numbers, async_op=True)
    del numbers
    dist.destroy_process_group()


device = begin()
model = DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
model(torch.ones(2, 4, device=device)).sum().backward()
dist.all_reduce(torch.ones(3))
if WAY == "destroyed":
    dist.destroy_process_group()
elif WAY == "raised":
    raise LookupError("the program")
elif WAY == "sys.exit":
    sys.exit(5)
elif WAY == "hook":
    in_a_hook(model, device)
elif WAY == "fork":
    in_a_fork()
    dist.destroy_process_group()
elif WAY == "host work":
    with_work_of_gloo()
elif WAY == "in flight":
    dist.all_reduce(torch.ones(1 << 20, device=device), async_op=True)
else:
    assert WAY == "left", WAY
