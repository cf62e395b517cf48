"""Collectives of torch_backend.xla between processes, compared with the CPU's arithmetic on the values of all replicas."""

import textwrap

import pytest

COLLECTIVES = """
import functools
import torch
import torch.distributed as dist
import torch_backend.xla.core.xla_model as xm
import torch_backend.xla.distributed.parallel_loader as pl
import torch_backend.xla.distributed.xla_multiprocessing as xmp
import torch_backend.xla.runtime as xr

COUNT = 2
REDUCE = {"sum": torch.add, "mul": torch.mul, "min": torch.minimum, "max": torch.maximum}

def values(dtype, shape=(4, 6)):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(1, 9, shape, generator=generator).to(dtype) for _ in range(COUNT)]

def same(found, expected):
    assert found.device.type == "lazy" and found.dtype == expected.dtype
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)

def reductions(me, device):
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        everybody = values(dtype)
        x = everybody[me].to(device)
        for kind, combine in REDUCE.items():
            expected = functools.reduce(combine, everybody)
            same(xm.all_reduce(kind, x), expected)
            same(xm.all_reduce(kind, x.t()), expected.t())
            same(xm.reduce_scatter(kind, x, 1, 1, COUNT), expected.chunk(COUNT, 1)[me].contiguous())
        same(x, everybody[me])   # the input is as it was
    x = values(torch.float32)[me].to(device)
    same(xm.all_reduce("sum", x, scale=0.25), sum(values(torch.float32)) * 0.25)
    same(xm.all_reduce("sum", x, groups=[[0], [1]]), values(torch.float32)[me])
    several = [x.clone(), x.clone()[::2]]
    assert xm.all_reduce("max", several) is several
    same(several[0], torch.maximum(*values(torch.float32)))
    flags = [torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])]
    same(xm.all_reduce("and", flags[me].to(device)), flags[0] & flags[1])
    same(xm.all_reduce("or", flags[me].to(device)), flags[0] | flags[1])

def copies(me, device):
    everybody = values(torch.float32)
    x = everybody[me].to(device)
    same(xm.all_gather(x), torch.cat(everybody))
    same(xm.all_gather(x, dim=1), torch.cat(everybody, 1))
    same(xm.all_gather(x[:0]), torch.cat(everybody)[:0])
    same(xm.all_to_all(x, 1, 0, COUNT), torch.cat([one.chunk(COUNT, 1)[me] for one in everybody]))
    same(xm.collective_permute(x, [(0, 1), (1, 0)]), everybody[1 - me])
    same(xm.collective_permute(x, [(0, 1)]), everybody[0] if me == 1 else torch.zeros(4, 6))
    xm.collective_broadcast([x], root_ordinal=1)
    same(x, everybody[1])
    same(xm.all_gather(everybody[me].to(device) > 4), torch.cat(everybody) > 4)

def deferred(me, device):
    # What a step has deferred is computed before a collective, and what follows it uses its result.
    x = torch.arange(5.0, device=device) + me
    y = x * 2
    x.add_(1)
    total = xm.all_reduce("sum", y)
    total.mul_(x)
    xm.mark_step()
    a = [torch.arange(5.0) + one for one in range(COUNT)]
    same(total, sum(one * 2 for one in a) * (a[me] + 1))

def torch_distributed(me, device):
    assert dist.get_backend() == "torch_backend"
    x = torch.arange(3.0, device=device) * (me + 1)
    dist.all_reduce(x)
    same(x, torch.arange(3.0) * 3)
    host = torch.ones(2)
    dist.all_reduce(host)
    assert host.tolist() == [2, 2]

def others(me, device):
    assert (xm.xrt_world_size(), xr.world_size(), xm.get_ordinal(), xr.global_ordinal(), xm.get_local_ordinal()) == (2, 2, me, me, me)
    assert xm.mesh_reduce("tag", me + 1, max) == 2 and xm.rendezvous("all", str(me).encode()) == [b"0", b"1"]
    seen = [x.cpu().item() for x in pl.MpDeviceLoader([torch.tensor(i) for i in range(6)][me::2], device)]
    assert seen == [me, me + 2, me + 4]
    model = torch.nn.Linear(3, 2).to(device)
    xm.broadcast_master_param(model)
    weights = xm.all_gather(model.weight.detach()[None])
    assert torch.equal(weights[0].cpu(), weights[1].cpu())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before, x = model.weight.detach().cpu().clone(), values(torch.float32, (4, 3))
    model(x[me].to(device)).sum().backward()
    xm.optimizer_step(optimizer, barrier=True)
    torch.testing.assert_close(model.weight.cpu(), before - sum(one.sum(0) for one in x) / COUNT)

def work(index):
    for check in (reductions, copies, deferred, torch_distributed, others):
        check(index, xm.xla_device())
        print(f"passed {check.__name__}.\\n", end="", flush=True)   # in one piece: processes share the output

if __name__ == "__main__":
    xmp.spawn(work)
"""


@pytest.mark.parametrize("settings", [{}, pytest.param({"HAL_FAKE_ASYNC": 0, "TORCH_BACKEND_COLLECTIVES": "gloo"}, marks=pytest.mark.slow)], ids=str)
def test_collectives_between_processes_equal_the_arithmetic_of_the_cpu(run_python, settings):
    done = run_python(textwrap.dedent(COLLECTIVES), TORCH_BACKEND="fake", HAL_FAKE_DEVICES=2, GLOO_SOCKET_IFNAME="lo", timeout=300, **settings)
    assert done.stdout.count("passed others.") == 2, done.stdout
