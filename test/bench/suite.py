"""About 30 small models, forward passes and training steps, in eager mode, as graphs, in lazy mode and compiled, compared
with CPU PyTorch in the same mode and run.

Usage: python suite.py [--check] [--quick] [--only NAME ...] [--shard I/N] [--results FILE] [--csv FILE] [--plugin NAME]. The models
are those of shared/suite_models.py: images, detection, transformers, sequences, recommendation, graphs; those of the
package transformers only if it is installed. The table has milliseconds a step; then the geometric mean and the five
worst of each ratio: eager mode, graphs and lazy mode to CPU PyTorch's eager mode, compiled to CPU PyTorch's compiled and
to eager mode. --quick measures six models, --shard the I-th of N parts. With --results each measured model is appended
to the file, and models that it has are not measured again. --csv writes the means and the five worst as a file of
docs/figures, which the documentation's plots are made from. With --check the exit code is 1 if a geometric mean is above
its target, or if a result differs from the CPU's.

A process measures a model. Times are medians of rows of steps with one synchronization each; the sides alternate. A
training step is forward, backward and SGD. Each side uses all cores.
"""

import csv
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

# ratio: (ways in it, target of the geometric mean)
RATIOS = {
    "eager / CPU eager": ("eager", "CPU eager", 0.9),
    "graphs / CPU eager": ("graphs", "CPU eager", None),
    "lazy / CPU eager": ("lazy", "CPU eager", None),
    "compiled / CPU compiled": ("compiled", "CPU compiled", 1.0),
    "compiled / eager": ("compiled", "eager", 0.85),
}
WAYS = ("eager", "graphs", "lazy", "compiled", "CPU eager", "CPU compiled")
ROW, TOLERANCE, WORST = 0.05, 1e-3, 5  # seconds of a row of steps; of the loss; models listed


# ---- the measuring process ----
class Side:
    """A model on a device, run in one way."""

    def __init__(self, torch, create, way, trains, device):
        torch.manual_seed(0)
        self.torch, self.trains = torch, trains
        module, inputs = create()
        self.module = module.to(device).train(trains)
        self.inputs = [x.to(device) for x in inputs]
        self.optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
        self.run = torch.compile(self.module) if "compiled" in way else self.module
        self.synchronize = sides.synchronizer(torch, device)
        self.call = self.lazily if way == "lazy" else self.step
        self.loss = self.call().item()
        for _ in range(3):
            self.call()
        if way == "graphs":
            graph = torch.accelerator.Graph()
            with torch.get_device_module(device).graph(graph):
                self.step()
            self.call = graph.replay

    def forward(self):
        results = self.torch.utils._pytree.tree_leaves(dict(self.run(*self.inputs)) if hasattr(self.module, "config") else self.run(*self.inputs))
        return sum(x.square().mean() for x in results if isinstance(x, self.torch.Tensor) and x.is_floating_point())

    def step(self):
        if not self.trains:
            with self.torch.no_grad():
                return self.forward()
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def lazily(self):
        from torch_backend import lazy

        with lazy.record():
            loss = self.step()
            lazy.mark_step()
        return loss

    def time(self, steps):
        return sides.time_row(self.call, self.synchronize, steps)


def measure(torch, create, trains, rounds):
    """Returns seconds a step of each way, and the errors of ways that do not run or differ."""
    device, cpu = sides.pair()
    found, errors = {}, {}
    for way in WAYS:
        try:
            found[way] = Side(torch, create, way, trains, cpu if way.startswith("CPU") else device)
        except Exception as error:  # a way that refuses a model is a row of the report
            errors[way] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    expected = found["CPU eager"].loss
    for way, side in found.items():
        if not math.isclose(side.loss, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            errors[way] = f"the loss is {side.loss}, CPU PyTorch's {expected}"
    steps = {way: max(1, min(50, int(ROW / max(side.time(1), 1e-6)))) for way, side in found.items()}
    samples = {way: [] for way in found}
    for _ in range(rounds):
        for way, side in found.items():
            side.time(1)
            samples[way].append(side.time(steps[way]))
    return {"times": {way: statistics.median(one) for way, one in samples.items()}, "errors": errors}


def child(name, rounds, plugin):
    torch = sides.torch_with_device(plugin)
    import suite_models

    rows = [{"model": name, "trains": trains, **measure(torch, suite_models.MODELS[name], trains, rounds)} for trains in (False, True)]
    print(json.dumps(rows))


# ---- the reporting process ----
def selected(options):
    import suite_models

    names = options.only or (suite_models.QUICK if options.quick else suite_models.MODELS)
    part, parts = map(int, options.shard.split("/"))
    return list(names)[part - 1 :: parts]


def known(path):
    """Returns the rows of a file of results."""
    return [row for line in path.read_text().splitlines() for row in json.loads(line)] if path and path.exists() else []


def run(options):
    path = Path(options.results) if options.results else None
    rows = known(path)
    for name in selected(options):
        if any(row["model"] == name for row in rows):
            continue
        try:
            new = sides.run_child(__file__, name, "--plugin", options.plugin, *["--quick"] * options.quick, TORCH_BACKEND=options.plugin)
        except subprocess.CalledProcessError as error:
            new = [{"model": name, "trains": None, "times": {}, "errors": {"process": f"exit code {error.returncode}"}}]
        rows += new
        if path:
            with path.open("a") as file:
                file.write(json.dumps(new) + "\n")
    return rows


def title(row):
    return row["model"] + {True: ", training", False: ", forward", None: ""}[row["trains"]]


def ratios(rows, ours, theirs):
    """Returns the ratios of two ways with their models, the worst one first."""
    return sorted(((row["times"][ours] / row["times"][theirs], title(row)) for row in rows if {ours, theirs} <= row["times"].keys()), reverse=True)


def write_csv(path, rows):
    """Writes what the documentation shows: of each ratio the geometric mean, and the range of the five worst."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("what", "script", "low", "high", "target", "note"))
        for name, (ours, theirs, target) in RATIOS.items():
            found = ratios(rows, ours, theirs)
            if not found:
                continue
            mean = f"{statistics.geometric_mean(ratio for ratio, _ in found):.2f}"
            out.writerow((f"{name}, geometric mean", "suite.py", mean, mean, target or "", f"{len(found)} rows"))
            worst = found[:WORST]
            out.writerow((f"{name}, the five worst", "suite.py", f"{worst[-1][0]:.2f}", f"{worst[0][0]:.2f}", "", "; ".join(which for _, which in worst)))


def report(rows, table):
    """Prints the rows, the ratios and the errors."""
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; milliseconds a step")
    table.head("model", *WAYS)
    for row in rows:
        times = row["times"]
        table.row(title(row), *(f"{times[way] * 1e3:.2f}" if way in times else "-" for way in WAYS), met=False if row["errors"] else None)
    for name, (ours, theirs, target) in RATIOS.items():
        found = ratios(rows, ours, theirs)
        if not found:
            continue
        mean = statistics.geometric_mean(ratio for ratio, _ in found)
        table.row(name, f"{mean:.2f}", f"of {len(found)}", "", "target", target or "-", "", met=None if target is None else mean <= target)
        print("  worst: " + "; ".join(f"{which} {ratio:.2f}" for ratio, which in found[:WORST]))
    for row in rows:
        for way, error in row["errors"].items():
            print(f"  {title(row)}, {way}: {error}")


def main() -> int:
    parser = sides.parser(__doc__, with_plugin=True)
    parser.add_argument("names", nargs="*", help="with --child: the model that this process measures")
    parser.add_argument("--only", nargs="*", help="models to measure")
    parser.add_argument("--shard", default="1/1", help="the part I of N parts to measure, as I/N")
    parser.add_argument("--csv", help="a file of docs/figures, which is written")
    parser.add_argument("--results", help="a file of measured models, which is continued")
    options = parser.parse_args()
    if options.child:
        child(options.names[0], 3 if options.quick else 9, options.plugin)
        return 0
    table = sides.Table(34, 10, 10, 10, 10, 11, 14)
    rows = run(options)
    report(rows, table)
    if options.csv:
        write_csv(options.csv, rows)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
