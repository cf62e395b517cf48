"""More ways to train in parallel, compared with the same program on the CPU with Gloo or with one process. The arguments name the checks."""

import contextlib
import copy
import itertools
import os
import signal
import sys
import tempfile
import threading

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from ranks import RANK, SIZE, begin
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.nn.parallel import DistributedDataParallel

STEPS = 20
WIDTH = 12


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(WIDTH, 24), nn.LayerNorm(24), nn.Linear(24, WIDTH)

    def forward(self, x):
        return self.second(nn.functional.gelu(self.norm(self.first(x))))


class Branches(Network):
    """Uses other parameters in each step."""

    def __init__(self):
        super().__init__()
        self.even, self.odd, self.step = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), 0

    def forward(self, x):
        self.step += 1
        return super().forward((self.even if self.step % 2 == 0 else self.odd)(x))


def batch(step, rank=None, rows=8):
    generator = torch.Generator().manual_seed(1000 * step + (RANK if rank is None else rank))
    return torch.randn(rows, WIDTH, generator=generator), torch.randn(rows, WIDTH, generator=generator)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2, foreach=False)


def train(model, place, optimizer=None, steps=range(STEPS)):
    optimizer = optimizer or adam(model.parameters())
    losses = []
    for step in steps:
        x, y = (one.to(place) for one in batch(step))
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def check_equal(expected, found, tolerance=1e-6):
    assert len(expected) >= 3 and expected.std() > 1e-3, expected
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def compare(device, parallel, kind=Network, optimizer=None, tolerance=1e-6):
    """Trains copies of one network on the CPU and on the device; `parallel(network, place)` makes each parallel."""
    torch.manual_seed(5)
    network, losses = kind(), []
    for place in ("cpu", device):
        model = parallel(copy.deepcopy(network).to(place), place)
        losses.append(train(model, place, optimizer(model) if optimizer else None))
    check_equal(*losses, tolerance)


def data_parallel(device):
    compare(device, lambda network, place: DistributedDataParallel(network, bucket_cap_mb=0.001))


def unused_parameters(device):
    compare(device, lambda network, place: DistributedDataParallel(network, find_unused_parameters=True), Branches)


def compiled(device):
    """The CPU's model is not compiled."""

    def parallel(network, place):
        model = DistributedDataParallel(network)
        return model if place == "cpu" else torch.compile(model, backend="aot_eager")

    compare(device, parallel)


def half_precision_hook(device):
    def parallel(network, place):
        model = DistributedDataParallel(network)
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return model

    compare(device, parallel, tolerance=1e-2)


def bfloat16_hook(device):
    """torch accepts the hook for GPUs only, so the CPU's has another name. Two ranks: Gloo rounds each addition."""

    def same(state, bucket):
        return default_hooks.bf16_compress_hook(state, bucket)

    def parallel(network, place):
        model = DistributedDataParallel(network)
        model.register_comm_hook(None, same if place == "cpu" else default_hooks.bf16_compress_hook)
        return model

    compare(device, parallel)


def zero(device):
    def optimizer(model):
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2, foreach=False)

    compare(device, lambda network, place: DistributedDataParallel(network), optimizer=optimizer)


def first_sharded(device):
    """FSDP1 on the device, compared with DDP on the CPU, where FSDP1 has no reduce-scatter."""

    def parallel(network, place):
        if place == "cpu":
            return DistributedDataParallel(network)
        return FullyShardedDataParallel(network, device_id=torch.device(device, torch.accelerator.current_device_index()), use_orig_params=True)

    compare(device, parallel)


def first_sharded_hybrid(device):
    def parallel(network, place):
        if place == "cpu":
            return DistributedDataParallel(network)
        mesh = init_device_mesh(device, (2, SIZE // 2), mesh_dim_names=("replicate", "shard"))
        return FullyShardedDataParallel(network, device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD, use_orig_params=True)

    compare(device, parallel)


def shard(network, place, shape=(SIZE,), **options):
    mesh = init_device_mesh(place, shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for layer in (network.first, network.second):
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(network, mesh=mesh, **options)


def sharded(device):
    compare(device, shard)


def sharded_hybrid(device):
    compare(device, lambda network, place: shard(network, place, (2, SIZE // 2)))


def sharded_offloaded(device):
    """Parameters and gradients stay in host memory between steps; the CPU's program is FSDP2 without the policy."""
    compare(device, lambda network, place: shard(network, place, **({} if place == "cpu" else {"offload_policy": CPUOffloadPolicy()})))


def sharded_memory(device):
    """The peak of a step: parameters, gradients and two moments, divided among the ranks, and three whole layers in
    flight: parameters as gathered, a gradient, and the gradient that is sent."""
    layers, width = 64, 128
    dist.all_reduce(torch.ones(1, device=device))  # allocates what the ranks share if the host cannot access device memory
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    network = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))).to(device)
    mesh = init_device_mesh(device, (SIZE,))
    for layer in network:
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    optimizer, x = adam(network.parameters()), torch.ones(4, width, device=device)
    for _ in range(3):
        torch.accelerator.synchronize()
        torch.accelerator.reset_peak_memory_stats()
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()
    torch.accelerator.synchronize()
    layer = width * width * 4
    expected, found = (4 * layers // SIZE + 3) * layer, torch.accelerator.max_memory_allocated() - before
    print(f"peak {found}, computed {expected}, layers in flight {found / layer - 4 * layers / SIZE:.1f}")
    assert abs(found - expected) < 0.05 * expected


def pipeline(device, schedule, stages):
    """The losses of the last stage are those of one process that has all layers and the same micro-batches."""
    torch.manual_seed(7)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(stages * SIZE)]
    whole = copy.deepcopy(nn.Sequential(*layers))
    mine = {number: copy.deepcopy(layers[number]).to(device) for number in range(RANK, len(layers), SIZE)}
    parts = [PipelineStage(module, number, len(layers), torch.device(device)) for number, module in mine.items()]
    criterion = nn.functional.mse_loss
    run = schedule(parts if stages > 1 else parts[0], n_microbatches=2 * SIZE, loss_fn=criterion)
    ours, reference = adam([p for module in mine.values() for p in module.parameters()]), adam(whole.parameters())
    expected, found, last = [], [], SIZE - 1
    for step in range(STEPS):
        x, y = batch(step, 0, 4 * SIZE)
        reference.zero_grad()
        losses = [criterion(whole(one), target) for one, target in zip(x.chunk(2 * SIZE), y.chunk(2 * SIZE))]
        (sum(losses) / len(losses)).backward()
        reference.step()
        expected.append(sum(losses).item() / len(losses))
        ours.zero_grad()
        parts_of_loss = []
        arguments = (x.to(device),) if RANK == 0 else ()
        run.step(*arguments, **({"target": y.to(device), "losses": parts_of_loss} if RANK == last else {}))
        ours.step()
        found.append(sum(one.item() for one in parts_of_loss) / (2 * SIZE))
    if RANK == last:
        check_equal(torch.tensor(expected, dtype=torch.float64), torch.tensor(found, dtype=torch.float64))


def pipeline_1f1b(device):
    pipeline(device, Schedule1F1B, 1)


def pipeline_interleaved(device):
    pipeline(device, ScheduleInterleaved1F1B, 2)


def pipeline_zero_bubble(device):
    pipeline(device, ScheduleInterleavedZeroBubble, 2)


class Attention(nn.Module):
    def __init__(self, is_causal):
        super().__init__()
        self.first, self.second, self.is_causal = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), is_causal

    def forward(self, x):
        query, key, value = self.first(x).unflatten(-1, (3, 3, WIDTH // 3)).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        return self.second(found.transpose(1, 2).flatten(2))


def sequences(step, length):
    generator = torch.Generator().manual_seed(1000 * step)
    return torch.randn(2, length, WIDTH, generator=generator), torch.randn(2, length, WIDTH, generator=generator)


def context_parallel(device):
    """Each rank has a part of the sequences. The losses are those of one process on the CPU that has them whole."""
    for is_causal, method in ((True, "allgather"), (True, "alltoall"), (False, "allgather")):
        ring._cp_options.enable_load_balance = is_causal
        ring.set_rotate_method(method)
        torch.manual_seed(5)
        whole, length, mesh = Attention(is_causal), 8 * SIZE, init_device_mesh(device, (SIZE,))
        mine = copy.deepcopy(whole).to(device)
        expected, ours = adam(whole.parameters()), adam(mine.parameters())
        losses = [[], []]
        for step in range(STEPS):
            x, y = sequences(step, length)
            expected.zero_grad()
            loss = (whole(x) - y).square().mean()
            loss.backward()
            expected.step()
            losses[0].append(loss.item())
            x, y = x.to(device), y.to(device)
            ours.zero_grad()
            with ring.context_parallel(mesh, buffers=[x, y], buffer_seq_dims=[1, 1], no_restore_buffers={x, y}):
                assert x.shape[1] == length // SIZE
                loss = (mine(x) - y).square().mean()
                loss.backward()
            loss = loss.detach()
            for tensor in (loss, *(parameter.grad for parameter in mine.parameters())):
                dist.all_reduce(tensor, dist.ReduceOp.AVG)
            ours.step()
            losses[1].append(loss.item())
        check_equal(*(torch.tensor(one, dtype=torch.float64) for one in losses))


def attention(device):
    """Attention of DTensors that are divided by batch, by heads or not at all, with and without a mask, and grouped heads."""
    mesh = init_device_mesh(device, (SIZE,))
    for placement, heads, masked in itertools.product((Shard(0), Shard(1), Shard(2), Replicate()), (4, 2), (None, (4, 4, 6, 6), (1, 1, 6, 6))):
        torch.manual_seed(3)
        mask = None if masked is None else torch.randn(masked)
        operands = [torch.randn(4, count, 6, 8) for count in (4, heads, heads)]
        results = []
        for place in ("cpu", device):
            used = [one.clone().to(place) for one in operands + ([] if mask is None else [mask])]
            if place != "cpu":
                used = [distribute_tensor(one, mesh, [Replicate() if number == 3 else placement]) for number, one in enumerate(used)]
            used = [one.requires_grad_() for one in used]
            found = nn.functional.scaled_dot_product_attention(*used[:3], attn_mask=used[3] if mask is not None else None, is_causal=mask is None, enable_gqa=heads != 4)
            found.square().sum().backward()
            results.append([one if place == "cpu" else one.full_tensor().cpu() for one in (found.detach(), *(one.grad for one in used))])
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4, msg=lambda text: f"{placement}, {heads} heads, mask {masked}: {text}")


def functional_compiled(device):
    def step(x):
        total = functional.all_reduce(x * 2, "sum", list(range(SIZE)))
        parts = functional.reduce_scatter_tensor(total, "sum", 0, list(range(SIZE)))
        return functional.all_gather_tensor(parts + 1, 0, list(range(SIZE))) - x

    x = torch.arange(4.0 * SIZE) + RANK
    everybody = sum(torch.arange(4.0 * SIZE) + rank for rank in range(SIZE))
    expected = everybody * 2 * SIZE + 1 - x
    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        call = torch.compile(step, backend=backend, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(call(x.to(device)).cpu(), expected, rtol=0, atol=0)


def objects(device):
    mine = {"rank": RANK, "tensor": torch.full((RANK + 1,), RANK), "text": "x" * (1000 * RANK)}
    everybody = [None] * SIZE
    dist.all_gather_object(everybody, mine)
    assert [one["rank"] for one in everybody] == list(range(SIZE)) and all(len(one["text"]) == 1000 * one["rank"] for one in everybody)
    given = [mine] if RANK == SIZE - 1 else [None]
    dist.broadcast_object_list(given, SIZE - 1)
    assert given[0]["tensor"].tolist() == [SIZE - 1] * SIZE
    gathered = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK * 2, gathered, 0)
    assert RANK or gathered == [2 * rank for rank in range(SIZE)]
    scattered = [None]
    dist.scatter_object_list(scattered, [f"for {rank}" for rank in range(SIZE)] if RANK == 0 else None, 0)
    assert scattered == [f"for {RANK}"]
    if RANK == 0:
        dist.send_object_list([{"a": 1}], 1)
    elif RANK == 1:
        received = [None]
        dist.recv_object_list(received, 0)
        assert received == [{"a": 1}]


def meshes(device):
    mesh = init_device_mesh(device, (SIZE // 2, 2), mesh_dim_names=("outer", "inner"))
    for name, members in (("inner", [rank for rank in range(SIZE) if rank // 2 == RANK // 2]), ("outer", [rank for rank in range(SIZE) if rank % 2 == RANK % 2])):
        x = torch.tensor([float(RANK)], device=device)
        dist.all_reduce(x, group=mesh[name].get_group())
        assert x.item() == sum(members) and mesh.get_local_rank(name) == members.index(RANK)
        assert dist.get_process_group_ranks(mesh.get_group(name)) == members
    flat = mesh["outer", "inner"]._flatten("all")
    x = torch.ones(1, device=device)
    dist.all_reduce(x, group=flat.get_group())
    assert x.item() == SIZE


def shared_folder():
    name = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(name, 0)
    return name[0]


def model_to_save(device):
    torch.manual_seed(5)
    model = shard(Network().to(device), device)
    return model, adam(model.parameters())


def save_and_load(device):
    """A checkpoint continues a training to the same losses. CHECKPOINT keeps it for `load_of_other_ranks`."""
    model, optimizer = model_to_save(device)
    train(model, device, optimizer, range(5))
    states = get_state_dict(model, optimizer)
    folder = os.environ.get("CHECKPOINT") or shared_folder()
    checkpoint.save(dict(zip("mo", states)), checkpoint_id=folder)
    expected = train(model, device, optimizer, range(5, 12))
    again, its_optimizer = model_to_save(device)
    restore(again, its_optimizer, folder)
    check_equal(expected, train(again, device, its_optimizer, range(5, 12)), 0)


def restore(model, optimizer, folder):
    states = dict(zip("mo", get_state_dict(model, optimizer)))
    checkpoint.load(states, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=states["m"], optim_state_dict=states["o"])


def load_of_other_ranks(device):
    """The weights of a checkpoint of another number of ranks, in full, are those that were saved."""
    model, optimizer = model_to_save(device)
    restore(model, optimizer, os.environ["CHECKPOINT"])
    whole = {name: one.full_tensor().cpu() for name, one in model.state_dict().items()}
    plain = {"m": {name: torch.zeros_like(one) for name, one in whole.items()}}
    checkpoint.load(plain, checkpoint_id=os.environ["CHECKPOINT"])
    for name, one in plain["m"].items():
        assert torch.equal(one, whole[name]) and one.abs().sum() > 0, name
    moment = optimizer.state[next(iter(model.parameters()))]["exp_avg"].full_tensor().cpu()
    assert moment.abs().sum() > 0


def save_while_training(device):
    """async_save has the weights of the call, not those of later steps. Its thread has a group of its own where torch's DETAIL mode adds collectives to each call."""
    model, optimizer = model_to_save(device)
    train(model, device, optimizer, range(3))
    expected = {name: one.full_tensor().cpu().clone() for name, one in model.state_dict().items()}
    folder = shared_folder()
    group = dist.new_group() if os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL" else None
    saving = checkpoint.async_save({"m": get_state_dict(model, optimizer)[0]}, checkpoint_id=folder, process_group=group)
    train(model, device, optimizer, range(3, 12))
    saving.result()
    found = {"m": {name: torch.zeros_like(one) for name, one in expected.items()}}
    checkpoint.load(found, checkpoint_id=folder)
    for name, one in expected.items():
        assert torch.equal(found["m"][name], one), name


def killed_while_saving(device):
    """Rank 1 is killed in the middle of a second checkpoint: the first one stays loadable, the second one has no metadata."""
    model, optimizer = model_to_save(device)
    train(model, device, optimizer, range(3))
    folder = os.environ["CHECKPOINT"]
    checkpoint.save(dict(zip("mo", get_state_dict(model, optimizer))), checkpoint_id=f"{folder}/1")
    train(model, device, optimizer, range(3, 5))

    class Killed(checkpoint.FileSystemWriter):
        def write_data(self, plan, planner):
            if RANK == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write_data(plan, planner)

    try:
        checkpoint.save(dict(zip("mo", get_state_dict(model, optimizer))), storage_writer=Killed(f"{folder}/2"))
    except Exception as error:
        print("failed:", type(error).__name__, str(error)[-300:], flush=True)
        assert not os.path.exists(f"{folder}/2/.metadata")
        os._exit(0)
    raise AssertionError("the checkpoint of a killed rank was written")


def threads(device):
    """Two threads of each rank use a group each at the same time."""
    groups = [dist.new_group(list(range(SIZE))) for _ in range(2)]
    failed = []

    def work(number):
        try:
            for step in range(50):
                x = torch.full((1000,), float(step + number + RANK), device=device)
                dist.all_reduce(x, group=groups[number])
                assert x[-1].item() == sum(step + number + rank for rank in range(SIZE))
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed


def main():
    device = begin("torch_backend")
    if torch.accelerator.device_count() >= SIZE:
        torch.accelerator.set_device_index(RANK)
    for name in sys.argv[4:]:
        with contextlib.redirect_stderr(sys.stdout):
            globals()[name](device)
        print("passed", name, flush=True)
    dist.destroy_process_group()


main()
