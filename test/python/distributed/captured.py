"""Collectives in a graph, as one rank: replayed training steps, compared with the same steps without a graph, and each
operator."""

import copy
import sys

import ranks
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WARMUP, REPLAYS = 11, int((sys.argv[4:] or [20])[0])  # DistributedDataParallel measures its first ten steps
device = ranks.begin()
module = torch.get_device_module(device)


def data(step):
    generator = torch.Generator().manual_seed(1000 * step + ranks.RANK)
    return torch.randn(8, 12, generator=generator), torch.randn(8, 4, generator=generator)


def losses(model, is_captured):
    side, seen = module.Stream(), []
    side.wait_stream(module.current_stream())
    with module.stream(side):  # autograd's nodes of the parameters belong to the stream of the capture
        model = DistributedDataParallel(copy.deepcopy(model).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = (part.to(device) for part in data(0))

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def feed(number):
        for held, new in zip((x, y), data(number)):
            held.copy_(new)

    with module.stream(side):
        for number in range(WARMUP):
            feed(number)
            loss = step()
    module.current_stream().wait_stream(side)
    del loss
    if is_captured:
        graph = torch.accelerator.Graph()
        with module.graph(graph, stream=side):
            loss = step()
    for number in range(WARMUP, WARMUP + REPLAYS):
        feed(number)
        if is_captured:
            graph.replay()
        else:
            loss = step()
        seen.append(loss.item())
    return torch.tensor(seen)


torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.Linear(24, 4))
eager, captured = losses(model, False), losses(model, True)
assert eager.std() > 1e-3 and torch.equal(eager, captured), (eager, captured)


def reduced(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def strided(x):  # results that are copied to their destination
    y = torch.zeros(4, ranks.SIZE, device=device).t()
    dist.all_gather_into_tensor(y, x[:4].contiguous())
    return y * 3


def gathered(x):
    parts = [torch.empty_like(x) for _ in range(ranks.SIZE)]
    dist.all_gather(parts, x + 1)
    return torch.stack(parts)


def asynchronous(x):
    y = x + 1
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    dist.barrier()
    return work.get_future().value()[0] + y


def exchanged(x):
    y = torch.empty_like(x)
    peer = (ranks.RANK + 1) % ranks.SIZE
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x * 2, peer), dist.P2POp(dist.irecv, y, (ranks.RANK - 1) % ranks.SIZE)]):
        work.wait()
    return y + 1


for function in (reduced, strided, gathered, asynchronous, exchanged):
    x = torch.arange(8.0, device=device) + 10 * ranks.RANK
    expected = [function(x + number).cpu() for number in range(3)]
    graph = torch.accelerator.Graph()
    with module.graph(graph):
        result = function(x)
    for number in range(3):
        graph.replay()
        assert torch.equal(result.cpu(), expected[number]), (function.__name__, number, result, expected[number])
        x.add_(1)

graph = torch.accelerator.Graph()
with module.graph(graph):
    dist.all_reduce(x)
dist.destroy_process_group()
try:
    graph.replay()
    torch.accelerator.synchronize()
    raise SystemExit("a replay after the group was destroyed is no error")
except RuntimeError as error:
    assert "destroyed" in str(error), error
assert (torch.ones(3, device=device) + 1).cpu().tolist() == [2, 2, 2]
