"""A training step of a 3-layer MLP on a plugin's device compared with CPU PyTorch in the same run, in both modes of the
fake device.

Usage: python mlp_step.py [--check] [--quick] [--plugin NAME]. Rows: forward, cross entropy, backward and an optimizer
step from Python, 64 samples, layers 64-128-128-10 (dominated by operator overhead) and 784-512-512-10 (dominated by
matrix products), with SGD and with Adam. Targets: 1.2 times the CPU inline (HAL_FAKE_ASYNC=0), 1.5 times asynchronous,
with one synchronization at the end of each row of steps; the losses equal the CPU's to 1e-4 relative.

Times are medians; the sides run alternately in one process, with a pause before each and steps that are not timed. With
--check the exit code is 1 if a target is missed.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

SIZES = {"64-128-128-10": (64, 128, 128, 10), "784-512-512-10": (784, 512, 512, 10)}
BATCH, STEPS = 64, 20
TARGETS = {"0": 1.2, "1": 1.5}
LOSS_DIFFERENCE = 1e-4
SMALL_LOSS = 1e-2  # a cross entropy is rounded to about 1e-7: below this limit, digits are missing


class Side:
    """A model with its optimizer and data on one device."""

    def __init__(self, torch, device, sizes, optimizer):
        generator = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        layers = [torch.nn.Linear(*pair) for pair in zip(sizes, sizes[1:])]
        modules = [m for layer in layers for m in (layer, torch.nn.ReLU())][:-1]
        self.model = torch.nn.Sequential(*modules).to(device)
        self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), lr=0.01)
        self.x = torch.randn(BATCH, sizes[0], generator=generator).to(device)
        self.y = torch.randint(sizes[-1], (BATCH,), generator=generator).to(device)
        self.criterion = torch.nn.CrossEntropyLoss()
        self.synchronize = sides.synchronizer(torch, device)
        self.losses = []

    def step(self):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def time(self):
        """Seconds of a step in a row of them."""
        for _ in range(3):
            loss = self.step()
        self.losses.append(loss.item())
        return sides.time_row(self.step, self.synchronize, STEPS)


def child(quick, plugin):
    """Measures every row in this process's mode and prints them as JSON."""
    torch = sides.torch_with_device(plugin)
    rows = []
    for name, sizes in SIZES.items():
        for optimizer in ("SGD", "Adam"):
            both = [Side(torch, device, sizes, optimizer) for device in sides.pair()]
            ours, peer = sides.alternate(*(side.time for side in both), 3 if quick else 11)
            difference = max(abs(a - b) / max(abs(b), SMALL_LOSS) for a, b in zip(*(side.losses for side in both)))
            rows.append({"what": f"{name}, {optimizer}", "ours": ours, "peer": peer, "difference": difference})
    print(json.dumps(rows))


def main():
    options = sides.parser(__doc__, with_plugin=True).parse_args()
    if options.child:
        child(options.quick, options.plugin)
        return 0
    table = sides.Table(40, 10, 12, 8, 8, 10)
    table.head("what", "ours", "CPU torch", "ratio", "target", "losses")
    for settings, title, mode in sides.modes(options.plugin):
        for row in sides.run_child(__file__, *sys.argv[1:], **settings):
            ratio, target = row["ours"] / row["peer"], TARGETS.get(mode)
            table.row(f"{row['what']}, {title}", f"{row['ours'] * 1e6:.0f} us", f"{row['peer'] * 1e6:.0f} us", f"{ratio:.2f}",
                      "-" if target is None else f"{target:.2f}", f"{row['difference']:.1e}",
                      met=(target is None or ratio <= target) and row["difference"] <= LOSS_DIFFERENCE)  # fmt: skip
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
