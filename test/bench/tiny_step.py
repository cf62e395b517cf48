"""A tiny training step on a plugin's device compared with CPU PyTorch in the same run, while the other cores sleep, in
both modes of the fake device.

Usage: python tiny_step.py [--check] [--quick] [--plugin NAME]. A step is forward, backward and SGD of linear 16-16-16-4
with a batch of 4, on one thread, after a sleep during which the worker and autograd's threads fall asleep. Rows:
backward on the calling thread (the default), and on autograd's thread of the device (TORCH_BACKEND_AUTOGRAD_THREADS=1),
which has no target. Targets: 1.15 times the CPU asynchronous, 1.0 inline (HAL_FAKE_ASYNC=0).

Times are medians; the sides run alternately in one process. With --check the exit code is 1 if a target is missed.
"""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

TARGETS = {"0": 1.0, "1": 1.15}
PAUSE = 0.02  # seconds before a step
STEPS = 20  # in a row after the pause


class Side:
    """A model with its optimizer and data on one device."""

    def __init__(self, torch, device):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)]
        self.model = torch.nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.x = torch.randn(4, 16).to(device)
        self.synchronize = sides.synchronizer(torch, device)

    def step(self):
        self.optimizer.zero_grad()
        self.model(self.x).square().mean().backward()
        self.optimizer.step()

    def time(self):
        """Seconds per step of a few steps in a row after a pause; the median of ten such rows."""
        samples = []
        for _ in range(10):
            time.sleep(PAUSE)
            samples.append(sides.time_row(self.step, self.synchronize, STEPS))
        return statistics.median(samples)


def child(quick, plugin):
    torch = sides.torch_with_device(plugin)
    torch.set_num_threads(1)
    both = [Side(torch, device) for device in sides.pair()]
    for side in both:
        side.time()
    ours, peer = sides.alternate(*(side.time for side in both), 3 if quick else 11)
    print(json.dumps([{"ours": ours, "peer": peer}]))


def main():
    options = sides.parser(__doc__, with_plugin=True).parse_args()
    if options.child:
        child(options.quick, options.plugin)
        return 0
    table = sides.Table(56, 10, 12, 8, 8)
    table.head("what", "ours", "CPU torch", "ratio", "target")
    for mode_settings, title, mode in sides.modes(options.plugin):
        for threads, where in (("0", "calling thread"), ("1", "autograd's thread")):
            settings = {**mode_settings, "TORCH_BACKEND_AUTOGRAD_THREADS": threads}
            (row,) = sides.run_child(__file__, *sys.argv[1:], **settings)
            ratio = row["ours"] / row["peer"]
            target = TARGETS.get(mode) if threads == "0" else None
            table.row(f"backward on {where}, {title}", f"{row['ours'] * 1e6:.0f} us", f"{row['peer'] * 1e6:.0f} us", f"{ratio:.2f}",
                      "" if target is None else f"{target:.2f}", met=None if target is None else ratio <= target)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
