"""How much of the communication of a step of DDP runs while the backward pass computes, from the rows of a profile. Two ranks, whose connection is slow."""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from ranks import RANK, begin
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

LAYERS, WIDTH, ROWS, STEPS = 16, 256, 1024, 3


def trace(step):
    """Returns the rows of a chrome trace of some steps."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
        for _ in range(STEPS):
            step()
            torch.accelerator.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        result.export_chrome_trace(f"{folder}/trace.json")
        return [row for row in json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"] if "dur" in row]


def overlapped(row, spans):
    return sum(max(0.0, min(row["ts"] + row["dur"], end) - max(row["ts"], begin)) for begin, end in spans)


def main():
    device = begin()
    torch.manual_seed(1)
    network = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).to(device)
    model = DistributedDataParallel(network, bucket_cap_mb=WIDTH * WIDTH * 4 / (1 << 20), gradient_as_bucket_view=True)
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(RANK)).to(device)

    def step():
        model(x).square().mean().backward()

    for _ in range(3):
        step()
    torch.accelerator.synchronize()
    dist.barrier()
    rows = trace(step)
    collectives = sorted((row for row in rows if "Collective name" in row.get("args", {})), key=lambda row: row["ts"])
    kernels = sorted((row for row in rows if row.get("cat") == "kernel" and row not in collectives), key=lambda row: row["ts"])
    assert len(collectives) >= STEPS * LAYERS // 2, len(collectives)
    assert len({row["tid"] for row in collectives}) == 1 and not {row["tid"] for row in kernels} & {collectives[0]["tid"]}, "a stream of its own"
    backwards = [(row["ts"], row["ts"] + row["dur"]) for row in rows if row.get("name") == "backward"] or [(kernels[0]["ts"], kernels[-1]["ts"] + kernels[-1]["dur"])]
    products = [row for row in kernels if row["dur"] > 100]
    share = sum(overlapped(row, [(row_["ts"], row_["ts"] + row_["dur"]) for row_ in products]) for row in collectives) / sum(row["dur"] for row in collectives)
    print(len(collectives), len(kernels), sorted({row["name"] for row in kernels}), backwards[:2])
    print(f"overlapped {share:.3f}")
    dist.destroy_process_group()


main()
