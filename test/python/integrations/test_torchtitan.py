"""torchtitan's Trainer trains its debug model with two processes: its losses and norms of gradients are those of the same program on the CPU with Gloo. titan.py has it."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).with_name("titan.py")
STEPS = 20
# Without enable_cpu_offload: torch restores the CPU's generator after each random operator of a DTensor of another
# device's mesh, so nn.init.trunc_normal_ of torch 2.13 rejects the same numbers forever, on every accelerator.
PARALLEL = {
    "fsdp2": "--parallelism.data_parallel_shard_degree 2",
    "ddp": "--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1",
    "tensor": "--parallelism.tensor_parallel_degree 2",
    "pipeline": "--parallelism.pipeline_parallel_degree 2",
    "checkpointing": "--parallelism.data_parallel_shard_degree 2 --activation_checkpoint.mode full",
}
COMMON = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "NODE_RANK": "0"}
CPU = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchtitan") is None, reason="torchtitan is not installed: make test-integrations")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def run(ranks, arguments, folder, **settings):
    """Runs the program, as torchrun does. Returns what each rank wrote."""
    environment = {name: value for name, value in os.environ.items() if name not in ("TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_BACKEND")}
    environment.update(COMMON, MASTER_PORT=free_port(), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), **settings)
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", PROGRAM, *arguments.split()], cwd=folder, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        written = [process.communicate(timeout=400) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert {process.returncode for process in processes} == {0}, "\n".join(f"---- {out[-1500:]}\n{errors[-3000:]}" for out, errors in written)
    return [out for out, _ in written]


def arguments(folder, results):
    return (
        f"--model.flavor debugmodel --model.hf_assets_path {folder}/tokenizer --training.dataset_path {folder}/texts --training.seq_len 64 "
        f"--training.local_batch_size 4 --training.steps {STEPS} --training.mixed_precision_param float32 --metrics.log_freq 1 --lr_scheduler.warmup_steps 2 "
        f"--optimizer.implementation foreach --checkpoint.enable --job.dump_folder {folder}/{results}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Has a tokenizer, a text, and a checkpoint of step 0, made by one process on the CPU: both programs start with its weights."""
    folder = tmp_path_factory.mktemp("titan")
    run(1, f"files {folder}", folder, **CPU)
    run(1, arguments(folder, "seed") + " --checkpoint.create_seed_checkpoint", folder, **CPU)
    assert (folder / "seed/checkpoint/step-0/.metadata").exists()
    return folder


def losses(name, folder, results, **settings):
    """Returns a row of [average, greatest loss, norm of gradients] for each step, of the last rank: of a pipeline, only the last has losses."""
    command = f"{arguments(folder, results)} --checkpoint.initial_load_path {folder}/seed/checkpoint/step-0 --checkpoint.load_only {PARALLEL[name]}"
    found = json.loads(run(2, command, folder, **settings)[-1].strip().splitlines()[-1])
    assert len(found) == STEPS
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("name", PARALLEL)
def test_torchtitans_losses_are_those_of_the_cpu_with_gloo(name, folder):
    theirs = losses(name, folder, f"{name}-cpu", **CPU)
    ours = losses(name, folder, f"{name}-device", TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2")
    assert ours.isfinite().all() and ours[-1, 0] < ours[0, 0]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
