"""The command line: exit codes, JSON, and remedies for errors."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm_interpreter

COMMAND = [sys.executable, "-P", "-m", "torch_backend"]


def command(*arguments, **settings):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_BACKEND"))}
    environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    return warm_interpreter.run([*COMMAND, *arguments], env={**environment, **settings}, timeout=120)


@pytest.mark.parametrize("arguments", [["--help"], ["info", "--help"], ["doctor", "--help"], ["smi", "--help"], ["coverage", "--help"], ["demo", "--help"]])
def test_help_explains(arguments):
    done = command(*arguments)
    assert done.returncode == 0 and "usage:" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["info", "--nonsense"], ["coverage", "--kind", "nonsense"]])
def test_wrong_usage_exits_with_2(arguments):
    done = command(*arguments)
    assert done.returncode == 2 and "usage:" in done.stderr


@pytest.mark.parametrize("arguments", [["demo", "--picture"], ["upstream", "test_x.py", "--json"], ["comm", "simulate", "--plot"], ["verify", "fake", "--json"],
                                       ["verify", "fake", "--junit"], ["verify", "fake", "--report"]], ids=" ".join)  # fmt: skip
def test_a_file_that_cannot_be_written_is_reported_before_the_work(arguments, tmp_path):
    missing = tmp_path / "missing" / "file"
    done = command(*arguments, str(missing))
    assert done.returncode == 2 and f"{missing} cannot be written: " in done.stderr, done.stderr
    assert "create" in done.stderr and "choose another file" in done.stderr
    assert "Traceback" not in done.stderr and "passed" not in done.stdout


def test_the_folder_for_cmake_is_one_line_however_narrow_the_terminal():
    done = command("--cmake-dir", COLUMNS="20")
    (folder,) = done.stdout.splitlines()
    assert done.returncode == 0 and os.path.isfile(os.path.join(folder, "torch_backend_hal-config.cmake"))


def test_doctor_finds_nothing_wrong_with_a_good_installation():
    done = command("doctor", "--json", TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2", HAL_OPENCL_DEVICE="cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    findings = json.loads(done.stdout)
    assert {"torch's version", "plugins", "fake:0", "fake:1"} <= {finding["check"] for finding in findings}
    assert not any(finding["problem"] for finding in findings)
    assert "fake:1 has driver 0.1.0" in [finding["check"] for finding in findings]


@pytest.mark.parametrize("settings, check, word", [
    ({"TORCH_BACKEND": "nonsense"}, "plugins", "nonsense"),
    ({"TORCH_BACKEND": "fake", "HAL_PLUGIN_PATH": "relative"}, "HAL_PLUGIN_PATH", "not absolute"),
    ({"TORCH_BACKEND": "fake", "HAL_PLUGINPATH": "/opt"}, "settings", "HAL_PLUGINPATH"),
    ({"TORCH_BACKEND": "fake", "HAL_LAYERS": "fault", "HAL_FAKE_MEMORY": "1"}, "fake:0", ""),
])  # fmt: skip
def test_doctor_names_the_problem_and_a_cure(settings, check, word):
    done = command("doctor", "--json", **settings)
    assert done.returncode == 1, done.stdout
    (finding,) = [finding for finding in json.loads(done.stdout) if finding["check"] == check]
    assert word in finding["problem"] + finding["cure"] and finding["problem"] and finding["cure"]


def test_doctor_finds_no_problem_if_no_plugin_was_requested():
    done = command("doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    findings = json.loads(done.stdout)
    assert not any(finding["problem"] or finding["cure"] for finding in findings)
    assert sum("none is active" in finding["check"] and "TORCH_BACKEND=fake" in finding["check"] for finding in findings) == 1
    text = command("doctor").stdout
    assert text.count("PROBLEM") == 0 and text.splitlines()[0] == "no problems; no plugin is active"


def test_doctor_prints_its_verdict_and_the_problems_first():
    assert command("doctor", TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2").stdout.splitlines()[0] == "no problems: fake works, 2 devices"
    first, second, third, *others = command("doctor", TORCH_BACKEND="fake", HAL_NONE="1", TORCH_BACKEND_NONE="1").stdout.splitlines()
    assert (first, second[:8], third[:15]) == ("1 problem", "PROBLEM ", "         cure: ")
    assert all(line.startswith("ok  ") for line in others) and "HAL_NONE" in second


def other_backend(folder, name):
    """A package that PyTorch loads automatically; with a name it uses the device type."""
    (folder / "other_backend.py").write_text(f"def load():\n    import torch\n    {f'torch.utils.rename_privateuse1_backend({name!r})' if name else 'pass'}\n")
    metadata = folder / "other_backend-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-backend\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nother_backend = other_backend:load\n")
    return folder


@pytest.mark.parametrize("name, code", [("", 0), ("other", 1)])
def test_doctor_minds_another_backend_that_takes_the_device_type(tmp_path, name, code):
    done = command("doctor", "--json", PYTHONPATH=str(other_backend(tmp_path, name)))
    (finding,) = [finding for finding in json.loads(done.stdout) if finding["check"].startswith("other backends")]
    assert done.returncode == code and bool(finding["problem"]) == bool(name) and "other_backend" in finding["problem"] + finding["check"]


def test_doctor_knows_the_settings_of_installed_plugins_that_are_not_active(build_plugin):
    folder = str(build_plugin("five").parent)
    done = command("doctor", TORCH_BACKEND="fake", HAL_CUDA_NVRTC="1", HAL_NPU_DEVICE="0", HAL_FIVE_COLOR="red", HAL_PLUGIN_PATH=folder)
    assert done.returncode == 0, done.stdout
    assert "HAL_SIX_COLOUR" in command("doctor", TORCH_BACKEND="fake", HAL_SIX_COLOUR="red", HAL_PLUGIN_PATH=folder).stdout


def test_info_describes_driver_and_architecture_of_each_device():
    done = command("info", "--json", TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2")
    assert done.returncode == 0, done.stdout + done.stderr
    _, second = json.loads(done.stdout)["devices"]
    assert second["driver_version"] == "0.1.0" and second["architecture"] == platform.machine() and second["partition_index"] == -1
    assert f"  driver version 0.1.0, architecture {platform.machine()}\n" in command("info", TORCH_BACKEND="fake").stdout


def test_smi_reports_the_sensors_of_a_device_and_omits_missing_ones():
    done = command("smi", "--json", TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2", HAL_FAKE_MEMORY="1000000000")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = json.loads(done.stdout)
    assert first["sensors"] == second["sensors"] == {"memory_used": {"value": 0, "unit": "bytes"}}
    assert first["device"] == "fake:0" and first["total_memory"] == 1000000000 and first["processes"] == first["problems"] == []
    done = command("smi", TORCH_BACKEND="fake")
    heading, row = done.stdout.splitlines()
    assert heading.split() == ["device", "name", "memory"] and row.startswith("fake:0") and "0 MiB of" in row


def test_doctor_finds_a_folder_that_others_may_write_to(tmp_path):
    tmp_path.chmod(0o777)
    done = command("doctor", TORCH_BACKEND="fake", HAL_PLUGIN_PATH=str(tmp_path))
    assert done.returncode == 1 and f"chmod go-w {tmp_path}" in done.stdout


def test_coverage_counts_every_operator():
    done = command("coverage", "--json", TORCH_BACKEND="fake")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    operators = document["operators"]
    assert sum(document["counts"][kind] for kind in ("native", "composite", "fallback", "unsupported")) == len(operators) > 2500
    assert operators["add.Tensor"] == "native" and operators["mm"] == "native"
    assert operators["reshape"] == "composite" and operators["linalg_eig"] == "fallback"


def test_coverage_of_chosen_operators():
    done = command("coverage", "add", "mm.out", TORCH_BACKEND="fake")
    assert done.returncode == 0 and "add.Tensor" in done.stdout and "mm.out" in done.stdout and "mul.Tensor" not in done.stdout
    done = command("coverage", "nonsense", TORCH_BACKEND="fake")
    assert done.returncode == 1 and "nonsense" in done.stderr


def test_coverage_needs_a_plugin():
    done = command("coverage")
    assert done.returncode == 1 and "TORCH_BACKEND=fake" in done.stderr


def test_doctor_knows_every_setting_of_the_documents(build_plugin):
    """Also the settings of an active plugin, HAL_<NAME>_*."""
    text = (Path(__file__).resolve().parents[3] / "docs/settings.md").read_text()
    known = set(re.findall(r"^- `((?:HAL|TORCH_BACKEND)[A-Z_]*)`", text, re.M))
    assert len(known) >= 10
    from torch_backend.cli import doctor

    assert known == set(doctor._SETTINGS)
    five = str(build_plugin("five"))
    done = command("doctor", "--json", TORCH_BACKEND=five, HAL_FIVE_COLOR="red", HAL_ALLOW_UNSAFE_PLUGINS="1", HAL_PLUGIN_TRIAL="5")
    (finding,) = [finding for finding in json.loads(done.stdout) if finding["check"] == "settings"]
    assert finding["problem"] == "", finding


def test_a_plugin_that_is_only_not_requested_is_not_reported():
    done = command("info")
    assert done.returncode == 0 and "problem" not in done.stdout and "fake is used on request only" in done.stdout
    found = json.loads(command("info", "--json").stdout)
    assert found["problems"] == []
    # their hardware is not on each machine
    skipped = [line for line in found["skipped"] if not any(f" {name}, probe: " in line for name in ("npu", "nvgpu"))]
    assert all(" is used on request only" in line for line in skipped)
    assert sum("libhal_fake" in sentence for sentence in found["skipped"]) == 1


def test_the_commands_run_inside_a_clone():
    """The folder of the sources has the package's name and is not a package: Python finds the installed one."""
    clone = Path(__file__).resolve().parents[3]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_"))}
    tensor = "import torch, torch_backend; torch_backend.use('fake'); print(torch.ones(2, device='fake'))"
    files = "import lazy_tensor_core; print(torch_backend.__file__); print(lazy_tensor_core.__file__)"
    for folder in (clone, clone / "torch_backend"):
        for arguments in (["-m", "torch_backend", "info"], ["-c", f"{tensor}; {files}"]):
            done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0 and done.stdout, done.stderr
        assert not any(Path(line).is_relative_to(clone / "torch_backend") for line in done.stdout.splitlines())
