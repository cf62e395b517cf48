"""Parallel training on the device, compared with the same program on the CPU with Gloo: in one group, whose CPU tensors
use Gloo."""

import copy

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as functional
from ranks import RANK, SIZE, begin
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


class Network(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Linear(12, width)
        self.norm = nn.LayerNorm(width)
        self.second = nn.Linear(width, 12)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.norm(self.first(x))))


def losses_of(model, place, steps=STEPS, optimizer=None, rank=RANK):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x, y = torch.randn(8, 12, generator=generator), torch.randn(8, 12, generator=generator)
        optimizer.zero_grad()
        loss = (model(x.to(place)) - y.to(place)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def both(device, parallel, **arguments):
    """Returns the losses on the CPU and on the device of a network that `parallel(network, place)` makes parallel."""
    torch.manual_seed(5)
    network = Network()
    return [losses_of(parallel(copy.deepcopy(network).to(place), place), place, **arguments) for place in ("cpu", device)]


def check_equal(pair):
    torch.testing.assert_close(pair[1], pair[0], rtol=1e-6, atol=1e-6)
    assert pair[0].std() > 1e-3


def check_data_parallel(device):
    check_equal(both(device, lambda network, place: DistributedDataParallel(network, find_unused_parameters=True)))


def check_static_graph(device):
    def parallel(network, place):
        del network.unused
        return DistributedDataParallel(network, static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=0.001)

    check_equal(both(device, parallel))


def check_no_sync_and_uneven_inputs(device):
    found = []
    for place in ("cpu", device):
        torch.manual_seed(5)
        model = DistributedDataParallel(Network().to(place), find_unused_parameters=True)
        with model.no_sync():
            model(torch.ones(2, 12, device=place)).sum().backward()
        model(torch.ones(2, 12, device=place)).sum().backward()
        found.append(model.module.first.weight.grad.cpu().clone())
        with Join([model]):
            for _ in range(2 + RANK):
                model(torch.ones(2, 12, device=place)).sum().backward()
        found.append(model.module.first.weight.grad.cpu().clone())
    torch.testing.assert_close(found[:2], found[2:], rtol=1e-5, atol=1e-5)


def check_sharded(device):
    """FSDP2, whose CPU form needs no GPU."""

    def parallel(network, place):
        mesh = init_device_mesh(place, (SIZE,))
        for layer in (network.first, network.second):
            fully_shard(layer, mesh=mesh)
        return fully_shard(network, mesh=mesh)

    check_equal(both(device, parallel))


def losses_of_copies_in_bfloat16(network, device):
    """FSDP2's mixed precision by hand, without shards: a copy in bfloat16 computes gradients, whose mean over the ranks is computed in float32."""
    optimizer, half, losses = torch.optim.AdamW(network.parameters(), lr=1e-2, foreach=False), copy.deepcopy(network).bfloat16(), []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 * step + RANK)
        x, y = torch.randn(8, 12, generator=generator), torch.randn(8, 12, generator=generator)
        for rounded, parameter in zip(half.parameters(), network.parameters()):
            rounded.data.copy_(parameter.data)
        half.zero_grad()
        loss = (half(x.to(device).bfloat16()) - y.to(device)).square().mean()
        loss.backward()
        for rounded, parameter in zip(half.parameters(), network.parameters()):
            if rounded.grad is not None:
                parameter.grad = rounded.grad.float()
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def check_sharded_in_mixed_precision(device):
    """The gathers and reductions of FSDP2 add no rounding: the losses are those of whole copies, bit for bit. Compared with the CPU, whose operators
    compute in float32 in another order, a number that is rounded to bfloat16 differs by one unit in the last place where it is near the middle of two
    of them: the losses, means in float32, differ by less than the rounding, 2**-9."""

    def parallel(network, place):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        return fully_shard(network, mesh=init_device_mesh(place, (SIZE,)), mp_policy=policy)

    cpu, ours = both(device, parallel)
    torch.manual_seed(5)
    assert torch.equal(ours, losses_of_copies_in_bfloat16(Network().to(device), device))
    torch.testing.assert_close(ours, cpu, rtol=2**-9, atol=0)


def check_tensor_parallel(device):
    def parallel(network, place):
        return parallelize_module(network, init_device_mesh(place, (SIZE,)), {"first": ColwiseParallel(output_layouts=Replicate()), "second": RowwiseParallel(input_layouts=Replicate())})

    check_equal(both(device, parallel, rank=0))


def check_distributed_tensors(device):
    mesh = init_device_mesh(device, (SIZE,))
    torch.manual_seed(3)
    a, b = torch.randn(8, 6), torch.randn(6, 4)
    x, y = distribute_tensor(a.to(device), mesh, [Shard(0)]), distribute_tensor(b.to(device), mesh, [Shard(0)])
    torch.testing.assert_close((x @ y).full_tensor().cpu(), a @ b)
    torch.testing.assert_close(x.redistribute(mesh, [Shard(1)]).full_tensor().cpu(), a)


def check_synchronized_batch_norm(device):
    found = []
    for place in ("cpu", device):
        torch.manual_seed(5)
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(place)
        if place != "cpu":
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        images = [torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(rank)) for rank in range(SIZE)]
        image = images[RANK] if place != "cpu" else torch.cat(images)  # the CPU has all images: SyncBatchNorm is for GPUs
        result = network(image.to(place))
        result.square().sum().backward()
        grad = network[0].weight.grad
        if place != "cpu":
            dist.all_reduce(grad)
        found += [network[1].running_mean.cpu(), network[1].running_var.cpu(), grad.cpu()]
    torch.testing.assert_close(found[3:], found[:3], rtol=1e-4, atol=1e-4)


class BatchNorm(nn.Module):
    """Normalizes by the statistics of all ranks, as SyncBatchNorm, which torch has for GPUs only."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        sums = torch.stack([x.sum((0, 2, 3)), x.square().sum((0, 2, 3))])
        mean, square = functional.all_reduce(sums) / (SIZE * x[:, 0].numel())
        scale = self.weight * torch.rsqrt(square - mean.square() + 1e-5)
        return x * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]


def images_of(step):
    generator = torch.Generator().manual_seed(100 * step + RANK)
    return torch.randn(4, 3, 6, 6, generator=generator), torch.randn(4, 4, 4, 4, generator=generator)


def train_with_batch_norm(place, norm, dtype=torch.float32):
    """Returns the losses of 20 steps of a convolution and a batch norm in DDP."""
    torch.manual_seed(5)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), norm(4), nn.Conv2d(4, 4, 1)).to(place, dtype)
    if norm is nn.BatchNorm2d:
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    model, losses = DistributedDataParallel(network), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
    for step in range(STEPS):
        x, y = (one.to(place, dtype) for one in images_of(step))
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def check_training_with_synchronized_batch_norm(device):
    """Compared with the same program on the CPU with Gloo, whose batch norm computes in float64."""
    expected = train_with_batch_norm("cpu", BatchNorm, torch.float64)
    check_equal([expected, train_with_batch_norm(device, nn.BatchNorm2d)])


def main():
    device = begin("torch_backend")
    for check in (check_data_parallel, check_static_graph, check_no_sync_and_uneven_inputs, check_sharded, check_sharded_in_mixed_precision,
                  check_tensor_parallel, check_distributed_tensors, check_synchronized_batch_norm,
                  check_training_with_synchronized_batch_norm):  # fmt: skip
        check(device)
        print("passed", check.__name__, flush=True)
    dist.destroy_process_group()


main()
