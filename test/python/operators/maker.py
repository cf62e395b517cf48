"""Runs programs on the device of the maker plugin (test/hal/plugins/maker*.c), and reads the calls that its operators
logged."""

import json
from pathlib import Path

import pytest

import torch_backend

BOOL, BFLOAT16, FLOAT32, FLOAT16, INT64, INT8 = 11, 15, 6, 5, 4, 1
BASE = Path(torch_backend.__file__).parent / "plugins" / "libhal_fake.so"

PREAMBLE = """
import torch, torch_backend
from torch_backend.fallback import strict
torch.manual_seed(0)

def same(ours, theirs, **tolerance):
    ours, theirs = (x if isinstance(x, (tuple, list)) else (x,) for x in (ours, theirs))
    for a, b in zip(ours, theirs):
        assert a.device.type == "maker" and a.dtype == b.dtype and a.stride() == b.stride(), (a.dtype, b.dtype, a.stride(), b.stride())
        torch.testing.assert_close(a.cpu(), b, **tolerance)
"""


@pytest.fixture
def run(run_python, build_plugin, tmp_path):
    """Runs a program on the plugin's device; returns the calls that its operators logged."""

    def run_program(program, **settings):
        log = tmp_path / "calls"
        log.unlink(missing_ok=True)
        run_python(PREAMBLE + program, TORCH_BACKEND=build_plugin("maker"), HAL_ALLOW_UNSAFE_PLUGINS="1",
                   MAKER_BASE=BASE, MAKER_LOG=log, HAL_FAKE_ASYNC="0", **settings)  # fmt: skip
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    return run_program


def tensor(dtype, sizes, strides):
    return {"dtype": dtype, "sizes": list(sizes), "strides": list(strides)}
