"""The features of torch.compile on the device as one matrix: each case of cases.py on each kind of device, compared
with the CPU's eager mode.

The devices are `fake` (kernels on the host), `fake` with protected memory and the plugin of five functions (operators
one by one), and OpenCL (kernels from source). `make test` runs the first column and two cases on each other device,
`make test-full` all.
"""

import json
from pathlib import Path

import cases
import driver_scripts
import pytest

import torch_backend

SOME = ["cond", "Adam, foreach=True"]  # arguments that inductor passes to a device's code in parts, and in place
TEMPLATE = Path(torch_backend.__file__).parent / "libhal_template.so"


# AdamW is a variant of Adam; SGD with foreach=True and Adam with both have the paths of SGD with foreach=False.
SLOW = {"AdamW, foreach=True", "AdamW, foreach=False", "SGD, foreach=False"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in cases.CASES])
def test_kernels_on_the_host(device, name):
    cases.judge(name, device)


def settings_of(column, tmp_path_factory):
    if column == "protected":
        return "fake", {"TORCH_BACKEND": "fake", "HAL_FAKE_PROTECT": "1"}
    if column == "five functions":
        return "template", {"TORCH_BACKEND": str(TEMPLATE), "HAL_ALLOW_UNSAFE_PLUGINS": "1"}
    return "ocl", driver_scripts.opencl_kernels(tmp_path_factory, HAL_OPENCL_MEMORY="buffer")


COLUMNS = ["protected", "five functions", "opencl"]


def check(column, folder, tmp_path_factory, run_python, names):
    """Runs cases on a device in another process, which stores its compiled code in the folder."""
    device, settings = settings_of(column, tmp_path_factory)
    script = f"import sys; sys.path.insert(0, {str(Path(cases.__file__).parent)!r})\nimport torch_backend, cases\ncases.main({device!r}, *{names!r})"
    done = run_python(script, timeout=900, TORCHINDUCTOR_CACHE_DIR=folder / "inductor", **settings)
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["judged"] == len(names or cases.CASES)
    assert not outcome["failures"], "\n".join(f"{name}: {text}" for name, text in outcome["failures"].items())


@pytest.mark.parametrize("column", COLUMNS)
def test_some_cases_on_other_devices(column, tmp_path, tmp_path_factory, run_python):
    """In a second process on protected memory, the operators that a graph of the cache calls under the project's names
    exist, too."""
    for _ in range(2 if column == "protected" else 1):
        check(column, tmp_path, tmp_path_factory, run_python, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
def test_all_cases_on_other_devices(column, tmp_path, tmp_path_factory, run_python):
    check(column, tmp_path, tmp_path_factory, run_python, [])
