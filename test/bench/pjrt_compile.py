"""Compares programs that the plugin pjrt compiles at low optimization (HAL_PJRT_OPTIMIZE=rising) with fully optimized ones.

Usage: HAL_PJRT_PLUGIN=PATH python pjrt_compile.py [--steps N] [--rounds N]. Runs a process for each of the two in turn, without stored
programs, and prints the least of all rounds (default 3):
  compile  milliseconds of the processor for the first step, with its recording
  step     microseconds of a later step, of N (default 100) without synchronization
and whether the results after 3 steps are equal in bits. The programs are single operators of 256 x 256 numbers, and the networks of
pjrt_step.py.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch_backend
from torch_backend import lazy

sys.path[:0] = [str(Path(__file__).parent)]
import pjrt_step  # noqa: E402  found by the line above

LEVELS = ("whole", "rising")
OPERATORS = {
    "add": lambda x: x + x, "tanh": torch.tanh, "softmax": lambda x: x.softmax(1), "sum": lambda x: x.sum(1), "matmul": torch.matmul,
    "sort": lambda x: x.sort(1)[0], "index": lambda x: x[:, :128].clone(),
}  # fmt: skip


class Operator:
    """A single operator as a program of its own, with the interface of pjrt_step.Side."""

    def __init__(self, function):
        torch.manual_seed(0)
        self.function, self.x = function, torch.randn(256, 256).to("pjrt:0")

    def step(self):
        self.y = self.function(self.x, self.x) if self.function is torch.matmul else self.function(self.x)
        lazy.mark_step("pjrt:0")

    def results(self):
        return [self.y]


class Network(pjrt_step.Side):
    def __init__(self, kind):
        super().__init__(kind, "pjrt", "pjrt:0")

    def results(self):
        return list(self.net.parameters())


def measure(side, steps):
    """Returns the milliseconds of the processor for the first step, the microseconds of later ones, and a digest of the results."""
    begin = time.process_time()
    side.step()
    torch.accelerator.synchronize("pjrt:0")
    compiled = time.process_time() - begin
    side.step(), side.step()
    digest = hashlib.sha256(b"".join(one.detach().cpu().numpy().tobytes() for one in side.results())).hexdigest()
    least = float("inf")
    for _ in range(3):
        torch.accelerator.synchronize("pjrt:0")
        begin = time.perf_counter()
        for _ in range(steps):
            side.step()
        torch.accelerator.synchronize("pjrt:0")
        least = min(least, (time.perf_counter() - begin) / steps)
    return compiled * 1e3, least * 1e6, digest


def measure_all(steps):
    torch_backend.use("pjrt")
    with lazy.record("pjrt:0"):
        Operator(torch.neg).step()  # the first program includes the start of the compiler
        figures = {name: measure(Operator(function), steps) for name, function in OPERATORS.items()}
        return figures | {kind.__name__: measure(Network(kind), steps) for kind in (pjrt_step.mlp, pjrt_step.transformer)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help="measure the level of this process, as JSON")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure_all(options.steps)))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    found = {level: {} for level in LEVELS}
    for _ in range(options.rounds):
        for level in LEVELS:
            environment = {**os.environ, "HAL_PJRT_OPTIMIZE": level, "HAL_PJRT_HOT": "1000000", "HAL_PJRT_DEVICES": "1", "HAL_CACHE_DIR": ""}
            command = [sys.executable, "-P", __file__, "--child", "--steps", str(options.steps)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            for name, (compiled, step, digest) in json.loads(done.stdout).items():
                before = found[level].get(name, (compiled, step))
                found[level][name] = min(compiled, before[0]), min(step, before[1]), digest
    for name, (compiled, step, digest) in found["whole"].items():
        low_compiled, low_step, low_digest = found["rising"][name]
        bits = "equal" if digest == low_digest else "different"
        print(f"{name}: compile {low_compiled:.0f} ms at low optimization, {compiled:.0f} ms fully; "
              f"step {low_step:.0f} us, {step:.0f} us; bits {bits}")  # fmt: skip


if __name__ == "__main__":
    main()
