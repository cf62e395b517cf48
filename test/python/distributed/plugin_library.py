"""What the plugin's collectives library does for torch.distributed: results, a step of training, waits that do not
block the host."""

import datetime
import time

import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin
from torch.nn.parallel import DistributedDataParallel


def check_collectives(device):
    x = torch.arange(100, dtype=torch.float32).add(RANK).to(device)
    total = sum(torch.arange(100, dtype=torch.float32).add(rank) for rank in range(SIZE))
    summed, highest = x.clone(), x.clone()
    dist.all_reduce(summed)
    dist.all_reduce(highest, dist.ReduceOp.MAX)  # by the host: NCCL's loses NaN
    assert torch.equal(summed.cpu(), total) and torch.equal(highest.cpu(), torch.arange(100, dtype=torch.float32).add(SIZE - 1))
    gathered = torch.empty(100 * SIZE, device=device)
    dist.all_gather_into_tensor(gathered, x)
    assert torch.equal(gathered.cpu(), torch.cat([torch.arange(100, dtype=torch.float32).add(rank) for rank in range(SIZE)]))
    part = torch.empty(100 // SIZE, device=device)
    dist.reduce_scatter_tensor(part, x)
    assert torch.equal(part.cpu(), total.chunk(SIZE)[RANK])
    flags = torch.tensor([RANK == 0, False, True]).to(device)
    dist.all_reduce(flags)
    assert flags.cpu().tolist() == [True, False, True]
    y = torch.empty(100, device=device)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, (RANK + 1) % SIZE), dist.P2POp(dist.irecv, y, (RANK - 1) % SIZE)]):
        work.wait()
    assert torch.equal(y.cpu(), torch.arange(100, dtype=torch.float32).add((RANK - 1) % SIZE))
    dist.barrier()


def check_waits(device):
    """Rank 1 comes late: rank 0 goes on, and its stream waits."""
    x = torch.ones(8, device=device)
    assert (x + x).sum().item() == 16  # the kernel is compiled at its first use
    dist.barrier()
    if RANK == 1:
        time.sleep(1)
    begun = time.monotonic()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    doubled = x + x
    assert time.monotonic() - begun < 0.7, "the host has waited"
    if RANK == 0:
        assert not work.is_completed() and work.is_success()
        try:
            work.wait(timeout=datetime.timedelta(milliseconds=50))
        except dist.DistBackendError as error:
            assert "0.050 s" in str(error), error
        else:
            raise AssertionError("a wait with a limit has not waited")
    assert doubled.cpu().tolist() == [2.0 * SIZE] * 8
    assert work.is_completed() and work.exception() is None
    future = dist.all_reduce(torch.ones(10, device=device), async_op=True).get_future().then(lambda done: done.value()[0] * 3)
    assert future.wait().sum().item() == 30 * SIZE


def check_training(device):
    """A step has the gradients of the mean over all ranks."""
    torch.manual_seed(3)
    model = torch.nn.Linear(6, 4)
    inputs = [torch.randn(5, 6) for _ in range(SIZE)]
    alone = [torch.autograd.grad(model(x).square().mean(), model.weight)[0] for x in inputs]
    parallel = DistributedDataParallel(model.to(device))
    parallel(inputs[RANK].to(device)).square().mean().backward()
    torch.testing.assert_close(model.weight.grad.cpu(), sum(alone) / SIZE, rtol=1e-5, atol=1e-6)


def main():
    device = begin()
    for check in (check_collectives, check_waits, check_training):
        check(device)
        print("passed", check.__name__, flush=True)
    dist.destroy_process_group()


main()
