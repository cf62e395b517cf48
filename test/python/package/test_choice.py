"""The plugin that a process uses if it names none: on machines with NVIDIA's driver, with Level Zero's, with both, and
if PyTorch has its own accelerator; `doctor` reports the reason. The drivers are those of test/doubles."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import driver_scripts
import pytest

ROOT = Path(__file__).resolve().parents[3]


def doctor(folder, **settings):
    """Runs the command in a process that names no plugin; returns the names of its findings."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_BACKEND", "HAL_", "TORCH_DEVICE_BACKEND"))}
    environment.update(settings, HAL_CACHE_DIR=str(folder), POCL_CACHE_DIR=str(folder / "pocl"))
    done = subprocess.run([sys.executable, "-P", "-m", "torch_backend", "doctor", "--json"], env=environment, cwd=folder,
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    return [finding["check"] for finding in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def nvidia(tmp_path_factory):
    settings = driver_scripts.cuda_settings(tmp_path_factory.mktemp("kernels"))
    del settings["TORCH_BACKEND"]
    return {key: value for key, value in settings.items() if key != "HAL_CACHE_DIR"}


@pytest.fixture(scope="module")
def level_zero():
    if not driver_scripts.NPU_DRIVER.exists():
        pytest.skip(f"{driver_scripts.NPU_DRIVER} is not built; run `make test-c`, or name the driver in ZE_CPU_DRIVER")
    return {"ZE_ENABLE_ALT_DRIVERS": str(driver_scripts.NPU_DRIVER)}


def chosen(findings):
    (found,) = [check for check in findings if check.startswith("choice of ")]
    return found


def passed_by(findings):
    return " ".join(check for check in findings if check.startswith("skipped: "))


def test_nvidias_driver_is_sufficient_and_doctor_reports_why(nvidia, tmp_path):
    findings = doctor(tmp_path, **nvidia)
    assert chosen(findings) == ("choice of nvgpu: TORCH_BACKEND is not set, torch has no accelerator of its own, and 'nvgpu' is the first plugin "
                                "that finds its hardware")  # fmt: skip
    assert "nvgpu:0" in findings


def test_level_zeros_driver_is_sufficient_and_doctor_reports_the_skipped_plugins(level_zero, tmp_path):
    findings = doctor(tmp_path, **level_zero)
    if "libze_loader" in passed_by(findings):
        pytest.skip("the Level Zero loader is not installed (Debian: libze1)")
    assert chosen(findings).startswith("choice of npu: TORCH_BACKEND is not set, torch has no accelerator of its own, and 'npu'")
    assert "libcuda.so.1" in passed_by(findings) and "install NVIDIA's driver" in passed_by(findings)


@pytest.mark.slow
def test_with_both_one_is_chosen_and_an_environment_that_names_one_has_its_way(nvidia, level_zero, tmp_path):
    assert chosen(doctor(tmp_path, **nvidia, **level_zero)).startswith("choice of nvgpu: TORCH_BACKEND is not set")
    findings = doctor(tmp_path, **nvidia, **level_zero, TORCH_BACKEND="fake")
    assert chosen(findings) == "choice of fake: TORCH_BACKEND=fake requests it"


def test_where_torch_has_an_accelerator_of_its_own_none_is_looked_for(run_python, nvidia):
    run_python(
        """
        import torch
        torch.version.cuda = torch.version.hip = None  # of a torch that was built for XPU
        torch.accelerator.current_accelerator = lambda check_available=False: torch.device("xpu")
        import torch_backend
        from torch_backend import _registry
        assert not torch_backend.is_active() and torch_backend.errors() == []
        assert _registry.choice() == ("torch has its own accelerator, 'xpu', so plugins are not searched for hardware; "
                                        "TORCH_BACKEND=NAME chooses one"), _registry.choice()
        from torch_backend.cli import doctor
        assert doctor._choice()[0].check.startswith("choice of no plugin: torch has its own accelerator, 'xpu'")
        torch_backend.use("fake")  # which a program may still select
        assert _registry.choice() == "the program called torch_backend.use('fake')"
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD=0,
        **nvidia,
    )


def test_every_plugin_of_this_repository_is_in_the_package():
    """Except for the templates."""
    installed = {file.name for file in distribution("torch_backend").files or () if file.name.startswith("libhal_")}
    wanted = {f"libhal_{folder.name}.so" for folder in (ROOT / "plugins").iterdir() if (folder / "CMakeLists.txt").exists()}
    assert installed >= wanted - {"libhal_template.so", "libhal_threads.so"}, installed
