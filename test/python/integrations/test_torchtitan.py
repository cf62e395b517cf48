"""torchtitan's debug model with two ranks: its FSDP2 and tensor parallelism, compared with one rank. Nothing is patched.

torchtitan is installed into a separate folder without its dependencies, of which torchdata requires another torch.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "build" / "torchtitan"
LENGTH, STEPS = 64, 4
WORDS = [f"w{number}" for number in range(100)]
OPTIONS = ["--module", "llama3", "--config", "llama3_debugmodel", "--training.steps", STEPS, "--training.seq_len", LENGTH, "--training.global_batch_size", 2,
           "--training.local_batch_size", 1, "--training.mixed_precision_param", "float32", "--training.disable_cuda_graphs"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the debug model reads. All sequences are equal, so the losses do not depend on how many ranks share them."""
    made = tmp_path_factory.mktemp("torchtitan")
    assets = made / "tests" / "assets"
    (assets / "tokenizer").mkdir(parents=True)
    (assets / "c4_test").mkdir()
    special = [{"id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for number, name in enumerate(("<s>", "</s>"))]
    model = {"type": "WordLevel", "vocab": {word: number for number, word in enumerate(["<s>", "</s>", "<unk>", *WORDS])}, "unk_token": "<unk>"}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
                 "post_processor": None, "decoder": None, "model": model}  # fmt: skip
    (assets / "tokenizer" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (assets / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}))
    text = " ".join(WORDS[(7 * number) % 100] for number in range(LENGTH - 2))
    (assets / "c4_test" / "data.json").write_text("".join(json.dumps({"text": text}) + "\n" for _ in range(64)))
    return made


def losses(folder, ranks, *options):
    if not (FOLDER / "torchtitan").is_dir():
        pytest.skip("torchtitan is not installed: make test-integrations")
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    environment.update(TORCH_BACKEND="fake", HAL_FAKE_DEVICES=str(ranks), GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                       PYTHONPATH=os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(FOLDER)]))  # fmt: skip
    command = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, "-m", "torchtitan.train", *OPTIONS, *options]
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    text = re.sub(r"\x1b\[\d+m", "", done.stdout + done.stderr)
    found = [float(loss) for loss in re.findall(r"step: +\d+ +loss: +([\d.]+)", text)]
    assert len(found) >= STEPS, text[-3000:]
    return found[:STEPS]


@pytest.mark.slow
def test_the_debug_model_trains_with_two_ranks(folder):
    alone = losses(folder, 1)
    assert alone[-1] < alone[0] - 0.5, alone
    for options in (("--parallelism.data_parallel_shard_degree", 2), ("--parallelism.data_parallel_shard_degree", 1, "--parallelism.tensor_parallel_degree", 2)):
        assert losses(folder, 2, *options) == pytest.approx(alone, abs=1e-3), options
