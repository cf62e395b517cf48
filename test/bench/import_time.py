"""The time that the package adds to `import torch`, in new interpreters, compared with torch alone.

Usage: python import_time.py [--check] [--rounds N]. Rows:

  torch_backend       `import torch_backend` without autoload, no plugin requested. Target: at most 50 ms.
  autoload            `import torch` that finds the package automatically, no plugin requested. Target: at most 50 ms.
  autoload, a plugin  the same with TORCH_BACKEND=fake: it also opens the plugin and loads the extension; printed only.

Each row has two medians. "whole" is the wall time of an interpreter minus that of `import torch` alone with
TORCH_DEVICE_BACKEND_AUTOLOAD=0, which ran just before it. On a machine under load it varies by tens of milliseconds.
"inside" is the time of the package alone, measured in an interpreter that has imported torch without autoload: `import
torch_backend`, or the loading of entry points at the end of torch's import. The targets apply to "inside". With --check
the exit code is 1 if one is missed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

TARGET = 0.050  # seconds
ROWS = {  # the statement of a user's program, the same after the import of torch, and the requested plugin
    "torch_backend": ("import torch_backend", "import torch_backend", "0", None),
    "autoload": ("import torch", "torch._import_device_backends()", "1", None),
    "autoload, a plugin": ("import torch", "torch._import_device_backends()", "1", "fake"),
}
CHECKED = ("torch_backend", "autoload")
INSIDE = "import time, torch; begin = time.perf_counter(); {}; print(time.perf_counter() - begin)"
LEAVE = "import sys, os; sys.stdout.flush(); os._exit(0)"  # torch's work at exit is not part of its import


def run(statement, autoload, plugin=None):
    """Runs a statement in a new interpreter; returns its wall time in seconds and its output."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_", "HAL_"))}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = autoload
    if plugin:
        environment["TORCH_BACKEND"] = plugin
    command = [sys.executable, "-P", "-c", f"{statement}\n{LEAVE}"]
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return time.perf_counter() - begin, done.stdout


def measure(rounds):
    """Returns the times of torch alone, and for each row the differences of whole interpreters and the times inside."""
    alone, whole, inside = [], {name: [] for name in ROWS}, {name: [] for name in ROWS}
    for turn in range(-1, rounds):  # round -1 fills the page cache and is not counted
        for name, (statement, part, autoload, plugin) in ROWS.items():
            before = run("import torch", "0")[0]
            difference = run(statement, autoload, plugin)[0] - before
            part_alone = float(run(INSIDE.format(part), "0", plugin)[1])
            if turn >= 0:
                alone.append(before), whole[name].append(difference), inside[name].append(part_alone)
    return alone, whole, inside


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    alone, whole, inside = measure(options.rounds)
    print(f"import torch alone: {1e3 * statistics.median(alone):.0f} ms; medians of {options.rounds} fresh interpreters, in ms")
    print(f"{'':<20} {'whole':>8} {'inside':>8}")
    missed = False
    for name in ROWS:
        median = statistics.median(inside[name])
        target = f"target {1e3 * TARGET:.0f}" if name in CHECKED else ""
        missed |= name in CHECKED and median > TARGET
        print(f"{name:<20} {1e3 * statistics.median(whole[name]):+8.1f} {1e3 * median:8.1f}   {target}")
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
