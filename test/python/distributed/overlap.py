"""How much of the communication of a step of DDP runs while kernels of the backward pass run, from the rows of a profile. Arguments: rows of the batch."""

import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from ranks import RANK, begin
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

LAYERS, WIDTH, STEPS = 16, 256, 3


def rows_of(step):
    """Returns the rows of a trace of some steps."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
        for _ in range(STEPS):
            step()
            torch.accelerator.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        result.export_chrome_trace(f"{folder}/trace.json")
        return [row for row in json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"] if "dur" in row]


def spans_of(rows):
    """Returns the times in which a row runs, as disjoint spans."""
    spans = []
    for start, end in sorted((row["ts"], row["ts"] + row["dur"]) for row in rows):
        if spans and start <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([start, end])
    return spans


def overlap(row, spans):
    return sum(max(0.0, min(row["ts"] + row["dur"], end) - max(row["ts"], start)) for start, end in spans)


def main():
    device = begin()
    torch.manual_seed(1)
    network = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).to(device)
    model = DistributedDataParallel(network, bucket_cap_mb=WIDTH * WIDTH * 4 / (1 << 20), gradient_as_bucket_view=True)
    x = torch.randn(int(sys.argv[4]), WIDTH, generator=torch.Generator().manual_seed(RANK)).to(device)

    def step():
        model(x).square().mean().backward()

    for _ in range(3):
        step()
    torch.accelerator.synchronize()
    dist.barrier()
    rows = rows_of(step)
    collectives = [row for row in rows if "Collective name" in row.get("args", {})]
    assert len(collectives) >= STEPS * LAYERS // 2, len(collectives)  # a bucket for each layer; the first step of DDP has others
    spans = spans_of(row for row in rows if row.get("cat") == "kernel" and row not in collectives)
    took, hidden = sum(row["dur"] for row in collectives), sum(overlap(row, spans) for row in collectives)
    print(json.dumps({"collectives": len(collectives), "communication_ms": took / 1e3 / STEPS,
                      "kernels_ms": sum(end - start for start, end in spans) / 1e3 / STEPS, "share": hidden / took}))  # fmt: skip
    dist.destroy_process_group()


main()
