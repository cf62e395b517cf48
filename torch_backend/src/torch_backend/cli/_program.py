"""Commands that are programs of their own, which need neither Python nor torch: they are found in the package and get all options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def find(name: str) -> Path:
    """The installed program. Raises FileNotFoundError with what to do when the package lacks it."""
    path = Path(__file__).resolve().parents[1] / "bin" / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; install torch_backend again")
    return path


def run(command: str, name: str, usage: str, argv, before=()) -> int:
    """Runs the program with `before` and `argv`; its exit code, or 2 for wrong usage."""
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print(f"usage: torch-backend {command} {usage}\n", flush=True)
            subprocess.run([find(name), "--help"], check=False)
            return 0 if argv else 2
        return subprocess.run([find(name), *before, *argv], check=False).returncode
    except OSError as error:
        print(f"torch-backend {command}: {error}", file=sys.stderr)
        return 2
