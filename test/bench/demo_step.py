"""The demo's training step beside the CPU's in one run, in both modes of the fake device.

Usage: python demo_step.py [--check]. Targets: a step takes at most 1.5 times the CPU's, and the losses of the first 20 steps
equal the CPU's to 1e-4 relative. With --check the exit code is 1 when a row misses its target.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

STEP_RATIO = 1.5
LOSS_DIFFERENCE = 1e-4


def run_demo(asynchronous: bool) -> dict:
    """Runs the demo in a process of its own; returns its JSON summary."""
    environment = dict(os.environ, TORCH_BACKEND="fake", HAL_FAKE_ASYNC=str(int(asynchronous)))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "torch_backend.demo", "--json", "--quiet", "--picture", f"{folder}/loss.png"]
        output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output[output.index("{") :])


def main() -> int:
    """Prints one row per mode; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    args = parser.parse_args()
    missed = 0
    print(f"{'mode':<14}{'fake ms':>9}{'cpu ms':>9}{'ratio':>7}{'target':>8}{'losses':>10}{'native':>9}  verdict")
    for name, asynchronous in (("asynchronous", True), ("inline", False)):
        row = run_demo(asynchronous)
        ratio = row["step_ms"] / row["cpu_step_ms"]
        met = ratio <= STEP_RATIO and row["loss_difference"] <= LOSS_DIFFERENCE
        missed += not met
        print(
            f"{name:<14}{row['step_ms']:>9.2f}{row['cpu_step_ms']:>9.2f}{ratio:>7.2f}{STEP_RATIO:>8.2f}"
            f"{row['loss_difference']:>10.1e}{100 * row['native_share']:>8.1f}%  {'met' if met else 'MISSED'}"
        )
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
