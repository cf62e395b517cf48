"""memory_history.py: how much the history of the allocator slows a training step of a small residual network.

    memory_history.py [--device fake] [--rounds 30] [--batch 8] [--size 32]

Each round runs one step without history, one that records events without stacks, and one with stacks of Python, so that
all have the same conditions. Prints the median of each and its ratio to the step without history, and compares it with
the targets: 3 % without stacks, 15 % with. Exit code 1: a target is missed.
"""

import argparse
import statistics
import time

import torch
from torch import nn

TARGETS = {"events": 0.03, "stacks": 0.15}


class Residual(nn.Module):
    """Two convolutions with batch norm, added to the input, as in ResNet's basic block."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.body(x))


def network():
    layers = [nn.Conv2d(3, 32, 3, padding=1), *(Residual(32) for _ in range(2)), nn.Conv2d(32, 64, 3, stride=2, padding=1)]
    return nn.Sequential(*layers, *(Residual(64) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def set_history(memory, mode):
    if mode == "none":
        memory._record_memory_history(enabled=None)
    else:
        memory._record_memory_history(context="all" if mode == "stacks" else None, stacks="python", max_entries=100_000, clear_history=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="fake")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=32, help="width and height of the images")
    arguments = parser.parse_args()
    import torch_backend

    torch_backend.use(arguments.device)
    device = torch_backend.device_name()
    module = torch.get_device_module(device)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(arguments.batch, 3, arguments.size, arguments.size, device=device)
    target = torch.randint(10, (arguments.batch,)).to(device)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
        module.synchronize()

    times, events = {mode: [] for mode in ("none", *TARGETS)}, 0
    for _ in range(5):
        step()
    modes = list(times)
    for number in range(arguments.rounds):
        for mode in modes[number % 3 :] + modes[: number % 3]:
            set_history(module.memory, mode)
            step()  # after the change
            start = time.perf_counter()
            step()
            times[mode].append(time.perf_counter() - start)
            if mode == "events" and not events:
                events = len(module.memory._snapshot()["device_traces"][0]) // 2
    set_history(module.memory, "none")
    base, missed = statistics.median(times["none"]), False
    print(f"{events} events in a step; without history {base * 1e3:.2f} ms")
    for mode, limit in TARGETS.items():
        # pairs of one round: load of the machine that changes between rounds does not count
        ratio = statistics.median(one / other for one, other in zip(times[mode], times["none"])) - 1
        missed |= ratio > limit
        print(f"{mode:8} {statistics.median(times[mode]) * 1e3:8.2f} ms  {ratio * 100:+6.1f} %  target {limit * 100:.0f} %: {'missed' if ratio > limit else 'met'}")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
