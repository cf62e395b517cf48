"""A step of DDP, collectives and messages of device memory that the host cannot access: prints how many copies of the device each rank's profile has."""

import json

import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

COUNT = 70001
TOTAL = SIZE * (SIZE + 1) / 2  # of the ranks' numbers, from 1 on


def communicate(x, gathered, model, data):
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_gather_into_tensor(gathered, x)
    dist.reduce_scatter_tensor(x, gathered, dist.ReduceOp.AVG)
    dist.all_to_all_single(gathered, gathered.clone())
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, gathered[: len(x)], before)]):
        work.wait()
    model(data).square().mean().backward()
    torch.accelerator.synchronize()


def main():
    device = begin()
    x, gathered = torch.full((COUNT,), RANK + 1.0, device=device), torch.empty(COUNT * SIZE, device=device)
    model = DistributedDataParallel(torch.nn.Linear(64, 64).to(device))
    data = torch.full((8, 64), RANK + 1.0, device=device)
    for _ in range(2):  # in the second step DDP sends the buckets' indices, which are host memory
        communicate(x, gathered, model, data)
    x.fill_(RANK + 1.0)
    with profile(activities=[ProfilerActivity.PrivateUse1]) as result:
        communicate(x, gathered, model, data)
    rows = [row.name for row in result.events() if row.name.startswith("Memcpy")]
    assert (x == TOTAL).all() and (gathered == TOTAL).all()  # the average of equal blocks is each of them
    print(json.dumps({kind: rows.count(f"Memcpy {kind}") for kind in ("HtoD", "DtoH", "DtoD")}))
    dist.destroy_process_group()


main()
