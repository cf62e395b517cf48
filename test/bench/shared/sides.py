"""Shared code of the benchmarks of two sides: the device and CPU PyTorch measured alternately by one process, a process
for each mode of the fake device, and a table whose rows are evaluated.

A script runs itself once more with --child in each mode (`run_child`). That process measures and prints its figures as
JSON, and the script prints them with its targets.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

MODES = (("0", "inline"), ("1", "asynchronous"))  # HAL_FAKE_ASYNC and its name in the tables
# Settings that restrict both sides to AVX2: the device, then ATen, oneDNN and MKL.
AVX2 = {"HAL_HOST_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
# Seconds before a side is timed: OpenMP's threads spin for milliseconds after the CPU's calls and must not occupy a
# core of the device.
PAUSE = 0.05


# ---- the measuring process ----
def torch_with_device(plugin="fake"):
    """Imports torch with the plugin's device in use, and returns it."""
    import torch

    import torch_backend

    torch_backend.use(plugin)
    return torch


def pair():
    """The types of the two measured devices: the plugin's, and the CPU."""
    import torch_backend

    return torch_backend.device_name(), "cpu"


def synchronizer(torch, device):
    """Returns the function that waits for a side's work."""
    return torch.get_device_module(device).synchronize if device != "cpu" else lambda: None


def time_row(call, synchronize, calls, clock=time.perf_counter):
    """Seconds per call of a row of calls with one synchronization at its end."""
    begin = clock()
    for _ in range(calls):
        call()
    synchronize()
    return (clock() - begin) / calls


def alternate(ours, peer, rounds, pause=PAUSE, choose=statistics.median):
    """Runs two functions that return seconds alternately, each after a pause; returns the median of each, or what
    `choose` selects."""
    samples = ([], [])
    for _ in range(rounds):
        for function, seconds in zip((ours, peer), samples):
            time.sleep(pause)
            seconds.append(function())
    return choose(samples[0]), choose(samples[1])


# ---- the evaluating process ----
def parser(script_doc, with_child=True, with_plugin=False):
    """The options of such scripts; only scripts that measure by `run_child` have --quick and --child, and only some
    have --plugin."""
    result = argparse.ArgumentParser(description=script_doc.splitlines()[0])
    result.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    if not with_child:
        return result
    result.add_argument("--quick", action="store_true", help="fewer rounds")
    result.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    if with_plugin:
        result.add_argument("--plugin", default="fake", help="name of the plugin that is compared with the CPU (fake)")
    return result


def modes(plugin):
    """(settings, title, HAL_FAKE_ASYNC or None) of each measured mode of a plugin: two of the fake device, one of
    others."""
    if plugin != "fake":
        return [({"TORCH_BACKEND": plugin}, plugin, None)]
    return [({"HAL_FAKE_ASYNC": mode}, title, mode) for mode, title in MODES]


def run_python(*arguments, stderr=None, **settings):
    """Runs Python with arguments and environment settings; returns its output."""
    environment = {**os.environ, "TORCH_BACKEND": "fake", **settings}
    return subprocess.run([sys.executable, "-P", *arguments], env=environment, check=True, stdout=subprocess.PIPE, stderr=stderr, text=True).stdout


def run_json(*arguments, **settings):
    """Runs Python with arguments and environment settings; returns the JSON of its last line."""
    output = run_python(*arguments, **settings)
    return json.loads(output[re.search(r"^[\[{]", output, re.MULTILINE).start() :])


def run_child(script, *arguments, **settings):
    """Runs the script as the measuring process."""
    return run_json(script, "--child", *arguments, **settings)


class Table:
    """Columns of given widths, the first left-aligned, and a verdict; rows are printed as they arrive, and missed
    targets are counted."""

    def __init__(self, *widths):
        self.widths = widths
        self.missed = 0

    def head(self, *names):
        self._print(names, "verdict")

    def row(self, *cells, met):
        """`met` is None in a row without a target."""
        self.missed += met is not None and not met
        self._print(cells, "-" if met is None else "met" if met else "MISSED")

    def _print(self, cells, verdict):
        first, *others = (f"{cell:{'<' if i == 0 else '>'}{width}}" for i, (cell, width) in enumerate(zip(cells, self.widths)))
        print(first + "".join(others) + "  " + verdict, flush=True)

    def exit_code(self, options):
        return 1 if options.check and self.missed else 0
