"""wheel.py --torch VERSION --folder DIR DIST: installs a wheel and a torch into a fresh environment, and uses the device.

DIST is a folder of wheels, of which pip installs the one for this Python. The script runs `torch-backend doctor`, the demo,
and a plugin that `torch-backend new-plugin` writes, outside the source tree and without the variables of the caller's
environment. The exit code is 0 only if all of them succeed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = """
set -eux
torch-backend info
TORCH_BACKEND=fake torch-backend doctor
TORCH_BACKEND=fake python -m torch_backend.demo --quiet
torch-backend new-plugin acme
cd acme
cmake -S . -B build
cmake --build build
torch-backend verify build/libhal_acme.so
TORCH_BACKEND=$PWD/build/libhal_acme.so python -m torch_backend.demo --quiet
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("dist", type=Path)
    options = parser.parse_args()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) or name in ("HOME", "LANG")}
    environment = {**kept, "PATH": f"{folder}/bin:/usr/bin:/bin"}
    packages = [f"torch=={options.torch}", "-r", str(ROOT / "requirements/demo.txt")]
    ours = ["--no-index", "--no-deps", "--find-links", str(options.dist.resolve()), "torch_backend"]
    for arguments in (packages, ours):
        subprocess.run([str(folder / "bin/python"), "-m", "pip", "install", "-q", *arguments], env=environment, check=True)
    (folder / "work").mkdir()
    return subprocess.run(["bash", "-c", STEPS], cwd=folder / "work", env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
