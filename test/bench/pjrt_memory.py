"""Training steps and single operators of the plugin pjrt in both kinds of memory (HAL_PJRT_MEMORY).

Usage: HAL_PJRT_PLUGIN=PATH python pjrt_memory.py [--steps N] [--rounds N]. Runs a process for each kind in turn, and prints the least of
all rounds (default 3) in microseconds, in elapsed time and in that of all processors, and the ratios of opaque to addressed memory:
  mlp, transformer  a step in lazy mode, of N (default 200) without synchronization; the networks of pjrt_step.py
  eager             a call of an operator (x + 1 of 256 numbers), of 10 N without synchronization
  deferred          the same call in lazy mode, with a step after 100 of them
  program           the same operator as a program of its own: a step after each
"""

import argparse
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

KINDS = ("addressed", "opaque")


def per_call(count, call):
    """Returns the microseconds of a call, of `count` without synchronization: elapsed, and of all processors. The least of three."""
    times = []
    for _ in range(3):
        torch.accelerator.synchronize("pjrt:0")
        begin, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            call()
        torch.accelerator.synchronize("pjrt:0")
        times.append((time.perf_counter() - begin, time.process_time() - used))
    return [min(column) / count * 1e6 for column in zip(*times)]


def measure(steps):
    """Returns the figures of this process's kind of memory."""
    torch_backend.use("pjrt")
    x = torch.ones(256, device="pjrt")
    kept = [None]  # an unused result is not computed
    figures = {"eager": per_call(10 * steps, lambda: x + 1)}

    def program():
        kept[0] = x + 1
        lazy.mark_step("pjrt:0")

    def deferred():
        for _ in range(100):
            kept[0] = x + 1
        lazy.mark_step("pjrt:0")

    with lazy.record("pjrt:0"):
        deferred(), program()
        figures["deferred"] = [one / 100 for one in per_call(steps // 2, deferred)]
        figures["program"] = per_call(10 * steps, program)
        for kind in (pjrt_step.mlp, pjrt_step.transformer):
            side = pjrt_step.Side(kind, "pjrt", "pjrt:0")
            side.run(5, False)
            figures[kind.__name__] = per_call(steps, side.step)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help="measure the kind of memory of this process, as JSON")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.steps)))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    least = {kind: {} for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:
            environment = {**os.environ, "HAL_PJRT_MEMORY": kind, "HAL_PJRT_DEVICES": "1", "TORCH_BACKEND_DEFER": "0"}
            command = [sys.executable, "-P", __file__, "--child", "--steps", str(options.steps)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            for name, figure in json.loads(done.stdout).items():
                least[kind][name] = list(map(min, figure, least[kind].get(name, figure)))
    for name, addressed in least["addressed"].items():
        opaque = least["opaque"][name]
        ratios = [one / other for one, other in zip(opaque, addressed)]
        print(f"{name}: addressed {addressed[0]:.1f} us, opaque {opaque[0]:.1f} us ({ratios[0]:.2f}); "
              f"of processors {addressed[1]:.1f} us, {opaque[1]:.1f} us ({ratios[1]:.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
