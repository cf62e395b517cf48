"""Checks that the verdicts of the conformance suite do not depend on the speed or load of the machine: many runs in a
row, while other processes compute.

    repeat.py --cts PROGRAM --plugin PATH [--times 100] [--load N] [NAME=VALUE ...] [-- OPTION...]

NAME=VALUE are settings of the plugin, OPTIONs are passed to the suite. Stops at the first finding with code 1 and
prints the suite's output.
"""
import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path


def compute():
    while True:
        sum(range(100000))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cts", type=Path, required=True)
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--load", type=int, default=2 * (os.cpu_count() or 1), help="processes that compute meanwhile")
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, further = sys.argv[1:cut], sys.argv[cut + 1:]
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    arguments = parser.parse_args(own)
    environment = {**os.environ, **dict(setting.split("=", 1) for setting in arguments.settings)}
    busy = [multiprocessing.Process(target=compute, daemon=True) for _ in range(arguments.load)]
    for process in busy:
        process.start()
    longest, begin = 0.0, time.monotonic()
    for turn in range(arguments.times):
        started = time.monotonic()
        done = subprocess.run([arguments.cts, "--plugin", arguments.plugin, *further], env=environment, capture_output=True,
                              text=True, timeout=1800, check=False)
        longest = max(longest, time.monotonic() - started)
        if done.returncode:
            print(f"run {turn + 1} of {arguments.times} has findings (code {done.returncode}):\n{done.stdout}{done.stderr}")
            return 1
        if turn % 10 == 9 and turn + 1 < arguments.times:
            print(f"{turn + 1} of {arguments.times} runs, {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{arguments.plugin.name}: {arguments.times} runs without a finding with {arguments.load} busy processes, "
          f"{time.monotonic() - begin:.0f} s, the longest {longest:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
