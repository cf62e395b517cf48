"""The demo's training step on the fake device under HAL_FAKE_SANITIZE, compared with the step without it in the same run.

Usage: python sanitize.py [--check]. Target: at most 10 times for all classes together. With --check the exit code is 1 if
a row misses its target. A step has no report.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

RATIO = 10
CLASSES = ("memory", "init", "leak", "race", "memory,init,leak,race")


def run_demo(**settings) -> float:
    """Runs the demo in a separate process; returns the milliseconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        return sides.run_json("-m", "torch_backend.demo", "--json", "--quiet", "--picture", f"{folder}/loss.png", **settings)["step_ms"]


def main() -> int:
    """Prints one row per set of classes; returns the exit code."""
    options = sides.parser(__doc__, with_child=False).parse_args()
    table = sides.Table(23, 10, 10, 7, 8)
    table.head("classes", "ms", "plain ms", "ratio", "target")
    for classes in CLASSES:
        plain = run_demo()
        found = run_demo(HAL_FAKE_SANITIZE=classes, HAL_FAKE_SANITIZE_EXIT_CODE="77")
        table.row(classes, f"{found:.2f}", f"{plain:.2f}", f"{found / plain:.2f}", f"{RATIO:.2f}", met=found / plain <= RATIO)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
