"""The other PyTorch versions of this machine, for tests of code that all of them share."""

import os
import sys
from pathlib import Path

import pytest

from torch_backend._builds import minor  # noqa: F401  ("2.13" of "2.13.0+cpu")


def pythons():
    """This interpreter and the others that have torch_backend with another torch: TORCH_BACKEND_TEST_PYTHONS, a list
    separated by colons. Skips the test when there is no other."""
    found = [Path(sys.executable), *(Path(path) for path in os.environ.get("TORCH_BACKEND_TEST_PYTHONS", "").split(":") if path)]
    if len(found) == 1:
        pytest.skip("only one torch is here; `make test-torch VERSION=...` brings another and names the others that it finds")
    return found
