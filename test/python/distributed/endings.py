"""Ends a process of a group in the way that the fourth argument names, after a collective."""

import os
import sys

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
elif WAY == "in flight":
    dist.all_reduce(torch.ones(1 << 20, device=device), async_op=True)
else:
    assert WAY == "left", WAY
