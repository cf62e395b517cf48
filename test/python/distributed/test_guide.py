"""The programs of docs/distributed.md run under torchrun."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs/distributed.md"
PROGRAMS = re.findall(r"<!-- test: torchrun -->\n```python\n(.*?)```", GUIDE.read_text(), re.S)


def test_the_guide_has_programs():
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_program_of_the_guide(number, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(PROGRAMS[number])
    settings = {**os.environ, "TORCH_BACKEND": "fake", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program],
        env=settings, cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search("rank 0.*loss", done.stdout) and re.search("rank 1.*loss", done.stdout), done.stdout
