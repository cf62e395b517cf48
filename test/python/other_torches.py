"""The other PyTorch versions of this machine, for tests of code that all of them share."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_backend._builds import minor  # noqa: F401  ("2.13" of "2.13.0+cpu")

ROOT = Path(__file__).resolve().parents[2]


def pythons():
    """This interpreter and the others that have torch_backend with another torch: TORCH_BACKEND_TEST_PYTHONS, a list
    separated by colons. Skips the test when there is no other."""
    found = [Path(sys.executable), *(Path(path) for path in os.environ.get("TORCH_BACKEND_TEST_PYTHONS", "").split(":") if path)]
    if len(found) == 1:
        pytest.skip("only one torch is here; `make test-torch VERSION=...` brings another and names the others that it finds")
    return found


def make(*targets, timeout):
    """Runs `make` in the environment of this process's torch, so that it installs no other. Returns the completed
    process.
    """
    version = importlib.metadata.version("torch").split("+")[0]
    return subprocess.run(["make", *targets, f"TORCH={version}"], cwd=ROOT, capture_output=True, text=True, timeout=timeout)
