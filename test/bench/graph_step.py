"""A training step of an MLP on the fake device: replayed from a graph compared with eager execution, and with CPU
PyTorch, in the same run.

Usage: python graph_step.py [--check] [--quick]. Rows: forward, cross entropy, backward and SGD with momentum, batch 64,
of layers 64-128-128-10 (mlp_step.py's small one) and 16-16-16-4 with batch 4, inline (HAL_FAKE_ASYNC=0) and
asynchronous, with one synchronization at the end of each row of steps. Target: a replay takes at most 0.5 of the eager
step.

Times are medians; the sides run alternately in one process, with a pause before each. With --check the exit code is 1
if the target is missed.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

SIZES = {"64-128-128-10": ((64, 128, 128, 10), 64), "16-16-16-4": ((16, 16, 16, 4), 4)}
STEPS, TARGET = 20, 0.5


class Side:
    """A model with its optimizer and data on one device; `graphed`: its step is a replay."""

    def __init__(self, torch, device, sizes, batch, graphed=False):
        torch.manual_seed(0)
        modules = [module for pair in zip(sizes, sizes[1:]) for module in (torch.nn.Linear(*pair), torch.nn.ReLU())][:-1]
        self.torch, self.model = torch, torch.nn.Sequential(*modules).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.x, self.y = torch.randn(batch, sizes[0]).to(device), torch.randint(sizes[-1], (batch,)).to(device)
        self.synchronize = sides.synchronizer(torch, device)
        self.call = self.step
        for _ in range(3):
            self.step()
        if graphed:
            self.graph = torch.accelerator.Graph()
            with torch.get_device_module(device).graph(self.graph):
                self.step()
            self.call = self.graph.replay

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.torch.nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def time(self):
        """Seconds of a step in a row of them."""
        for _ in range(3):
            self.call()
        return sides.time_row(self.call, self.synchronize, STEPS)


def child(quick):
    """Measures every row in this process's mode and prints them as JSON."""
    torch = sides.torch_with_device()
    rows, rounds = [], 3 if quick else 15
    for name, (sizes, batch) in SIZES.items():
        graphed, eager, cpu = Side(torch, "fake", sizes, batch, True), Side(torch, "fake", sizes, batch), Side(torch, "cpu", sizes, batch)
        replay, step = sides.alternate(graphed.time, eager.time, rounds)
        _, peer = sides.alternate(graphed.time, cpu.time, rounds)
        rows.append({"what": name, "replay": replay, "eager": step, "peer": peer})
    print(json.dumps(rows))


def main():
    options = sides.parser(__doc__).parse_args()
    if options.child:
        child(options.quick)
        return 0
    table = sides.Table(32, 10, 10, 12, 8, 8)
    table.head("layers", "replay", "eager", "CPU torch", "ratio", "target")
    for mode, title in sides.MODES:
        for row in sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_ASYNC=mode):
            ratio = row["replay"] / row["eager"]
            table.row(f"{row['what']}, {title}", *(f"{row[side] * 1e6:.0f} us" for side in ("replay", "eager", "peer")),
                      f"{ratio:.2f}", f"{TARGET:.2f}", met=ratio <= TARGET)  # fmt: skip
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
