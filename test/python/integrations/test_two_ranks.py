"""Programs with accelerate, transformers, Lightning and DeepSpeed that train with two processes, compared with the same program on the CPU with Gloo.
two_ranks.py has them."""

import functools
import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).with_name("two_ranks.py")
PROGRAMS = [
    ("accelerate", "accelerate_ddp"), ("accelerate", "accelerate_fsdp2"), ("transformers", "trainer_ddp"), ("transformers", "trainer_fsdp2"),
    ("lightning", "lightning_ddp"), ("lightning", "lightning_fabric"), ("deepspeed", "deepspeed 1"), ("deepspeed", "deepspeed 2"),
    ("deepspeed", "deepspeed 3"),
]  # fmt: skip
COMMON = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def run(program, folder, **settings):
    """Runs a program as two ranks, as torchrun does. Returns its losses."""
    environment = {name: value for name, value in os.environ.items() if name not in ("TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_BACKEND")}
    environment.update(COMMON, MASTER_PORT=free_port(), **settings)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", PROGRAM, *program.split()], cwd=folder, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        written = [rank.communicate(timeout=400) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(f"---- {out[-1500:]}\n{errors[-3000:]}" for out, errors in written)
    return torch.tensor(json.loads(written[0][0].strip().splitlines()[-1]), dtype=torch.float64)


@functools.cache
def on_the_cpu(program, folder):
    return run(program, folder, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


@pytest.mark.parametrize("library, program", PROGRAMS, ids=[program.replace(" ", "_") for _, program in PROGRAMS])
def test_losses_are_those_of_the_cpu_with_gloo(library, program, tmp_path_factory):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: make test-integrations")
    folder = tmp_path_factory.mktemp("two_ranks")
    theirs = on_the_cpu("deepspeed 1" if library == "deepspeed" else program, folder)
    ours = run(program, folder, TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2")
    assert len(ours) == 20 and ours.isfinite().all()
    if library == "transformers":
        # Also norms of gradients. Steps of AdamW amplify the rounding: on the CPU float32 is 2e-5 from float64.
        torch.testing.assert_close(ours[:, 1], theirs[:, 1], rtol=1e-4, atol=1e-4)
        ours, theirs = ours[:, 0], theirs[:, 0]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def accelerate(folder, command, *arguments):
    """Runs a command of accelerate with the configuration that `accelerate config default` writes on a machine with two devices. Returns what it wrote."""
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed: make test-integrations")
    # `accelerate test` starts the program accelerate-launch.
    scripts = [Path(sys.executable).parent, Path(importlib.util.find_spec("accelerate").origin).parents[1] / "bin"]
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    environment.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", TORCH_BACKEND="fake", TORCH_BACKEND_INTEGRATIONS="1", HAL_FAKE_DEVICES="2",
                       PATH=os.pathsep.join([*map(str, scripts), os.environ["PATH"]]))  # fmt: skip
    configuration = folder / "default.json"

    def run_command(*words):
        line = [sys.executable, "-P", "-m", "accelerate.commands.accelerate_cli", *map(str, words)]
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
        return done.stdout

    run_command("config", "default", "--config_file", configuration)
    settings = json.loads(configuration.read_text())
    assert settings["num_processes"] == 2 and not settings["use_cpu"], settings
    configuration.write_text(json.dumps({**settings, "main_process_port": int(free_port())}))
    return run_command(command, "--config_file", configuration, *arguments)


def test_accelerate_test_passes_with_two_processes(tmp_path):
    written = accelerate(tmp_path, "test")
    assert "Num processes: 2" in written and "Device: fake:0" in written and "Device: fake:1" in written
    assert "Test is a success!" in written


def test_accelerate_launch_starts_a_program_that_trains_as_on_the_cpu(tmp_path):
    written = accelerate(tmp_path, "launch", PROGRAM, "accelerate_ddp")
    ours = torch.tensor(json.loads(written.strip().splitlines()[-1]), dtype=torch.float64)
    torch.testing.assert_close(ours, on_the_cpu("accelerate_ddp", tmp_path), rtol=1e-6, atol=1e-6)
