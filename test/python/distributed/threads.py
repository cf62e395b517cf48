"""Ranks that are threads of one process, each with a device: threads.py SIZE. The collectives of thread_group, and
DistributedDataParallel, compared with the CPU. Prints the number of checks.
"""

import copy
import sys
import threading

import torch
import torch.distributed as dist
import torch_backend
from torch.nn.parallel import DistributedDataParallel
from torch_backend.distributed import thread_group

SIZE = int(sys.argv[1])
DEVICE = torch.accelerator.current_accelerator().type
STORES = [dist.HashStore() for _ in range(2)]
STEPS = 4
checks, errors, gradients = [], [], [None] * SIZE
torch.manual_seed(0)
NETWORK = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))


def numbers(rank, count, dtype=torch.float32):
    """Whole numbers, so that sums have the same bits in every order."""
    return (torch.arange(count) * 7 + rank * 13).remainder(23).sub(11).to(dtype)


def same(name, one, expected):
    assert torch.equal(one.cpu(), expected), (name, one.cpu(), expected)
    checks.append(name)


def check_collectives(rank, group, dtype, count):
    mine, device = numbers(rank, count, dtype), f"{DEVICE}:{rank}"
    every = [numbers(other, count, dtype) for other in range(SIZE)]
    total = mine.to(device)
    dist.all_reduce(total, group=group)
    same("all_reduce", total, sum(every[1:], every[0]))
    largest = mine.to(device)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
    same("maximum", largest, torch.stack(every).amax(0))
    gathered = torch.empty(SIZE * count, dtype=dtype, device=device)
    dist.all_gather_into_tensor(gathered, mine.to(device), group=group)
    same("all_gather", gathered, torch.cat(every))
    rows = [numbers(other, SIZE * count, dtype) for other in range(SIZE)]
    part = torch.empty(count, dtype=dtype, device=device)
    dist.reduce_scatter_tensor(part, rows[rank].to(device), group=group)
    same("reduce_scatter", part, sum(rows[1:], rows[0])[rank * count : (rank + 1) * count])
    exchanged = torch.empty(SIZE * count, dtype=dtype, device=device)
    dist.all_to_all_single(exchanged, rows[rank].to(device), group=group)
    same("all_to_all", exchanged, torch.cat([row[rank * count : (rank + 1) * count] for row in rows]))
    for root in range(SIZE):
        sent = numbers(rank, count, dtype).to(device)
        dist.broadcast(sent, group_src=root, group=group)
        same("broadcast", sent, every[root])


def check_other_work(rank, group):
    """What no library of a plugin runs: messages, and tensors of the CPU."""
    after, before = (rank + 1) % SIZE, (rank - 1) % SIZE
    received = torch.empty(5, device=f"{DEVICE}:{rank}")
    works = [group.send([numbers(rank, 5).to(received.device)], after, 0), group.recv([received], before, 0)]
    for work in works:
        work.wait()
    same("message", received, numbers(before, 5))
    on_host = numbers(rank, 5)
    dist.all_reduce(on_host, group=group)
    same("on the host", on_host, sum(numbers(other, 5) for other in range(SIZE)))
    dist.barrier(group=group)


def samples(rank, step):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + rank))


def train(rank, group):
    device = f"{DEVICE}:{rank}"
    model = DistributedDataParallel(copy.deepcopy(NETWORK).to(device), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(samples(rank, step).to(device)).square().mean().backward()
        optimizer.step()
    gradients[rank] = [parameter.grad.cpu() for parameter in model.parameters()]


def trained_on_the_cpu():
    """Returns the gradients of one process with the samples of all ranks."""
    model = copy.deepcopy(NETWORK)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.cat([samples(rank, step) for rank in range(SIZE)])).square().mean().backward()
        optimizer.step()
    return [parameter.grad for parameter in model.parameters()]


def work(rank):
    try:
        torch.accelerator.set_device_index(rank)
        group = thread_group(STORES[0], rank, SIZE)
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8):
            check_collectives(rank, group, dtype, 1000)
        check_collectives(rank, group, torch.float32, 1)
        check_other_work(rank, group)
        train(rank, thread_group(STORES[1], rank, SIZE, name="training"))
    except BaseException as error:
        errors.append(error)
        raise


threads = [threading.Thread(target=work, args=(rank,)) for rank in range(SIZE)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
for other in gradients[1:]:
    assert all(torch.equal(one, expected) for one, expected in zip(gradients[0], other)), "the ranks' gradients differ"
for one, expected in zip(gradients[0], trained_on_the_cpu()):
    torch.testing.assert_close(one, expected, rtol=1e-5, atol=1e-6)
print(len(checks), "checks")
