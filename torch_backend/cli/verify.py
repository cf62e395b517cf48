"""The command `verify`: holds a plugin's file to the contract of plugin_ops.def, with the conformance suite hal-cts.

The suite is a program of its own that needs neither Python nor torch; this command finds it in the package and hands on all options.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def program() -> Path:
    """The installed suite. Raises FileNotFoundError with what to do when the package lacks it."""
    path = Path(__file__).resolve().parents[1] / "bin" / "hal-cts"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; install torch_backend again")
    return path


def main(argv) -> int:
    """Runs the suite on the plugin `argv[0]`; the suite's exit code, or 2 for wrong usage."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: torch-backend verify PATH.so [options of hal-cts]\n", flush=True)
        subprocess.run([program(), "--help"], check=False)
        return 0 if argv else 2
    plugin = [] if argv[0].startswith("--") else ["--plugin", argv[0]]
    try:
        return subprocess.run([program(), *plugin, *(argv[1:] if plugin else argv)], check=False).returncode
    except (OSError, FileNotFoundError) as error:
        print(f"torch-backend verify: {error}", file=sys.stderr)
        return 2
