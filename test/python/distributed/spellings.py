"""Each spelling of the backend, with and without device_id: DDP with its hooks and statistics, SyncBatchNorm and objects."""

import os

import ranks
import torch
import torch.distributed as dist
from ranks import RANK, SIZE
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

DEVICE = torch.accelerator.current_accelerator().type


def check(hook=None):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2)).to(DEVICE)
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
    if hook:
        model.register_comm_hook(None, hook)
    for _ in range(3):
        model(torch.full((2, 3, 6, 6), RANK + 1.0, device=DEVICE)).sum().backward()
    gradient = model.module[3].bias.grad.cpu()
    assert torch.isfinite(gradient).all()
    found = [None] * SIZE
    dist.all_gather_object(found, gradient.tolist())
    assert found == [found[0]] * SIZE
    return model


def main():
    place = ranks.RENDEZVOUS
    names = [None, "torch_backend", f"{DEVICE}:torch_backend", f"cpu:gloo,{DEVICE}:torch_backend"]
    for number, (name, bound) in enumerate((name, bound) for name in names for bound in (False, True)):
        ranks.RENDEZVOUS = f"{place}-{number}"
        device = ranks.begin(name, **({"device_id": torch.device(DEVICE, 0)} if bound else {}))
        model = check()
        if number == 0:
            for hook in (default_hooks.bf16_compress_hook, default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)):
                check(hook)
            statistics = model._get_ddp_logging_data()
            assert statistics["avg_backward_compute_time"] > 0 and statistics["avg_backward_comm_time"] > 0, statistics
        dist.barrier()
        dist.destroy_process_group()
        print("passed", name, bound, device, flush=True)
        if RANK == 0 and os.path.exists(ranks.RENDEZVOUS):
            os.unlink(ranks.RENDEZVOUS)


main()
