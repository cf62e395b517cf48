"""Three steps of a parallel training, in which one call of the plugin fails on one rank (HAL_FAULT). Returns the weights' sum, or the error that ended the
training: both are right, a wrong sum or silence is not. fault_sweep.py runs it."""

import datetime

import stores
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SECONDS = 8  # of the group's timeout


def train(rank, device):
    torch.manual_seed(3)
    network = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).to(device))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(10 * step + rank)).to(device)
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()
    return sum(parameter.double().cpu().sum().item() for parameter in network.parameters())


def result(rank, rendezvous):
    """Returns the kind of the end and its words."""
    try:
        torch._import_device_backends()
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if accelerator is None:
            return "error", "no device of the plugin is available"
        torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
        timeout = datetime.timedelta(seconds=SECONDS)
        dist.init_process_group(store=stores.tcp(rank, rendezvous, SECONDS), rank=rank, world_size=2, timeout=timeout)
        return "sum", repr(train(rank, accelerator.type))
    except Exception as error:
        return "error", f"{type(error).__name__} {str(error).splitlines()[0][:300]}"
