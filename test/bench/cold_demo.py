"""The cost of kernel compilation in the demo, in new processes: with an empty kernel cache, with a filled one, and on
the `fake` device.

    python test/bench/cold_demo.py [--plugin opencl] [--epochs N] [--rounds N] [--check]

Measures the demo's device part alone, from `torch_backend.use(plugin)` to the last loss, after the import of torch.
Times are the minimum of the rounds, each with its own cache. `compiled` and `compilation` are the counters of
`torch_backend info` (hal_kernel_stats): the kernels that this process compiled and those that it read from disk. A
driver may also compile when a kernel is first launched, as PoCL does; these counters do not include that, so the cold
row is evaluated by its time relative to the warm one. PoCL's own cache is in the same folder, so that it is empty as
well. Targets:

  cold  at most 60 s more than warm
  warm  no compilation, and at most 1 s more than fake
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
from sides import Table, parser, run_child  # noqa: E402  found by the line above

COLD = 60.0  # seconds beyond warm
WARM = 1.0  # seconds beyond fake


def child(plugin, epochs):
    """Trains as the demo does; prints times and the HAL's counters."""
    import torch

    import torch_backend
    from torch_backend import demo

    options = demo.parse_arguments(["--quiet", "--epochs", str(epochs)])
    torch.manual_seed(options.seed)
    network, data = demo.build_network(torch), demo.load_data(torch, options.seed)
    begin = time.perf_counter()
    torch_backend.use(plugin)
    run = demo.train(torch, network, data, options, torch.device(torch_backend.device_name(), 0))
    seconds = time.perf_counter() - begin
    from torch_backend import _C  # after `use`, which loads it

    print(json.dumps({"seconds": seconds, "accuracy": run.accuracy, **_C.kernel_stats(0)}))


def measure(plugin, rounds, *arguments):
    """{row: the counters and the time of its fastest process}."""
    rows = {"cold": [], "warm": [], "fake": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            settings = {"HAL_CACHE_DIR": f"{folder}/hal", "POCL_CACHE_DIR": f"{folder}/pocl"}
            for row in rows:
                measured = "fake" if row == "fake" else plugin
                rows[row].append(run_child(__file__, "--plugin", measured, *arguments, TORCH_BACKEND=measured, **settings))
    return {row: min(runs, key=lambda run: run["seconds"]) for row, runs in rows.items()}


def judge(rows):
    """{row: (target as text, whether it is met)}."""
    cold, warm, fake = (rows[row]["seconds"] for row in ("cold", "warm", "fake"))
    return {
        "cold": (f"warm + {COLD:.0f} s", cold - warm <= COLD),
        "warm": (f"fake + {WARM:.0f} s, 0 compiled", warm - fake <= WARM and rows["warm"]["compiled"] == 0),
        "fake": ("", None),
    }


def main():
    options = parser(__doc__)
    options.add_argument("--plugin", default="opencl", help="name of the plugin that compiles (opencl)")
    options.add_argument("--epochs", type=int, default=12, help="of the demo (12, its own number)")
    options.add_argument("--rounds", type=int, default=3, help="fresh processes for each row (3; 1 with --quick)")
    options = options.parse_args()
    if options.child:
        return child(options.plugin, options.epochs)
    rows = measure(options.plugin, 1 if options.quick else options.rounds, "--epochs", str(options.epochs))
    table = Table(6, 10, 10, 14, 10, 24)
    print(f"the demo's training on {options.plugin}, {options.epochs} epochs, seconds of the fastest process")
    table.head("", "wall time", "compiled", "compilation", "from disk", "target")
    for row, (target, met) in judge(rows).items():
        run = rows[row]
        table.row(row, f"{run['seconds']:.2f}", run["compiled"], f"{run['compile_seconds']:.2f}", run["loaded"], target, met=met)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
