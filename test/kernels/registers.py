"""Prints the resources of the portable kernels on an NVIDIA device, as NVRTC compiles them: registers of a thread, and
spilled bytes.

Usage: registers.py [--all] [--most N] [--jobs N].

For each compute capability of compilers.Nvrtc, prints the kernels that spill, most first, then the N that use most
registers; of all kernels, or of one of each template, dtype and variant. The exit code is 77 without NVRTC.
"""
import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

import compile_kernels
import compilers


def measure(compiler, name, text, architecture):
    return name, *compilers.opened(compiler).build(name, text, architecture)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every kernel, not a sample")
    parser.add_argument("--most", type=int, default=10, help="how many kernels are shown")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    compiler = compilers.Nvrtc(None)
    if missing := compiler.missing():
        print(f"skipped: {missing}")
        return 77
    texts = compile_kernels.chosen_texts(options.all, few=False)
    for architecture in compiler.architectures:
        with ProcessPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(measure, repeat(compiler), texts, texts.values(), repeat(architecture), chunksize=8))
        spilling = sorted((row for row in rows if row[3]), key=lambda row: -row[3])
        print(f"sm_{architecture}: {len(rows)} kernels, {sum(bool(row[1]) for row in rows)} refused, {len(spilling)} spill")
        for name, _, registers, spilled in spilling[: options.most]:
            print(f"  {name}: {spilled} bytes spilled, {registers} registers")
        for name, _, registers, _ in sorted(rows, key=lambda row: -row[2])[: options.most]:
            print(f"  {name}: {registers} registers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
