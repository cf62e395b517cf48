"""Trains under torchrun, and continues from the last checkpoint after a restart. Arguments: a folder, and the rank and step of a kill -9 or -1."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FOLDER, VICTIM, FATAL = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
STEPS = 8


def write(value, name):
    """Replaces a file as a whole."""
    torch.save(value, FOLDER / f"{name}.new")
    os.replace(FOLDER / f"{name}.new", FOLDER / name)


dist.init_process_group()
rank, device = dist.get_rank(), torch.accelerator.current_accelerator()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
begin = 0
count = torch.ones(1)
dist.all_reduce(count)  # of CPU tensors, whose addresses are in the store too
if (FOLDER / "checkpoint").exists():
    state = torch.load(FOLDER / "checkpoint", map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begin = state["step"]
for step in range(begin, STEPS):
    if rank == VICTIM and step == FATAL and not (FOLDER / "killed").exists():
        (FOLDER / "killed").write_text(f"step {step}")
        os.kill(os.getpid(), signal.SIGKILL)
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * step + rank)).to(device)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if rank == 0:
        write({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, "checkpoint")
    dist.barrier()
dist.all_reduce(count)
assert count.item() == dist.get_world_size() ** 2
if rank == 0:
    write({name: one.cpu() for name, one in model.module.state_dict().items()}, "weights")
dist.destroy_process_group()
