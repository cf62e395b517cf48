"""The programs of docs/distributed.md run under torchrun: one after the other in the same two processes, which takes less time."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs/distributed.md"
PROGRAMS = re.findall(r"<!-- test: torchrun -->\n```python\n(.*?)```", GUIDE.read_text(), re.S)
NAMES = ["data_parallel", "sharded", "tensor_parallel", "pipeline", "checkpoint"]
RUN_ALL = """
import runpy, sys
for name in sys.argv[1:]:
    print(f"---- {name}", flush=True)
    runpy.run_path(f"{name}.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the ranks print, by the program. The last one continues from the checkpoint of the one before."""
    folder = tmp_path_factory.mktemp("guide")
    programs = {**dict(zip(NAMES, PROGRAMS)), "continued": PROGRAMS[-1].replace("step < 10", "step < 15")}
    for name, text in {**programs, "run_all": RUN_ALL}.items():
        (folder / f"{name}.py").write_text(text)
    settings = {**os.environ, "TORCH_BACKEND": "fake", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--redirects", "3", "--log-dir", "logs",
               "run_all.py", *programs]  # fmt: skip
    done = subprocess.run(command, env=settings, cwd=folder, capture_output=True, text=True, timeout=400)
    outputs = [file.read_text() for file in sorted((folder / "logs").rglob("stdout.log"))]
    assert done.returncode == 0, done.stderr + "".join(outputs) + "".join(file.read_text() for file in (folder / "logs").rglob("stderr.log"))
    assert len(outputs) == 2
    return {name: [re.search(f"---- {name}\n(.*?)(?=---- |$)", text, re.S)[1] for text in outputs] for name in programs}


def test_the_guide_has_programs():
    assert len(PROGRAMS) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_program_of_the_guide(name, printed):
    for rank, text in enumerate(printed[name]):
        assert re.search(f"rank {rank}.*loss", text), text


def test_the_program_with_checkpoints_continues(printed):
    for before, after in zip(printed["checkpoint"], printed["continued"]):
        assert "step 5," in before and "step 10," in before, before
        assert "step 15," in after and "step 5," not in after and "step 10," not in after, after
