"""Commands that are separate programs, which need neither Python nor torch. They are part of the package and receive
all options.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def find(name: str) -> Path:
    """Returns the path of the installed program. Raises FileNotFoundError, with what to do, if the package lacks it."""
    path = Path(__file__).resolve().parents[1] / "bin" / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; install torch_backend again")
    return path


def run(command: str, name: str, usage: str, argv, before=()) -> int:
    """Runs the program with `before` and `argv`. Returns its exit code, or 2 for wrong usage."""
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print(f"usage: torch-backend {command} {usage}\n", flush=True)
            subprocess.run([find(name), "--help"], check=False)
            return 0 if argv else 2
        return subprocess.run([find(name), *before, *argv], check=False).returncode
    except OSError as error:
        print(f"torch-backend {command}: {error}", file=sys.stderr)
        return 2
