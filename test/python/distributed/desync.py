"""Two ranks whose fourth collectives differ, and what the log of collectives contains afterwards."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin
from torch_backend import distributed

FOLDER = sys.argv[4]


def step(device):
    x = torch.ones(4, 6, dtype=torch.bfloat16, device=device)
    dist.all_reduce(x)
    dist.all_gather([torch.empty_like(x) for _ in range(SIZE)], x)
    dist.reduce_scatter_tensor(torch.empty(4, 3, dtype=torch.bfloat16, device=device), x.reshape(-1))


device = begin(seconds=20)
step(device)
log = distributed.dump()
names = [entry["profiling_name"].partition(":")[2] for entry in log["entries"]]
assert names == ["all_reduce", "all_gather", "_reduce_scatter_base"], names
entry = log["entries"][1]
assert entry["input_sizes"] == [[4, 6]] and entry["output_sizes"] == [[SIZE, 4, 6]] and entry["input_dtypes"] == ["bfloat16"], entry
assert entry["state"] == "completed" and entry["time_created_ns"] <= entry["time_discovered_started_ns"] <= entry["time_discovered_completed_ns"], entry
assert entry["collective_seq_id"] == 2 and entry["duration_ms"] >= 0 and entry["retired"] and not entry["is_p2p"]
assert any(frame["name"] == "step" and frame["filename"].endswith("desync.py") for frame in entry["frames"]), entry["frames"]
assert log["pg_status"]["0"]["last_completed_collective"] == 3, log["pg_status"]
assert log["pg_config"]["0"]["ranks"] == str(list(range(SIZE)))
assert all((entry["process_group"][0], entry["process_group"][1]) == ("0", "default_pg") for entry in log["entries"])
file = os.path.join(FOLDER, f"rank_{RANK}")
os.kill(os.getpid(), signal.SIGUSR2)
for _ in range(1000):
    if os.path.exists(file):
        break
    time.sleep(0.01)
os.remove(file)  # written on the signal
try:
    x = torch.ones(10 + RANK, device=device)
    dist.all_reduce(x) if sys.argv[5] == "shapes" or RANK else dist.broadcast(x, 0)
except Exception as error:
    print(type(error).__name__)
else:
    raise AssertionError("no error")
assert os.path.exists(file)  # written when the group failed
