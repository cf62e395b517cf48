"""A training step whose ranks are divided three ways: pipeline, sharded data, tensors. For a dry run: no rank but this one runs."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STAGES, TENSOR, WIDTH = 4, 8, 256


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


dist.init_process_group()
device = torch.accelerator.current_accelerator()
mesh = init_device_mesh(device.type, (STAGES, dist.get_world_size() // STAGES // TENSOR, TENSOR), mesh_dim_names=("pp", "dp", "tp"))
model = torch.nn.Sequential(*(Block() for _ in range(2))).to(device)
for block in model:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

where, piece = mesh.get_local_rank("pp"), torch.empty(2, WIDTH, device=device)
stage = PipelineStage(
    model, where, STAGES, device, group=mesh.get_group("pp"),
    input_args=piece.clone().requires_grad_(where > 0), output_args=piece.clone().requires_grad_(),
    input_grads=piece if where else None, output_grads=piece if where < STAGES - 1 else None,
)  # fmt: skip
schedule = Schedule1F1B(stage, 8, loss_fn=lambda output, target: (output - target).square().mean())
x = torch.randn(16, WIDTH, device=device)
for _ in range(2):
    optimizer.zero_grad()
    schedule.step(*([x] if where == 0 else []), **({"target": x} if where == STAGES - 1 else {}))
    optimizer.step()
