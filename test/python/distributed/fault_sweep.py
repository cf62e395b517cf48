#!/usr/bin/env python3
"""fault_sweep.py [FUNCTION ...] [--rank R] [--settings NAME=VALUE,...] [--last N] [--shard I/N] [--results FILE]: makes each call of plugin functions fail once,
in a parallel training.

For each function, and n = 1, 2, ... until the training makes no more calls of it, the n-th call fails on rank R of 2 (HAL_FAULT). Each rank has to end within
30 s, with exit code 0, and with an error or the right weights. Rank 0 serves the store of the group. Without a FUNCTION: all that the training calls.
--results: a file of one JSON line for each case; cases that are in it do not run again.
"""

import argparse
import collections
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # each process of a training loads the plugin, with its faults

import faulty
import torch
import torch._dynamo  # imported here once, not by each process

SECONDS = 30  # of a case: a rank that waits for the other ends at the group's timeout, 8 s
SETTINGS = {"TORCH_BACKEND": "fake", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def rank_of(rank, folder, settings):
    """In a new process: one rank of the training. Ends as a program does."""
    written = os.open(folder / f"rank{rank}", os.O_CREAT | os.O_WRONLY)
    os.dup2(written, 1), os.dup2(written, 2)
    os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD")
    os.environ.update({**SETTINGS, **settings})
    code = 1
    try:
        kind, words = faulty.result(rank, folder / "rendezvous")
        (folder / f"end{rank}").write_text(f"{kind} {words}")
        code = 0
    finally:
        sys.exit(code)


class Progress:
    """Whether a process still uses processors: on a busy machine the import and the end of torch take long."""

    def __init__(self, process):
        self.stat, self.ticks, self.since = Path(f"/proc/{process}/stat"), -1, time.monotonic()

    def has_stopped(self):
        ticks = sum(map(int, self.stat.read_text().rpartition(")")[2].split()[11:13]))
        if ticks != self.ticks:
            self.ticks, self.since = ticks, time.monotonic()
        return time.monotonic() - self.since > 10


def wait(processes, seconds):
    """Returns the exit codes; None for one that did not end and was killed. One that makes progress has more time."""
    codes, until = dict.fromkeys(processes), time.monotonic() + seconds
    progress = {process: Progress(process) for process in processes}
    while None in codes.values():
        late = time.monotonic() - until
        for process in [process for process, code in codes.items() if code is None]:
            over = progress[process].has_stopped() and late > 0 or late > 5 * seconds
            if over:
                os.kill(process, 9)
            ended, status = os.waitpid(process, 0 if over else os.WNOHANG)
            if ended:
                codes[process] = "none: it did not end" if over else os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return list(codes.values())


def run(faulty_rank, settings, seconds=SECONDS):
    """Runs the training; one rank has the settings. Returns for each rank how it ended, its exit code, and what it wrote."""
    folder, processes = Path(tempfile.mkdtemp()), []
    for rank in range(2):
        process = os.fork()
        if process == 0:
            rank_of(rank, folder, settings if rank == faulty_rank else {})
        processes.append(process)
    codes = wait(processes, seconds)
    ends = [(folder / f"end{rank}").read_text() if (folder / f"end{rank}").exists() else "none" for rank in range(2)]
    written = [(folder / f"rank{rank}").read_text(errors="replace") for rank in range(2)]
    shutil.rmtree(folder)
    return ends, codes, written


def calls_of_the_training(rank):
    """Returns {function: number of its calls by the rank}, and the right end."""
    ends, codes, written = run(rank, {"HAL_LAYERS": "trace", "HAL_LOG": "info"})
    assert codes == [0, 0] and ends[0] == ends[1] and ends[0].startswith("sum "), (ends, codes, written)
    return collections.Counter(re.findall(r"trace: \w+\.([a-z0-9_]+) -> ", written[rank])), ends[0]


def wrong(ends, codes, right):
    """Returns what is wrong with the ends of a case, or ""."""
    for rank, (end, code) in enumerate(zip(ends, codes)):
        kind, _, words = end.partition(" ")
        if code != 0:
            return f"exit code of rank {rank}: {code}"
        if kind == "sum" and abs(float(words) - float(right.split()[1])) > 1e-6:
            return f"rank {rank} has {words}, right is {right}"
        if kind == "none" or len(words) < 15:
            return f"rank {rank} ended without a result or an error: {end}"
    return ""


def sweep(rank, faults, right, results):
    """Runs the cases that are not in `results`. Returns the wrong ones."""
    done = {}
    if results and results.exists():
        done = {case["fault"]: case for case in map(json.loads, results.read_text().splitlines())}
    for fault in faults:
        if fault not in done:
            begun = time.monotonic()
            ends, codes, written = run(rank, {"HAL_LAYERS": "fault", "HAL_FAULT": fault})
            done[fault] = {"fault": fault, "seconds": round(time.monotonic() - begun, 1), "ends": ends, "wrong": wrong(ends, codes, right)}
            if done[fault]["wrong"]:
                done[fault]["written"] = [text[-2000:] for text in written]
            if results:
                with results.open("a") as file:
                    file.write(json.dumps(done[fault]) + "\n")
    return [done[fault] for fault in faults]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*")
    parser.add_argument("--settings", default="", help="NAME=VALUE,...: of the environment of both ranks, such as HAL_FAKE_PROTECT=1")
    parser.add_argument("--rank", type=int, choices=(0, 1), default=1, help="the rank whose calls fail; rank 0 serves the store")
    parser.add_argument("--last", type=int, default=200)
    parser.add_argument("--cases", help="the numbers of the calls that fail, separated by commas; default: 1 to --last")
    parser.add_argument("--shard", default="0/1", help="I/N: the cases with number I modulo N")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    SETTINGS.update(setting.split("=", 1) for setting in arguments.settings.split(",") if setting)
    calls, right = calls_of_the_training(arguments.rank)
    if missing := set(arguments.functions) - set(calls):
        parser.error(f"the training does not call {', '.join(sorted(missing))}; it calls {', '.join(sorted(calls))}")
    shard, shards = map(int, arguments.shard.split("/"))
    chosen = arguments.cases and [int(number) for number in arguments.cases.split(",")]
    faults = [
        f"{function}:{number}" for function in arguments.functions or sorted(calls) for number in chosen or range(1, arguments.last + 1)
        if number <= calls[function]  # a call that the training does not make cannot fail
    ]  # fmt: skip
    cases = sweep(arguments.rank, faults[shard::shards], right, arguments.results)
    for function in arguments.functions or sorted(calls):
        of_it = [case for case in cases if case["fault"].split(":")[0] == function]
        errors = sum(any(end.startswith("error") for end in case["ends"]) for case in of_it)
        print(f"{function}: {calls[function]} calls, {len(of_it)} cases, {errors} with an error, {sum(bool(case['wrong']) for case in of_it)} wrong")
    bad = [case for case in cases if case["wrong"]]
    for case in bad:
        print(f"---- {case['fault']}: {case['wrong']}\n{case['ends']}\n" + "\n".join(case["written"]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
