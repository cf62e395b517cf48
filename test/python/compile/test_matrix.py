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


@pytest.mark.parametrize("name", cases.CASES)
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
    device, settings = settings_of(column, tmp_path_factory)
    script = f"import sys; sys.path.insert(0, {str(Path(cases.__file__).parent)!r})\nimport torch_backend, cases\ncases.main({device!r}, *{names!r})"
    done = run_python(script, timeout=900, TORCHINDUCTOR_CACHE_DIR=folder / "inductor", **settings)
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["judged"] == len(names or cases.CASES)
    assert not outcome["failures"], "\n".join(f"{name}: {text}" for name, text in outcome["failures"].items())


@pytest.mark.parametrize("column", COLUMNS)
def test_some_cases_on_other_devices(column, tmp_path, tmp_path_factory, run_python):
    check(column, tmp_path, tmp_path_factory, run_python, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
def test_all_cases_on_other_devices(column, tmp_path, tmp_path_factory, run_python):
    check(column, tmp_path, tmp_path_factory, run_python, [])


def test_code_of_the_cache_runs_in_another_process(tmp_path, tmp_path_factory, run_python):
    """The operators that a graph calls under the project's names exist in a process that compiles nothing."""
    for _ in range(2):
        check("protected", tmp_path, tmp_path_factory, run_python, SOME)
