"""Two steps of FSDP2 as one rank. Prints torch's own counts of the collectives, and the peak of device memory."""

import collections
import json

import ranks
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

device = ranks.begin()
torch.distributed.all_reduce(torch.ones(1, device=device))  # allocates what the ranks share if the host cannot access device memory
torch.accelerator.synchronize()
before = torch.accelerator.memory_allocated()
mesh = init_device_mesh(device, (ranks.SIZE,))
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).to(device)
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.ones(8, 256, device=device)
torch.accelerator.reset_peak_memory_stats()
counts = collections.Counter()
for _ in range(2):
    with CommDebugMode() as comms:  # takes one forward and backward
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    counts.update({str(operator).rpartition(".")[2]: count for operator, count in comms.get_comm_counts().items()})
torch.accelerator.synchronize()
print(json.dumps({"counts": counts, "peak": torch.accelerator.max_memory_allocated() - before}))
torch.distributed.destroy_process_group()
