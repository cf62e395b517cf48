"""The demo's training step compared with the CPU's in the same run, in both modes of the fake device.

Usage: python demo_step.py [--check]. Targets: a step takes at most 1.5 times the CPU's, and the losses of the first 20
steps equal the CPU's to 1e-4 relative. With --check the exit code is 1 if a row misses its target.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

STEP_RATIO = 1.5
LOSS_DIFFERENCE = 1e-4


def run_demo(mode: str) -> dict:
    """Runs the demo in a separate process; returns its JSON summary."""
    with tempfile.TemporaryDirectory() as folder:
        return sides.run_json("-m", "torch_backend.demo", "--json", "--quiet", "--picture", f"{folder}/loss.png", HAL_FAKE_ASYNC=mode)


def main() -> int:
    """Prints one row per mode; returns the exit code."""
    options = sides.parser(__doc__, with_child=False).parse_args()
    table = sides.Table(14, 9, 9, 7, 8, 10, 9)
    table.head("mode", "fake ms", "cpu ms", "ratio", "target", "losses", "native")
    for mode, title in reversed(sides.MODES):
        row = run_demo(mode)
        ratio = row["step_ms"] / row["cpu_step_ms"]
        table.row(title, f"{row['step_ms']:.2f}", f"{row['cpu_step_ms']:.2f}", f"{ratio:.2f}", f"{STEP_RATIO:.2f}",
                  f"{row['loss_difference']:.1e}", f"{100 * row['native_share']:.1f}%",
                  met=ratio <= STEP_RATIO and row["loss_difference"] <= LOSS_DIFFERENCE)  # fmt: skip
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
