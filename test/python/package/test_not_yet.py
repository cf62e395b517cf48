"""What README says is not there yet: asking for it is an error that names it, and never something else without a word."""

import re
import socket
from pathlib import Path

import pytest
import torch


def test_distributed_training_is_refused(device, run_python):
    assert torch.distributed.is_available()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = f"""
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=0, world_size=1)
        for run in (lambda: dist.all_reduce(torch.ones(3, device="fake")),
                    lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to("fake"))):
            try:
                run()
                print("it ran")
            except Exception as error:
                print(type(error).__name__, str(error).splitlines()[0])
        dist.destroy_process_group()
    """
    said = run_python(script, TORCH_BACKEND="fake").stdout.splitlines()
    assert len(said) == 2 and all("No backend type associated with device type fake" in line for line in said), said


README = (Path(__file__).resolve().parents[3] / "README.md").read_text()
TO_COME = re.findall(r"`(\w+)`", re.search(r"((?:`\w+`(?:, | and )?)+) (?:are|is) to come", README)[1])


@pytest.mark.parametrize("name", TO_COME)
def test_a_plugin_that_is_to_come_is_not_there_and_a_request_says_so(name, run_python):
    done = run_python(f"import torch, torch_backend; torch_backend.use({name!r})", check=False, HAL_PLUGIN_PATH="")
    assert done.returncode == 1 and name in done.stderr.splitlines()[-1], done.stderr
