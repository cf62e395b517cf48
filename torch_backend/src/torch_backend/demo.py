"""Trains a small convolutional network on handwritten digits on a device and, from the same weights, on the CPU.

Run ``python -m torch_backend.demo [--device NAME]``. The data are the 1,797 images of 8 x 8 pixels that scikit-learn
ships, so nothing is downloaded. The exit code is 0 only if the device's network reaches the accuracy, its parameters
are on the device, and the losses of the first steps equal the CPU's. On a device that takes portable kernels, enough
operator calls must also have run natively.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field

from .cli._output import output_file

MIN_ACCURACY = 0.93  # or that of the CPU, less the tolerance, if it is lower after few epochs
ACCURACY_TOLERANCE = 0.03
MIN_NATIVE_SHARE = 0.60
LOSS_TOLERANCE = 1e-4  # relative, over the first COMPARED_STEPS steps
COMPARED_STEPS = 20


@dataclass
class Run:
    """The results of one training run. Times are in seconds; there is one loss per step."""

    device: str
    losses: list = field(default_factory=list)
    step_times: list = field(default_factory=list)
    accuracy: float = 0.0
    parameter_device: str = ""

    @property
    def step_ms(self) -> float:
        """Returns the median time of a training step in milliseconds. The first epoch is warm-up if there are several.
        """
        times = self.step_times[1:] or self.step_times
        return 1e3 * statistics.median(times)


def build_network(torch):
    """Returns the network: input (N, 1, 8, 8), output logits (N, 10)."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def load_data(torch, seed: int):
    """Returns (train images, train labels, test images, test labels) on the CPU; images float32 in [0, 1], one in five for test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images, labels = images[order], labels[order]
    split = len(labels) // 5
    return images[split:], labels[split:], images[:split], labels[:split]


def synchronize(torch, device) -> None:
    """Waits for the device's work; does nothing for the CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def train_epoch(torch, network, optimizer, data, batch_size, generator, run, progress) -> None:
    """Trains one epoch over shuffled batches; appends the losses and the mean step time to ``run``."""
    images, labels = data
    order = torch.randperm(len(labels), generator=generator).to(images.device)
    losses = []
    start = time.perf_counter()
    for first in range(0, len(labels), batch_size):
        batch = order[first : first + batch_size]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        progress.update()
    synchronize(torch, images.device)
    run.step_times.append((time.perf_counter() - start) / len(losses))
    run.losses += [loss.item() for loss in losses]


def train(torch, network, data, args, device) -> Run:
    """Trains a copy of ``network`` on ``device`` and measures it."""
    from tqdm import tqdm

    run = Run(str(device))
    network = copy.deepcopy(network).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=args.lr, momentum=0.9)
    train_images, train_labels, test_images, test_labels = (tensor.to(device) for tensor in data)
    generator = torch.Generator().manual_seed(args.seed)
    steps = -(-len(train_labels) // args.batch_size) * args.epochs
    terminal = sys.stderr.isatty()  # a bar is for a terminal; a file gets one line
    with tqdm(total=steps, desc=f"training on {device}", unit="step", disable=args.quiet or not terminal) as progress:
        for _ in range(args.epochs):
            train_epoch(torch, network, optimizer, (train_images, train_labels), args.batch_size, generator, run, progress)
            progress.set_postfix(loss=f"{run.losses[-1]:.4f}")
    if not args.quiet and not terminal:
        print(f"training on {device}: {steps} steps, loss {run.losses[-1]:.4f}", file=sys.stderr)
    with torch.no_grad():
        run.accuracy = (network(test_images).argmax(1) == test_labels).double().mean().item()
    devices = sorted({str(parameter.device) for parameter in network.parameters()})
    run.parameter_device = ", ".join(devices)
    return run


def largest_difference(ours: list, theirs: list) -> float:
    """Returns the largest relative difference of two loss curves over the first ``COMPARED_STEPS`` steps."""
    pairs = list(zip(ours, theirs))[:COMPARED_STEPS]
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)


def smoothed(losses: list, weight: float = 0.9) -> list:
    """Returns the exponential moving average of a loss curve, corrected for its start."""
    average, result = 0.0, []
    for step, loss in enumerate(losses, 1):
        average = weight * average + (1 - weight) * loss
        result.append(average / (1 - weight**step))
    return result


def plot(runs, path: str) -> None:
    """Writes the loss curves to an image file: smoothed, and the raw ones in a light color."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for run, style, color in zip(runs, ("-", "--"), ("#2a6f97", "#c1121f")):
        axes.plot(run.losses, style, color=color, linewidth=0.6, alpha=0.35)
        axes.plot(smoothed(run.losses), style, color=color, linewidth=1.6, label=f"{run.device}: test accuracy {run.accuracy:.3f}")
    axes.set(xlabel="step", ylabel="training loss", yscale="log", title="Handwritten digits, same initial weights")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def print_report(summary: dict) -> None:
    """Prints the summary as text."""
    print(f"\nparameters on        {summary['parameter_device']}")
    print(f"test accuracy        {summary['device']} {summary['accuracy']:.4f}, cpu {summary['cpu_accuracy']:.4f}")
    print(
        f"training step        {summary['device']} {summary['step_ms']:.2f} ms, cpu {summary['cpu_step_ms']:.2f} ms "
        f"({summary['step_ms'] / summary['cpu_step_ms']:.2f} times the CPU's)"
    )
    print(f"losses               first {COMPARED_STEPS} steps equal the CPU's to {summary['loss_difference']:.1e} relative")
    without = "" if summary["has_kernels"] else "; the plugin takes no portable kernels, so operators run on the CPU"
    print(f"operator calls       {100 * summary['native_share']:.1f} % native{without}")
    for row in summary["operators"]:
        kind, count = max((("native", row["native"]), ("composed", row["composed"]), ("fallback", row["fallback"])), key=lambda pair: pair[1])
        print(f"  {count:>8}  {kind:<8}  {row['op']}")
    print(f"loss curves          {summary['picture']}")


def has_kernels(device) -> bool:
    """Returns whether a device takes portable kernels. Otherwise its plugin is not expected to reach a native share."""
    from torch_backend import ops

    return any(row.portable for row in ops.coverage("mm", "convolution_overrideable", device=device.index))


def summarize(ours: Run, cpu: Run, operators: list, picture: str, kernels: bool) -> dict:
    """Returns all results of the demo as one dictionary."""
    native = sum(row["native"] for row in operators)
    fallback = sum(row["fallback"] for row in operators)
    return {
        "device": ours.device,
        "parameter_device": ours.parameter_device,
        "accuracy": ours.accuracy,
        "cpu_accuracy": cpu.accuracy,
        "step_ms": ours.step_ms,
        "cpu_step_ms": cpu.step_ms,
        "loss_difference": largest_difference(ours.losses, cpu.losses),
        "native_calls": native,
        "fallback_calls": fallback,
        "native_share": native / max(native + fallback, 1),
        "has_kernels": kernels,
        "operators": operators,
        "picture": picture,
    }


def failures(summary: dict) -> list:
    """Returns an error message for each check that failed."""
    broken = []
    least = min(MIN_ACCURACY, summary["cpu_accuracy"] - ACCURACY_TOLERANCE)
    if summary["accuracy"] < least:
        broken.append(f"accuracy {summary['accuracy']:.4f} is below {least:.4f}; the CPU's is {summary['cpu_accuracy']:.4f}")
    if summary["parameter_device"] != summary["device"]:
        broken.append(f"parameters are on {summary['parameter_device']}, not on {summary['device']}")
    if summary["has_kernels"] and summary["native_share"] < MIN_NATIVE_SHARE:
        broken.append(f"only {100 * summary['native_share']:.1f} % of the operator calls ran natively")
    if not summary["loss_difference"] <= LOSS_TOLERANCE:
        broken.append(f"losses differ from the CPU's by {summary['loss_difference']:.1e} relative")
    return broken


def parse_arguments(argv):
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m torch_backend.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="device, such as fake or fake:1 (default: the active plugin's, else fake)")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", default="demo-loss.png", type=output_file, help="file for the loss curves")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args(argv)
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size must be at least 1")
    return args


def main(argv=None) -> int:
    """Runs the demo. Returns the exit code: 0 all checks passed, 1 a check failed, 2 wrong usage."""
    args = parse_arguments(argv)
    import torch

    import torch_backend

    if not torch_backend.is_active():
        torch_backend.use((args.device or os.environ.get("TORCH_BACKEND") or "fake").split(":")[0])
    device = torch.device(args.device or torch_backend.device_name())
    if device.index is None:
        device = torch.device(device.type, torch.accelerator.current_device_index())

    torch.manual_seed(args.seed)
    network = build_network(torch)
    data = load_data(torch, args.seed)
    torch_backend.ops.reset()
    ours = train(torch, network, data, args, device)
    operators = [row._asdict() for row in torch_backend.ops.report()]
    cpu = train(torch, network, data, args, torch.device("cpu"))

    plot((ours, cpu), args.picture)
    summary = summarize(ours, cpu, operators, args.picture, has_kernels(device))
    if args.json:
        print(json.dumps(summary, indent=1))
    else:
        print_report(summary)
    broken = failures(summary)
    for sentence in broken:
        print(f"demo failed: {sentence}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
