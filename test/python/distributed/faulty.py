"""Three steps of a parallel training in which one call of the plugin fails on rank 1 (HAL_FAULT, set by the caller). Writes the weights' sum, or the error
that ended the training: both are right ends, a wrong sum or silence is not."""

import os
import sys

if sys.argv[1] == "1" and sys.argv[4] != "none":  # before torch opens the plugin
    os.environ.update(HAL_LAYERS="fault", HAL_FAULT=sys.argv[4])

import torch
from ranks import RANK, begin
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(device):
    torch.manual_seed(3)
    network = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).to(device))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(10 * step + RANK)).to(device)
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()
    return sum(parameter.double().cpu().sum().item() for parameter in network.parameters())


try:
    print("sum", train(begin(seconds=8)))
except Exception as error:
    print("error", type(error).__name__, str(error).splitlines()[0][:300])
sys.stdout.flush()
os._exit(0)  # how a process ends after a failure is the subject of endings.py
