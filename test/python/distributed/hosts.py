"""What the ranks of two hosts do in test_hosts.py: the fourth argument."""

import copy
import os
import sys
import time

import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin
from torch import nn
from torch.nn.parallel import DistributedDataParallel

KIND = sys.argv[4]
SECONDS = 4 if KIND in ("cut", "silence") else 60  # the timeout of the group


def shares_memory():
    """Returns whether this process has mapped the memory of a host."""
    with open("/proc/self/maps") as maps:
        return "/memfd:hal_comm" in maps.read()


def train(device):
    """20 steps of DDP on the device and on the CPU with Gloo; the ranks' weights have the same bits, and are near the CPU's."""
    torch.manual_seed(5)
    network, found = nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 12)), {}
    for place in ("cpu", device):
        model = DistributedDataParallel(copy.deepcopy(network).to(place))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
        for step in range(20):
            generator = torch.Generator().manual_seed(100 * step + RANK)
            x, y = torch.randn(8, 12, generator=generator), torch.randn(8, 12, generator=generator)
            optimizer.zero_grad()
            (model(x.to(place)) - y.to(place)).square().mean().backward()
            optimizer.step()
        found[place] = torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])
    all_ranks = [torch.empty_like(found[device]) for _ in range(SIZE)]
    dist.all_gather(all_ranks, found[device])
    assert all(torch.equal(row.view(torch.int32), found[device].view(torch.int32)) for row in all_ranks), "the ranks' weights differ"
    torch.testing.assert_close(found[device], found["cpu"], rtol=1e-6, atol=1e-6)
    assert shares_memory(), "the ranks of a host do not share memory"
    print("trained")


def sent_bytes():
    """Returns the bytes that this host has sent to the other one."""
    with open("/proc/net/dev") as counters:
        (line,) = [line for line in counters if line.strip().startswith("host0:")]
    return int(line.split()[9])


def count_bytes(device, steps=10):
    """Prints the bytes that this host sends in a step of DDP, as a share of those of the gradients: two hosts have to exchange half of them twice."""
    model = DistributedDataParallel(nn.Linear(1024, 1024, bias=False).to(device))
    for step in range(steps + 2):
        if step == 2:
            torch.accelerator.synchronize()
            dist.barrier()
            begin = sent_bytes()
        model.zero_grad()
        model(torch.ones(2, 1024, device=device)).sum().backward()
    torch.accelerator.synchronize()
    dist.barrier()
    print(f"sent {(sent_bytes() - begin) / steps / (4 << 20):.4f}")


def call_until_an_error(device):
    x = torch.ones(1 << 18, device=device)
    for step in range(1_000_000):
        if step == 3:
            print("running", flush=True)
            open(f"{sys.argv[3]}.running{RANK}", "w").close()
        if KIND == "death" and RANK == SIZE - 1 and step == 5:
            os.kill(os.getpid(), 9)
        if KIND == "silence" and RANK == SIZE - 1 and step == 5:
            time.sleep(SECONDS + 3)  # the others report it within two seconds after their timeout
        dist.all_reduce(x, dist.ReduceOp.AVG)
        assert x[0].item() == 1
        begun[0] = time.time()


device = begin(seconds=SECONDS)
begun = [0.0]  # when the last collective was done
if KIND in ("train", "bytes"):
    {"train": train, "bytes": count_bytes}[KIND](device)
else:
    try:
        call_until_an_error(device)
    except Exception as error:
        print(f"{type(error).__name__} after {time.time() - begun[0]:.1f} s, at {time.time():.3f}: {error}")
        assert (torch.ones(3, device=device) + 1).cpu().tolist() == [2.0] * 3  # the device computes on
        if KIND == "silence":
            time.sleep(1)  # else a rank that is later may name this one, which has ended
    sys.stdout.flush()
    os._exit(0)  # torch's Gloo group of the CPU would wait for the ranks that are gone
