"""A plugin of five functions, built out of tree with the installed SDK: each operator runs, and the demo's network
trains."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torch_backend

TEMPLATE = Path(__file__).resolve().parents[3] / "plugins" / "template"
CMAKE_DIR = subprocess.run([sys.executable, "-P", "-m", "torch_backend", "--cmake-dir"], capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """The template built as its README describes; its memory is protected so that a host access is detected."""
    folder = tmp_path_factory.mktemp("five")
    source, build = folder / "template", folder / "build"
    shutil.copytree(TEMPLATE, source)
    for command in (["cmake", "-S", source, "-B", build, f"-Dtorch_backend_hal_DIR={CMAKE_DIR}"], ["cmake", "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return build / "libhal_template.so"


@pytest.fixture
def run(plugin, run_python):
    def run(script, **settings):
        return run_python(script, TORCH_BACKEND=plugin, HAL_ALLOW_UNSAFE_PLUGINS="1", **settings)

    return run


TRAINING = """
import json, torch
import torch_backend
from torch_backend import demo

torch.manual_seed(0)
data, network = demo.load_data(torch, 0), demo.build_network(torch)
args = demo.parse_arguments(["--epochs", "4", "--quiet"])
ours, cpu = (demo.train(torch, network, data, args, torch.device(name)) for name in ("template:0", "cpu"))
print(json.dumps({"ours": ours.losses, "cpu": cpu.losses, "device": ours.parameter_device, "accuracy": ours.accuracy,
                  "fallbacks": {row.op: row.count for row in torch_backend.fallback.report()}}))
"""


def test_the_demos_network_trains_with_the_cpus_losses(run):
    summary = json.loads(run(TRAINING, timeout=300).stdout)
    assert summary["device"] == "template:0"
    assert len(summary["ours"]) == len(summary["cpu"]) == 92
    assert summary["ours"][0] > 2 and summary["ours"][-1] < 1 and summary["accuracy"] > 0.6  # it has learnt something
    assert summary["ours"] == pytest.approx(summary["cpu"], rel=1e-4)
    assert {"aten::convolution_overrideable", "aten::addmm.out"} & set(summary["fallbacks"])  # by staged copies


def test_basic_programs(run):
    done = run(
        """
        import io, torch
        import torch_backend
        x = torch.randn(3, 4, device="template")
        y = x.view(4, 3).t()
        y[1:].zero_()
        z = torch.cat([x, x]).sort(1)[0]
        print(x.sum().item() == x.cpu().sum().item(), (y[1:] == 0).all().item(), z.shape, torch.equal(z.cpu(), torch.cat([x.cpu()] * 2).sort(1)[0]))
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        print(torch.load(file).device, x)
        try:
            torch.linalg.cholesky(-torch.eye(2, device="template"))
        except RuntimeError as error:
            print(type(error).__name__)
        """
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "True True torch.Size([6, 4]) True"
    assert lines[1].startswith("template:0 tensor(") and "device='template:0'" in done.stdout
    assert lines[-1] == "_LinAlgError"


def test_strict_mode_forbids_the_staged_fallback_too(run):
    done = run(
        """
        import torch
        import torch_backend
        x = torch.ones(3, device="template")
        with torch_backend.fallback.strict():
            try:
                x.cumsum(0)
            except NotImplementedError as error:
                print(error)
        """
    )
    assert "aten::cumsum" in done.stdout and "fallback.strict(False)" in done.stdout


# ---- the operator database ----
OPINFO = Path(__file__).resolve().parents[2] / "opinfo" / "run.py"


def run_database(tmp_path, *arguments, **settings):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_BACKEND", "PYTORCH_ALLOC"))}
    command = [sys.executable, str(OPINFO), "--mode", "inline", "--json", str(tmp_path / "outcomes.json"), *map(str, arguments)]
    done = subprocess.run(command, cwd=tmp_path, env={**kept, **settings}, capture_output=True, text=True, timeout=900)
    return done, json.loads((tmp_path / "outcomes.json").read_text())


def test_every_entry_of_the_operator_database_runs(plugin, tmp_path):
    """Includes parts of composite operators on a device without kernels: indexing by several tensors, masks, results of
    unknown size."""
    done, outcomes = run_database(tmp_path, "--plugin", plugin, HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    # of torch 2.13's 677 entries for float32, 672 can be sampled
    assert sum(one["kind"] == "pass" for one in outcomes) >= 670


INDEXING = ("__getitem__", "index_put", "masked_select", "masked_scatter", "nonzero", "_unsafe_masked_index", "take", "unique",
            "scatter", "nn.functional.embedding_bag", "isin", "histc")  # fmt: skip


def test_so_it_does_with_all_kernels_switched_off(tmp_path):
    entries = [argument for name in INDEXING for argument in ("--entry", name)]
    done, outcomes = run_database(tmp_path, *entries, TORCH_BACKEND="fake", HAL_DISABLE_OPS="*")
    assert {one["kind"] for one in outcomes} == {"pass"} and len(outcomes) == len(INDEXING), f"{done.stdout}\n{done.stderr}"


# ---- a plugin that offers each operator and declines each call: the fallback runs, and no operator loses its kernel
# ----
def test_some_entries_run_if_the_plugins_own_operators_decline(build_plugin, tmp_path):
    done, outcomes = run_database(tmp_path, "--plugin", build_plugin("declines_all"), "--every", 4, HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert sum(one["kind"] == "pass" for one in outcomes) >= 165


@pytest.mark.slow
def test_every_entry_runs_if_the_plugins_own_operators_decline(build_plugin, tmp_path):
    done, outcomes = run_database(tmp_path, "--plugin", build_plugin("declines_all"), HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert sum(one["kind"] == "pass" for one in outcomes) >= 670


def test_so_do_optimizers_and_the_scaler(build_plugin, run_python):
    done = run_python(
        """
        import torch
        import torch_backend
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
            ours, theirs = (torch.ones(3, device=device, requires_grad=True) for device in (torch_backend.device_name(), "cpu"))
            for x in (ours, theirs):
                x.grad = torch.arange(3.0).to(x.device)
                kind([x], lr=0.1, fused=True).step()
            torch.testing.assert_close(ours.detach().cpu(), theirs.detach())
        grad, found = torch.tensor([1.0, float("inf")], device=ours.device), torch.zeros(1, device=ours.device)
        torch._amp_foreach_non_finite_check_and_unscale_([grad], found, torch.tensor([0.5], device=ours.device))
        print(found.item(), grad.tolist(), torch.randperm(4, device=ours.device).sort()[0].tolist())
        """,
        TORCH_BACKEND=build_plugin("declines_all"), HAL_ALLOW_UNSAFE_PLUGINS="1",
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "1.0 [0.5, inf] [0, 1, 2, 3]"
