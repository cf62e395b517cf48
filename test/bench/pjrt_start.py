"""Times the first training step of a process on the plugin pjrt, without stored programs and with those of an earlier process.

Usage: HAL_PJRT_PLUGIN=PATH python pjrt_start.py [--rounds N] [--only NAME]. For each network of pjrt_step.py, N times (default 3), two processes
use a new HAL_CACHE_DIR one after the other. Prints, as the least of all rounds, for the first process and for the second one:
  device   milliseconds of the first tensor: the client is created, and the platform's memory tested
  step     milliseconds of the first step, with its recording, until its loss can be read
  later    milliseconds of the tenth step
and how many programs were compiled and loaded. The target is a first step below 1 s and no compilation in the second process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch_backend
from torch_backend import lazy

sys.path[:0] = [str(Path(__file__).parent)]
import pjrt_step  # noqa: E402  found by the line above

LIMIT_MS = 1000


def step_ms(side):
    begin = time.perf_counter()
    side.step()
    side.synchronize()
    return (time.perf_counter() - begin) * 1e3


def measure(kind):
    """Returns the milliseconds of the device's start, of the first step and of a later one."""
    torch_backend.use("pjrt")
    begin = time.perf_counter()
    torch.ones(1).to("pjrt:0").tolist()
    device = (time.perf_counter() - begin) * 1e3
    side = pjrt_step.Side(kind, "pjrt", "pjrt:0")
    side.synchronize()
    with lazy.record("pjrt:0"):
        first, *_, later = (step_ms(side) for _ in range(10))
    return device, first, later


def run(name, folder):
    """Measures in a process of its own. Returns its figures, and the programs that it compiled and loaded."""
    environment = {**os.environ, "HAL_PJRT_DEVICES": "1", "HAL_CACHE_DIR": folder, "HAL_LOG": "info"}
    command = [sys.executable, "-P", __file__, "--child", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), done.stderr.count("pjrt: compiled a"), done.stderr.count("pjrt: loaded a")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    kinds = {kind.__name__: kind for kind in pjrt_step.KINDS}
    parser.add_argument("--only", choices=kinds, help="one network instead of all")
    parser.add_argument("--child", choices=kinds, help="measure in this process, as JSON")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(kinds[options.child])))
        return 0
    print(f"load {os.getloadavg()[0]:.1f}")
    missed = False
    for name in [options.only] if options.only else kinds:
        rounds = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append([run(name, folder) for _ in range(2)])
        for process, label in enumerate(("first process", "second process")):
            device, step, later = (min(one[process][0][i] for one in rounds) for i in range(3))
            compiled, loaded = rounds[0][process][1:]
            print(f"{name}, {label}: device {device:.0f} ms, step {step:.0f} ms, later {later:.1f} ms; {compiled} compiled, {loaded} loaded")
        missed |= step > LIMIT_MS or compiled > 0
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
