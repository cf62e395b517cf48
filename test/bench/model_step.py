"""Training steps of the networks of test/python/models.py on a plugin's device compared with CPU PyTorch in the same
run, in both modes of the fake device.

Usage: python model_step.py [--check] [--quick] [--only NAME ...] [--plugin NAME]. Targets: a step of the ResNet and of
the transformer takes at most 1.3 times the CPU's on the fake device, 2 and 1.5 times on opencl (PoCL on the CPU's own
cores), and at least 90 % of its operator calls are native. The LSTM and the VAE are printed only. 16 samples a step,
forward, backward and SGD with momentum; one synchronization at the end of each row of steps; the CPU uses all cores.

Times are medians; the sides run alternately in one process, with a pause before each and steps that are not timed. With
--check the exit code is 1 if a target is missed.
"""

import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "shared"), str(Path(__file__).parents[1] / "python")]
import models  # noqa: E402  found by the line above
import sides  # noqa: E402

SAMPLES, STEPS = 16, 10
# steps before those that are timed: after a pause, either side needs as many until threads, clocks and caches are warm
WARM = 3
TARGETS = {"fake": {"resnet": 1.3, "transformer": 1.3}, "opencl": {"resnet": 2.0, "transformer": 1.5}}
NATIVE_SHARE = 0.9


class Side:
    """A model with its optimizer and data on one device."""

    def __init__(self, torch, name, device):
        torch.manual_seed(0)
        self.model = models.MODELS[name]().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.batch = [part.to(device) for part in models.batches(name, 1, SAMPLES)[0]]
        self.synchronize = sides.synchronizer(torch, device)

    def step(self):
        self.optimizer.zero_grad()
        self.model.loss(self.batch).backward()
        self.optimizer.step()

    def time(self):
        """Seconds of a step in a row of them."""
        for _ in range(WARM):
            self.step()
        self.synchronize()
        return sides.time_row(self.step, self.synchronize, STEPS)


def native_share(side):
    """The fraction of a step's operator calls that run natively on the device."""
    import torch_backend

    side.step()
    torch_backend.ops.reset()
    side.step()
    calls = torch_backend.ops.report()
    native, fallback = sum(row.native for row in calls), sum(row.fallback for row in calls)
    return native / (native + fallback)


def child(rounds, names, plugin):
    """Measures every model in this process's mode and prints the rows as JSON."""
    torch = sides.torch_with_device(plugin)
    rows = []
    for name in names:
        ours, peer = (Side(torch, name, device) for device in sides.pair())
        share = native_share(ours)
        times = sides.alternate(ours.time, peer.time, rounds)
        rows.append({"what": name, "share": share, "ours": times[0], "peer": times[1]})
    print(json.dumps(rows))


def main() -> int:
    """Prints the rows of both modes; returns the exit code."""
    parser = sides.parser(__doc__, with_plugin=True)
    parser.add_argument("--only", nargs="*", default=list(models.MODELS), choices=list(models.MODELS), help="models to measure")
    options = parser.parse_args()
    if options.child:
        child(3 if options.quick else 11, options.only, options.plugin)
        return 0
    table = sides.Table(14, 9, 9, 7, 8, 9)
    for settings, title, _ in sides.modes(options.plugin):
        rows = sides.run_child(__file__, *sys.argv[1:], **settings)
        table.head(title, "ours ms", "cpu ms", "ratio", "target", "native")
        for row in rows:
            ratio, target = row["ours"] / row["peer"], TARGETS.get(options.plugin, {}).get(row["what"])
            table.row(row["what"], f"{row['ours'] * 1e3:.2f}", f"{row['peer'] * 1e3:.2f}", f"{ratio:.2f}", target or "-",
                      f"{100 * row['share']:.1f}%",
                      met=None if target is None else ratio <= target and row["share"] >= NATIVE_SHARE)  # fmt: skip
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
