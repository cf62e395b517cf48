"""The supported versions of PyTorch: one list, one folder for each, and an error message for all others."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from other_torches import pythons

import torch_backend
from torch_backend import _builds

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(torch_backend.__file__).parent


def window():
    """The oldest minor version and the first that is too new, of the requirement in pyproject.toml."""
    oldest, too_new = re.search(r'^dependencies = \["torch>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text(), re.M).groups()
    return oldest, too_new


def number(minor):
    return tuple(int(part) for part in minor.split("."))


def test_building_and_installing_require_the_same_versions():
    text = (ROOT / "pyproject.toml").read_text()
    assert re.findall(r'"torch([<>=][^"]*)"', text) == [">={},<{}".format(*window())] * 2


def test_make_builds_for_a_torch_of_the_window_and_wheels_for_all():
    pin = re.search(r"^torch==(\S+)", (ROOT / "requirements/torch.txt").read_text(), re.M)[1]
    versions = re.search(r"^TORCH_VERSIONS := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    minors = [_builds.minor(version) for version in versions]
    assert pin in versions and minors == sorted(set(minors), key=number)
    oldest, too_new = window()
    assert minors[0] == oldest and number(too_new) == (number(minors[-1])[0], number(minors[-1])[1] + 1)
    assert [number(minor)[1] for minor in minors] == list(range(number(oldest)[1], number(too_new)[1]))


def test_make_names_the_cure_of_a_missing_interpreter():
    done = subprocess.run(["make", "wheel", "PYTHON=python3.99"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "missing interpreter 'python3.99': install it with its headers and venv" in done.stderr
    other = subprocess.run(["make", "-n", "help", f"PYTHON={sys.executable}"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert other.returncode == 0, other.stderr


def test_the_extension_comes_from_the_folder_of_the_installed_torch():
    from torch_backend import _C

    assert Path(_C.__file__).parent == _builds.FOLDER / _builds.minor(torch.__version__)
    assert {path.name for path in _builds.FOLDER.iterdir()} == set(_builds.minors())
    for minor in _builds.minors():
        assert {path.name.partition(".")[0] for path in (_builds.FOLDER / minor).iterdir()} - {"__pycache__"} == {"_C", "include", "lib", "support"}


@pytest.mark.parametrize("version", ["2.12.1", "2.16.0a0+git1", "3.0.0", "1.13.1"])
def test_another_torch_gets_one_message_that_names_the_supported_ones(version):
    problem = _builds.problem(version)
    assert problem.startswith(f"torch {version} is installed") and _builds.listed(_builds.minors()) in problem
    assert "torch<{1},>={0}".format(*window()) in problem and "pip install" in problem


def test_versions_are_listed_as_people_do():
    assert [_builds.listed(names) for names in ([], ["2.13"], ["2.13", "2.14"], ["2.13", "2.14", "2.15"])] == [
        "", "2.13", "2.13 and 2.14", "2.13, 2.14 and 2.15"]  # fmt: skip


def test_minors_are_in_the_order_of_their_numbers(tmp_path, monkeypatch):
    for name in ("2.15", "2.9", "3.0", "__pycache__"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(_builds, "FOLDER", tmp_path)
    assert _builds.minors() == ["2.9", "2.15", "3.0"]


# ---- one plugin for all ----
SCRIPT = """
import json, sys, torch, torch_backend
torch_backend.use(sys.argv[1])
plugin, = torch_backend.plugins()
torch.manual_seed(1)
device = torch_backend.device_name()
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.linspace(-1, 1, 64 * 8).reshape(64, 8).to(device)
losses = []
for step in range(5):
    optimizer.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"torch": torch.__version__, "path": plugin.path, "losses": losses}))
"""


@pytest.mark.parametrize("plugin", ["fake", "template"])
def test_one_plugin_binary_runs_under_every_torch(plugin, build_plugin, tmp_path):
    """Built once, with this package's headers: the same file produces the same losses with each PyTorch, within
    rounding."""
    import json

    interpreters = pythons()
    path = tmp_path / f"libhal_{plugin}.so"
    if plugin == "fake":
        shutil.copy(PACKAGE / "plugins/libhal_fake.so", path)
    else:
        shutil.copy(build_plugin("template", ROOT / "plugins/template/plugin.c"), path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAL_", "TORCH_BACKEND"))}
    results = {}
    for python in interpreters:
        done = subprocess.run([python, "-P", "-c", SCRIPT, path], env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, f"{python}\n{done.stdout}\n{done.stderr}"
        result = json.loads(done.stdout.splitlines()[-1])
        assert result["path"] == str(path)
        results[_builds.minor(result["torch"])] = result["losses"]
    assert len(results) == len(interpreters), f"expected a torch of its own for each of {interpreters}, found {sorted(results)}"
    first = next(iter(results.values()))
    assert first[-1] < first[0]
    for losses in results.values():
        assert losses == pytest.approx(first, rel=1e-6)


# ---- docs/versions.md ----
PAGE = (ROOT / "docs/versions.md").read_text()


def test_the_page_names_the_versions_that_are_supported():
    minors = [_builds.minor(version) for version in re.search(r"^TORCH_VERSIONS := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()]
    sentence = re.search(r"supports torch (.*?), on Python", PAGE)[1]
    assert re.findall(r"\d+\.\d+", sentence) == minors


COMMANDS = re.findall(r"^make .*?(?= +#|$)", PAGE, re.M) + re.findall(r"`((?:\w+=\S+ )*make [^`]+)`", PAGE)


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_the_commands_of_the_page_are_targets_of_the_makefile(command):
    """Without the setup of other versions of PyTorch, of 6 GB each."""
    done = subprocess.run(command.replace("make ", "make --dry-run --always-make ", 1), shell=True, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr
    for version in re.findall(r"(?:TORCH|VERSION)=(\S+)", command):
        assert f".venv-torch-{version}" in done.stdout


def test_the_command_that_the_page_names_prints_the_versions():
    done = subprocess.run([sys.executable, "-P", "-m", "torch_backend", "info"], capture_output=True, text=True, timeout=300)
    assert "`torch-backend info`" in PAGE
    assert f"built for torch {_builds.listed(_builds.minors())}" in done.stdout, done.stdout + done.stderr


def test_only_one_file_depends_on_the_version_of_torch():
    csrc = ROOT / "csrc"
    sources = [path for path in csrc.rglob("*") if path.suffix in (".cpp", ".h")]
    assert [path.name for path in sources if re.search(r"\bTORCH_VERSION_(MAJOR|MINOR)\b", path.read_text())] == ["compat.h"]
    assert "`core/compat.h`" in PAGE
