"""Collectives of torch_backend.xla between processes, compared with the CPU's arithmetic on the values of all replicas.
"""

import textwrap

import pytest

COLLECTIVES = """
import functools
import os
import torch
import torch.distributed as dist
import torch_backend.xla.core.xla_model as xm
import torch_backend.xla.distributed.parallel_loader as pl
import torch_backend.xla.distributed.xla_multiprocessing as xmp
import torch_backend.xla.runtime as xr
import torch_backend.xla.utils.utils as xu

COUNT = 2
GROUPS = [[0], [1]]
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
    same(xm.reduce_scatter("sum", x, 0.25, -1, COUNT), (sum(values(torch.float32)) * 0.25).chunk(COUNT, 1)[me].contiguous())
    output = torch.empty(4, 3, device=device)
    assert xm.reduce_scatter("max", x, 1.0, 1, COUNT, output=output) is output
    same(output, torch.maximum(*values(torch.float32)).chunk(COUNT, 1)[me].contiguous())
    same(xm.all_reduce("sum", x, groups=GROUPS), values(torch.float32)[me])
    same(xm.reduce_scatter("sum", x, 1.0, 0, 1, groups=GROUPS), values(torch.float32)[me])
    several = [x.clone(), x.clone()[::2]]
    assert xm.all_reduce("max", several) is several
    same(several[0], torch.maximum(*values(torch.float32)))

def flags_and_bits(me, device):
    flags = [torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])]
    either, both = flags[0] | flags[1], flags[0] & flags[1]
    for kind, expected in (("or", either), ("max", either), ("sum", either), ("and", both), ("min", both), ("mul", both)):
        same(xm.all_reduce(kind, flags[me].to(device)), expected)
        same(xm.reduce_scatter(kind, flags[me].to(device), 1.0, 0, COUNT), expected.chunk(COUNT)[me])
    bits = values(torch.int32)
    same(xm.all_reduce("and", bits[me].to(device)), bits[0] & bits[1])
    same(xm.reduce_scatter("or", bits[me].to(device), 1.0, 1, COUNT), (bits[0] | bits[1]).chunk(COUNT, 1)[me].contiguous())

def copies(me, device):
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        everybody = values(dtype) if dtype != torch.bool else [one > 4 for one in values(torch.float32)]
        x = everybody[me].to(device)
        same(xm.all_gather(x), torch.cat(everybody))
        same(xm.all_gather(x, dim=1), torch.cat(everybody, 1))
        same(xm.all_gather(x[:0]), torch.cat(everybody)[:0])
        for split, concat in ((0, 0), (0, 1), (1, 0), (-1, -1)):
            same(xm.all_to_all(x, split, concat, COUNT), torch.cat([one.chunk(COUNT, split)[me] for one in everybody], concat))
        same(xm.all_to_all(x.t(), 0, 0, COUNT), torch.cat([one.t().chunk(COUNT)[me] for one in everybody]))
        same(xm.all_to_all(x[:, :0], 0, 1, COUNT), torch.empty(2, 0, dtype=dtype))
        same(xm.all_to_all(x, 1, 0, 1, groups=GROUPS), everybody[me])
        zeros = torch.zeros_like(everybody[0])
        for pairs in ([(0, 1), (1, 0)], [(0, 1)], [(1, 1), (0, 0)], [(0, 0), (0, 1)], []):
            source = dict((target, source) for source, target in pairs).get(me)
            same(xm.collective_permute(x, pairs), zeros if source is None else everybody[source])
        same(xm.collective_permute(x[:, ::2], [(0, 1)]), everybody[0][:, ::2] if me == 1 else zeros[:, ::2])
        same(x, everybody[me])   # the input is as it was
        several = [x.clone(), x.t().clone().t()[:, 1:], x[:0]]
        xm.collective_broadcast(several, root_ordinal=1)
        same(several[0], everybody[1])
        same(several[1], everybody[1][:, 1:])
        xm.collective_broadcast(several, root_ordinal=me, groups=GROUPS)
        same(several[0], everybody[1])

def refusals(me, device):
    x = torch.ones(4, 6, device=device)
    for text, call in (
        ("3 equal parts of size 6", lambda: xm.all_to_all(x, 1, 0, 3)),
        ("2 equal parts of size 5", lambda: xm.reduce_scatter("sum", x[:, :5], 1.0, 1, 2)),
        ("replica 0 is the target of several sources, 0 and 1", lambda: xm.collective_permute(x, [(0, 0), (1, 0)])),
        ("pair (0, 2) is out of range: there are 2 replicas", lambda: xm.collective_permute(x, [(0, 2)])),
        ("root_ordinal 5 is not among the replicas [0, 1]", lambda: xm.collective_broadcast([x], 5)),
        ("expected a tensor of bool or integers, got torch.float32", lambda: xm.all_reduce("and", x)),
        ("expected one of sum", lambda: xm.reduce_scatter("mean", x, 1.0, 0, 2)),
    ):
        try:
            call()
        except ValueError as error:
            assert text in str(error), error
        else:
            raise SystemExit(f"{text}: accepted")

def real_collectives(me, device):
    # Each function is the collective of its name: nothing is gathered, and no operand passes through the host.
    from torch_backend import distributed

    def names(call):
        before = len(distributed.dump()["entries"])
        call()
        return [entry["profiling_name"].split(":")[-1] for entry in distributed.dump()["entries"][before:]]

    x = torch.ones(4, 6, device=device)
    for expected, call in (
        (["all_to_all"], lambda: xm.all_to_all(x, 0, 0, COUNT)),
        (["_reduce_scatter_base"], lambda: xm.reduce_scatter("sum", x, 1.0, 0, COUNT)),
        (["broadcast", "broadcast"], lambda: xm.collective_broadcast([x, x > 0])),
        (["all_reduce"], lambda: xm.all_reduce("or", x > 0)),
        (["all_reduce"], lambda: xm.all_reduce("and", x.int())),
        (["_all_gather_base"], lambda: xm.all_gather(x)),
        (["coalesced"], lambda: xm.collective_permute(x, [(0, 1)])),
    ):
        found = names(call)
        assert found == expected, (found, expected)

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

def work(index, port):
    checks = [reductions, flags_and_bits, copies, refusals, deferred, torch_distributed, others]
    if "TORCH_BACKEND_COLLECTIVES" not in os.environ:
        checks.insert(0, real_collectives)
    for check in checks:
        check(index, xm.xla_device())
        print(f"passed {check.__name__}.\\n", end="", flush=True)   # in one piece: processes share the output
    dist.destroy_process_group()   # now a group that has no backend for the device: copies of tensors go through Gloo
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=index, world_size=COUNT)
    for check in (reductions, flags_and_bits, copies):
        check(index, xm.xla_device())
    print("passed gloo.\\n", end="", flush=True)

if __name__ == "__main__":
    xmp.spawn(work, (xu.get_free_tcp_ports()[0],))
"""


@pytest.mark.parametrize("settings", [{}, pytest.param({"HAL_FAKE_ASYNC": 0, "TORCH_BACKEND_COLLECTIVES": "gloo"}, marks=pytest.mark.slow)], ids=str)
def test_collectives_between_processes_equal_the_arithmetic_of_the_cpu(run_python, settings):
    done = run_python(textwrap.dedent(COLLECTIVES), TORCH_BACKEND="fake", HAL_FAKE_DEVICES=2, GLOO_SOCKET_IFNAME="lo", timeout=300, **settings)
    assert done.stdout.count("passed others.") == 2 and done.stdout.count("passed gloo.") == 2, done.stdout
