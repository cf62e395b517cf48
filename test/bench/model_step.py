"""Training steps of the networks of test/python/models.py on the fake device beside CPU torch in one run, in both modes of the device.

Usage: python model_step.py [--check] [--quick] [--only NAME ...]. Targets: a step of the ResNet and of the transformer takes at most 1.3
times the CPU's, and at least 90 % of its operator calls are native; the LSTM and the VAE are printed beside them. 16 samples a step,
forward, backward and SGD with momentum; one synchronisation at the end of each row of steps; the CPU with all cores.

Times are medians; the sides run alternately in one process, with a pause before each and steps that are not timed. With --check
the exit code is 1 when a target is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import models  # noqa: E402  found by the line above

SAMPLES, STEPS = 16, 5
PAUSE = 0.05  # seconds: OpenMP's threads spin for milliseconds after the CPU's steps and must not hold a core of ours
TARGETS = {"resnet": 1.3, "transformer": 1.3}
NATIVE_SHARE = 0.9


class Side:
    """A model with its optimizer and data on one device."""

    def __init__(self, torch, name, device):
        torch.manual_seed(0)
        self.model = models.MODELS[name]().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.batch = [part.to(device) for part in models.batches(name, 1, SAMPLES)[0]]
        self.synchronize = torch.get_device_module(device).synchronize if device != "cpu" else lambda: None

    def step(self):
        self.optimizer.zero_grad()
        self.model.loss(self.batch).backward()
        self.optimizer.step()

    def time(self):
        """Seconds of a step in a row of them."""
        time.sleep(PAUSE)
        self.step()
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        self.synchronize()
        return (time.perf_counter() - begin) / STEPS


def child(rounds, names):
    """Measures every model in this process's mode and prints the rows as JSON."""
    import torch

    import torch_backend

    torch_backend.use("fake")
    rows = []
    for name in names:
        ours, peer = Side(torch, name, "fake"), Side(torch, name, "cpu")
        ours.step()
        torch_backend.ops.reset()
        ours.step()
        calls = torch_backend.ops.report()
        native, fallback = sum(row.native for row in calls), sum(row.fallback for row in calls)
        times = [(ours.time(), peer.time()) for _ in range(rounds)]
        rows.append({"what": name, "share": native / (native + fallback), "ours": statistics.median(t[0] for t in times),
                     "peer": statistics.median(t[1] for t in times)})  # fmt: skip
    print(json.dumps(rows))


def main() -> int:
    """Prints the rows of both modes; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", nargs="*", default=list(models.MODELS), choices=list(models.MODELS), help="models to measure")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(3 if args.quick else 11, args.only)
        return 0
    missed = 0
    for mode, title in (("0", "inline"), ("1", "asynchronous")):
        environment = dict(os.environ, HAL_FAKE_ASYNC=mode, TORCH_BACKEND="fake")
        command = [sys.executable, "-P", __file__, "--child", *sys.argv[1:]]
        rows = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(f"{title:<14}{'fake ms':>9}{'cpu ms':>9}{'ratio':>7}{'target':>8}{'native':>9}  verdict")
        for row in rows:
            ratio, target = row["ours"] / row["peer"], TARGETS.get(row["what"])
            met = target is None or (ratio <= target and row["share"] >= NATIVE_SHARE)
            missed += not met
            print(
                f"{row['what']:<14}{row['ours'] * 1e3:>9.2f}{row['peer'] * 1e3:>9.2f}{ratio:>7.2f}{target or '-':>8}{100 * row['share']:>8.1f}%"
                f"  {'-' if target is None else 'met' if met else 'MISSED'}"
            )
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
