"""Counts the operator entries that a device computes by programs of its compiler, by running PyTorch's operator database.

    HAL_PJRT_PLUGIN=PATH python test/opinfo/programs.py [--plugin pjrt] [--memory opaque] [--samples N] [--entry NAME] [--results FILE]

Each sample runs in lazy mode, forward and backward, in float32 (or in the first dtype that the entry has), and is compared with the
CPU. Every ATen operator of it is flushed alone, so that the counters of the lazy mode show how it was computed. It is native if
programs computed all of it: no kernel of the host ran, no other command was queued, and nothing fell back to the CPU. Operators that
the database does not call are called directly (program_calls.py). An operator entry (codegen/operators) is native if all its calls
with elements of real dtypes are. Operators of the HAL inside a native call are native, too; calls with complex numbers, which no
program computes, are only counted. Prints the entries that are not, with the reason, and the samples that
differ; those of the list ROUNDED may differ by the number there. With --results each entry is appended to a file, and those that the file has are not run again. Exits with 1 if a sample is wrong or ends the process, or if fewer entries than --least are native.
"""

import argparse
import collections
import json
import os
import re
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test/opinfo"), str(ROOT / "test/python"), str(ROOT / "codegen")]
os.environ["OMP_NUM_THREADS"] = "1"

import entries as operator_entries  # noqa: E402  found by the lines above
import torch  # noqa: E402
from entry import Check, Unsampled, entry_name, let_the_caller_seed  # noqa: E402
from expected import Expected, outcome  # noqa: E402
from program_calls import CALLS, call  # noqa: E402
from runner import run_jobs  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

BATCH = 12  # entries of the database that one process runs
DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)
# Differences that are roundings: the largest one, and why.
ROUNDED = {"logcumsumexp": (0.002, "a sample has the number 10000, whose rounding is 0.001: the gradients of the CPU have an error of 0.001, too")}
DIFFERENCE = re.compile(r"Greatest absolute difference: ([\d.e+-]+)")
TRANSFERS = ("_to_copy", "copy_", "_copy_from", "_local_scalar_dense")  # between the device and the CPU
VIEWS = "no work"  # of calls that only make views or tensors without elements


class Observer(TorchDispatchMode):
    """Flushes each operator alone and stores how it was computed: [ATen's name, of complex numbers, HAL's names, kind, reason]."""

    def __init__(self, device):
        super().__init__()
        self.device, self.calls = torch.device(device), []

    def counters(self):
        from torch_backend import fallback, lazy

        return lazy.metrics(), collections.Counter(lazy.operators()), {row.op: row.count for row in fallback.report()}

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        torch.accelerator.synchronize()
        before = self.counters()
        result = function(*arguments, **(keywords or {}))
        tensors = [x for x in tree_leaves((arguments, keywords, result)) if isinstance(x, torch.Tensor)]
        on_device = [x.device.type == self.device.type for x in tensors]
        name = function._schema.name.removeprefix("aten::") + overload(function)
        if any(on_device) and (all(on_device) or name not in TRANSFERS):
            torch.accelerator.synchronize()
            self.calls.append([name, any(x.is_complex() for x in tensors), *judged(before, self.counters())])
        return result


def overload(function):
    return "" if function._overloadname == "default" else f".{function._overloadname}"


def judged(before, after):
    """Returns the HAL's operators of a call, how it was computed, and why not by programs."""
    metrics = {name: after[0][name] - before[0][name] for name in ("programs", "queued", "groups")}
    names = sorted(after[1] - before[1])
    fell_back = sorted(name for name, count in after[2].items() if count > before[2].get(name, 0))
    others = metrics["queued"] - metrics["programs"]
    if fell_back:
        return names, "fallback", f"the CPU computes {', '.join(fell_back)}"
    if others or metrics["groups"]:
        return names, "kernels", f"{others} other commands, {metrics['programs']} programs, of {', '.join(names)}"
    return names, "programs" if metrics["programs"] else VIEWS, ""


class Observed(Check):
    """One entry of the database, whose operators are observed."""

    def _device_work(self, mode, steps, work):
        observer = Observer(self.device)

        def observed():
            with observer:
                return work()

        try:
            return super()._device_work(mode, steps, observed)
        finally:
            self.emit({"mode": mode, "status": "calls", "message": "", "calls": [["", *one] for one in observer.calls]})


def use(options):
    os.environ.update(HAL_PJRT_MEMORY=options.memory, HAL_PJRT_PROGRAMS="100000", TORCH_BACKEND_DEFER="0")
    torch.set_num_threads(1)
    import torch_backend

    torch_backend.use(options.plugin)
    return torch_backend.device_name()


def run_entry(op, plan, options, emit):
    device = use(options)
    dtype = next((dtype for dtype in DTYPES if dtype in op.dtypes), None)
    try:
        entry = Observed(op, dtype, plan, device, emit)
    except Unsampled as reason:
        emit({"mode": "lazy", "status": "unsampled", "message": str(reason)[:300]})
        return True
    entry.run("lazy")
    return entry.clean


def run_call(name, options, emit):
    """Runs a call of the list, compared with the CPU. The records are those of an entry of the database."""
    device = use(options)
    record, observer = {"mode": "lazy", "sample": 0, "step": "forward"}, Observer(device)
    emit({**record, "status": "started"})
    try:
        message = call(name, device, observer)
        status = "wrong" if message else "pass"
    except Exception as error:
        status, message = "error", f"{type(error).__name__}: {error}"[:300]
    emit({"mode": "lazy", "status": "calls", "message": "", "calls": [[name, *one] for one in observer.calls]})
    emit({**record, "status": status, "message": message or ""})
    return status != "error"


def run_all(options):
    """Yields (kind, name, records, death) of each entry of the database and each call of the list."""
    from op_database import op_db

    lists = Expected()
    let_the_caller_seed()
    database = {entry_name(op): op for op in op_db if "jiterator" not in op.name}
    plan = {"modes": ["lazy"], "samples": options.samples, "backward": True, "delay": 0, "random": lists.random,
            "uninitialised": lists.uninitialised, "host": lists.host, "plugin": options.plugin}  # fmt: skip
    jobs = [("database", name) for name in database] + [("call", name) for name in CALLS]
    jobs = [job for job in jobs if not options.entry or job[1] in options.entry][:: options.every]
    if options.results and options.results.exists():
        earlier = [json.loads(line) for line in options.results.read_text().splitlines()]
        yield from earlier
        jobs = [job for job in jobs if job not in [(kind, name) for kind, name, _, _ in earlier]]

    def work(job, emit):
        warnings.filterwarnings("ignore")
        return run_entry(database[job[1]], plan, options, emit) if job[0] == "database" else run_call(job[1], options, emit)

    batches = [jobs[i : i + BATCH] for i in range(0, len(jobs), BATCH)]
    for (kind, name), records, death in run_jobs(batches, work, slots=options.slots, timeout=300):
        if options.results:
            with options.results.open("a") as file:
                print(json.dumps([kind, name, records, death]), file=file)
        yield kind, name, records, death


def entry_of_overload():
    """Returns the name of the operator entry of each overload of ATen."""
    from torch_backend import _coverage

    found = {name: row["vendor"] for name, row in _coverage._support().items()}
    return found | {name.split(".")[0] + "." + (name.split(".") + [""])[1]: entry for name, entry in found.items()}


def summarize(calls, table):
    """Returns {entry: (how, reasons)} from the calls."""
    names, of = {entry.name for entry in table}, entry_of_overload()
    seen = collections.defaultdict(collections.Counter)
    reasons = collections.defaultdict(collections.Counter)
    for called, aten, is_complex, hal, kind, reason in calls:
        entry = of.get(aten) or of.get(aten.replace("_.", ".")) or aten
        own = {called, entry} | ({name for name in hal} if kind == "programs" or len(hal) == 1 else set())
        for name in own & names:
            seen[name]["complex" if is_complex and kind != "programs" else kind] += 1
            if reason and not is_complex:
                reasons[name][f"{aten}: {reason}"] += 1
    return {name: (seen[name], reasons[name]) for name in names}


def kind_of(counts):
    if counts["fallback"] or counts["kernels"]:
        return "partly" if counts["programs"] else "fallback" if counts["fallback"] else "kernels"
    return "native" if counts["programs"] else "no work" if counts[VIEWS] or counts["complex"] else "not called"


def report(summary, options):
    kinds = collections.defaultdict(list)
    for name, (counts, _) in sorted(summary.items()):
        kinds[kind_of(counts)].append(name)
    print(f"{len(summary)} operator entries: " + ", ".join(f"{kind} {len(names)}" for kind, names in kinds.items()))
    for kind in ("partly", "kernels", "fallback", "no work", "not called"):
        print(f"\n{kind}: {len(kinds[kind])}")
        for name in kinds[kind]:
            counts, reasons = summary[name]
            why = "; ".join(reason for reason, _ in reasons.most_common(2))
            real = sum(counts[kind] for kind in ("programs", "kernels", "fallback"))
            print(f"  {name} ({counts['programs']} of {real} calls by programs, {counts['complex']} of complex numbers): {why}")
    return len(kinds["native"])


def is_rounding(one):
    """Returns whether all differences of an entry are roundings that the list ROUNDED allows."""
    if one.kind != "wrong" or one.entry not in ROUNDED:
        return False
    wrong = [DIFFERENCE.search(record["message"]) for record in one.records if record["status"] == "wrong"]
    return bool(wrong) and all(found and float(found[1]) <= ROUNDED[one.entry][0] for found in wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", default="pjrt")
    parser.add_argument("--memory", default="opaque", choices=("opaque", "addressed", "auto"))
    parser.add_argument("--samples", type=int, default=2, help="of each entry (2)")
    parser.add_argument("--entry", action="append", help="only this entry of the database, or this call (may be repeated)")
    parser.add_argument("--every", type=int, default=1, help="only each n-th entry")
    parser.add_argument("--slots", type=int, default=1, help="processes at a time (1)")
    parser.add_argument("--least", type=int, default=0, help="exit with 1 if fewer entries are native")
    parser.add_argument("--results", type=Path, help="a file with a line for each entry, which is continued")
    options = parser.parse_args()
    calls, outcomes = [], []
    for kind, name, records, death in run_all(options):
        calls += [one for record in records for one in record.get("calls", ())]
        outcomes.append(outcome(f"call {name}" if kind == "call" else name, "float32", "lazy", [record for record in records if record["status"] != "calls"], death))
    outcomes = [one._replace(kind="rounded") if is_rounding(one) else one for one in outcomes]
    kinds = collections.Counter(one.kind for one in outcomes)
    print(f"{len(outcomes)} entries of the database and calls, {options.samples} samples: " + ", ".join(f"{k} {n}" for k, n in kinds.items()))
    for one in outcomes:
        if one.kind not in ("pass", "unsampled"):
            print(f"  {one.kind}: {one.entry}: {next((r['message'] for r in reversed(one.records) if r.get('message')), '')[:300]}")
    native = report(summarize(calls, operator_entries.load()), options)
    return 1 if kinds["wrong"] or kinds["crash"] or native < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
