"""Compares each entry of PyTorch's operator database on the fake device with the CPU.

    python test/opinfo/run.py           float32, forward, first sample (what `make test` runs, through pytest)
    python test/opinfo/run.py --plugin PATH.so --mode inline      the same on another plugin's device
    python test/opinfo/run.py --plugin opencl --mode compiled --every 8      every 8th, compiled by torch.compile
    python test/opinfo/run.py --full    six dtypes, several samples, float32 with backward; modes async with delays, inline,
                                        strict, staged, lazy, lazy_device

Prints a table per dtype and exits with 1 if a result differs from the committed lists (expected.json, native.json).
"""

import argparse
import collections
import json
import os
import sys
import time
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "python")]
os.environ["OMP_NUM_THREADS"] = "1"  # the CPU's part of a sample is small, and slots run in parallel
os.environ.pop("HAL_FAKE_MEMORY", None)

import torch
from entry import MODES, check, entry_name, let_the_caller_seed
from expected import SEVERITY, STEPS, Expected, native_steps, outcome, place_of
from runner import run_jobs

FULL = ("float32", "float16", "bfloat16", "int64", "bool", "complex64")
DELAY = 200  # microseconds
BATCH = 12  # jobs of a process
SETTINGS = (("async",), ("lazy",), ("lazy_device",), ("inline", "strict"), ("staged",), ("compiled",))  # modes that one process can serve


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all dtypes and modes")
    parser.add_argument("--dtype", action="append", help="only this dtype (may be repeated)")
    parser.add_argument("--mode", action="append", choices=tuple(MODES), help="only this mode (may be repeated)")
    parser.add_argument("--entry", action="append", help="only this entry: name or name.variant (may be repeated)")
    parser.add_argument("--plugin", default="fake", help="name or path of the plugin (fake); of another one no native operators are expected")
    parser.add_argument("--every", type=int, default=1, help="only each n-th entry")
    parser.add_argument("--samples", type=int, help="samples per entry (1, full: 3)")
    parser.add_argument("--slots", type=int, default=min(8, len(os.sched_getaffinity(0))), help="processes at a time")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for an entry with one dtype and setting")
    parser.add_argument("--tighten", action="store_true", help="shorten expected.json and lengthen native.json by what got better")
    parser.add_argument("--json", type=Path, help="write all outcomes to this file")
    return parser.parse_args()


def plans(options, lists):
    """The jobs: (entry's name, dtype's name, plan)."""
    from op_database import op_db

    modes = options.mode or (tuple(mode for mode in MODES if mode != "compiled") if options.full else ("async",))
    dtypes = options.dtype or (FULL if options.full else ("float32",))
    let_the_caller_seed()
    entries = {entry_name(op): op for op in op_db}
    wanted = options.entry or list(entries)[:: options.every]
    for name in wanted:
        if name not in entries:
            sys.exit(f"run.py: no entry '{name}' in the operator database of torch {torch.__version__}")
    jobs = []
    for dtype in dtypes:
        for name in wanted:
            if getattr(torch, dtype) not in entries[name].dtypes:
                continue
            for setting in SETTINGS:
                served = [mode for mode in setting if mode in modes]
                plan = {"modes": served, "samples": options.samples or (3 if options.full else 1), "random": lists.random,
                        "backward": options.full and dtype == "float32", "uninitialised": lists.uninitialised,
                        "delay": DELAY if options.full and served == ["async"] else 0, "host": lists.host,
                        "plugin": options.plugin}  # fmt: skip
                if served:
                    jobs.append((name, dtype, plan))
    return entries, jobs


def run(options, entries, jobs):
    """Runs the jobs and returns their outcomes."""

    def work(job, emit):
        warnings.filterwarnings("ignore")
        name, dtype, plan = job
        return check(entries[name], getattr(torch, dtype), plan, emit)

    settings = collections.defaultdict(list)
    for job in jobs:
        settings[tuple(job[2]["modes"])].append(job)
    batches = [same[i : i + BATCH] for same in settings.values() for i in range(0, len(same), BATCH)]
    results = []
    for (name, dtype, plan), records, death in run_jobs(batches, work, slots=options.slots, timeout=options.timeout):
        results += [outcome(name, dtype, mode, records, death) for mode in plan["modes"]]
    order = {job[:2]: i for i, job in enumerate(jobs)}
    return sorted(results, key=lambda result: order[result.entry, result.dtype])


def first_sample(results, step):
    """The number of entries whose first sample passes up to this step, of those that have one."""
    sampled = passed = 0
    for result in results:
        if result.kind == "unsampled":
            continue
        sampled += 1
        passed += result.at is None or result.at > (0, STEPS.index(step))
    return f"{passed} of {sampled} ({100 * passed / max(1, sampled):.1f} %)"


def print_tables(results):
    groups = collections.defaultdict(list)
    for result in results:
        groups[result.dtype, result.mode].append(result)
    for dtype in dict.fromkeys(result.dtype for result in results):
        print(f"\n{dtype:10} {'pass':>6} {'wrong':>6} {'error':>6} {'crash':>6} {'no sample':>10}   first sample forward, with backward")
        for (of, mode), group in groups.items():
            if of != dtype:
                continue
            kinds = collections.Counter(result.kind for result in group)
            columns = f"{kinds['wrong']:6} {kinds['error']:6} {kinds['crash']:6} {kinds['unsampled']:10}"
            if mode == "strict":
                pairs = [native_steps(result) for result in group if result.kind != "unsampled"]
                both = sum(b for _, b in pairs)
                print(f"{mode:10} {sum(f for f, _ in pairs):6} {columns}   native forward; forward and backward: {both}")
            else:
                backward = f", {first_sample(group, 'backward')}" if any_backward(group) else ""
                print(f"{mode:10} {kinds['pass']:6} {columns}   {first_sample(group, 'forward')}{backward}")


def any_backward(group):
    return any(record.get("step") == "backward" for result in group for record in result.records)


def print_blockers(results, most=15):
    """The operators that prevent most entries from being native."""
    blockers = collections.Counter()
    for result in results:
        if result.mode == "async" and result.dtype == "float32":
            blockers.update({op for record in result.records for op in record.get("fallbacks", ())})
    if blockers:
        print("\noperators that fall back in most entries: " + ", ".join(f"{op} {n}" for op, n in blockers.most_common(most)))


def judge(results, lists, options):
    """Yields a message for each difference from the lists."""
    samples = options.samples or (3 if options.full else 1)
    # natives are claimed for all samples: fewer samples may look native without being it
    fewer = not options.full or samples < 3
    scope = (samples - 1, STEPS.index("backward" if options.full else "forward"))
    verdicts = []
    for result in results:
        verdicts.append(lists.judge(result, scope))
        if options.plugin == "fake" and result.kind != "unsampled" and (result.mode != "strict" or not fewer):
            verdicts += lists.judge_native(result)
    return [f"{verdict}: {sentence}" for verdict, sentence in verdicts if sentence]


def main():
    options = arguments()
    started = time.monotonic()
    lists = Expected()
    if options.tighten and (not options.full or options.samples):
        sys.exit("run.py: --tighten needs --full and its own number of samples")
    entries, jobs = plans(options, lists)
    results = run(options, entries, jobs)
    if options.json:
        options.json.write_text(json.dumps([result._asdict() for result in results], indent=1))
    print_tables(results)
    print_blockers(results)
    unknown = sorted({line["entry"] for line in lists.data["failures"]} - set(entries))
    problems = judge(results, lists, options) + [f"worse: {name}: listed, but not in the database" for name in unknown]
    if options.tighten:
        lists.tighten(results)
    listed = collections.Counter(result.kind for result in results if result.kind in SEVERITY)
    print(f"\n{len(results)} outcomes in {time.monotonic() - started:.0f} s; failures, listed ones included: {dict(listed)}")
    for problem in sorted(problems):
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
