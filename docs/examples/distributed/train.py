"""Trains with DistributedDataParallel, checks the result, and shows the error of a program whose ranks differ.

    torchrun --standalone --nproc-per-node 2 train.py
"""

import os

os.environ.setdefault("TORCH_BACKEND", "fake")
os.environ.setdefault("HAL_FAKE_DEVICES", "2")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch_backend  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
torch.accelerator.set_device_index(local_rank % torch.accelerator.device_count())
dist.init_process_group()
device = torch.device(torch_backend.device_name(), torch.accelerator.current_device_index())


def train(steps=20):
    """Each rank has its own part of the data; the gradients are averaged."""
    torch.manual_seed(0)  # equal parameters on all ranks
    model = DistributedDataParallel(torch.nn.Linear(16, 4).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 16, generator=generator).to(device)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model.module, losses


model, losses = train()
print(f"rank {rank} on {device}: loss {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)

# All ranks have equal parameters, bit for bit.
for parameter in model.parameters():
    copies = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
    dist.all_gather(copies, parameter.detach())
    assert all(torch.equal(copy, copies[0]) for copy in copies)
if rank == 0:
    print("parameters are equal on all ranks", flush=True)

# A defect: the ranks call different collectives. Each rank raises an error that names both calls.
try:
    if rank == 0:
        dist.broadcast(torch.ones(10, device=device), src=0)
    else:
        dist.all_reduce(torch.ones(11, device=device))
except ValueError as error:
    if rank == 0:
        print(str(error).splitlines()[0], flush=True)
