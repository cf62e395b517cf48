"""`torch-backend new-plugin`: the project builds and passes its tests as generated, and the porting guide's commands
lead from it to a trained network. Invalid plugin names and folders that are not empty are refused. `verify` and
`new-plugin` do not need PyTorch."""

import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
import torch
import torch_backend
import yaml
from torch_backend import cli

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(torch_backend.__file__).parent
BIN = Path(sys.executable).parent


def run(*command, cwd, check=0, **environment):
    """Runs a command with only PATH in its environment; returns the completed process."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, env={"PATH": f"{BIN}:/usr/bin:/bin", **environment}, capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip
    assert done.returncode == check, f"{done.stdout}\n{done.stderr}"
    return done


def new_plugin(*arguments, cwd, check=0, **environment):
    return run(BIN / "torch-backend", "new-plugin", *arguments, cwd=cwd, check=check, **environment)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow  # the porting guide's commands below build such a project, run its tests and train
def test_the_generated_project_builds_and_passes_its_tests_in_under_a_minute(tmp_path):
    start = time.monotonic()
    new_plugin("acme_x", cwd=tmp_path)
    project = tmp_path / "acme_x"
    run("cmake", "-S", ".", "-B", "build", cwd=project)
    run("cmake", "--build", "build", cwd=project)
    done = run("ctest", "--test-dir", "build", "--output-on-failure", "-V", cwd=project)
    assert time.monotonic() - start < 60
    assert "100% tests passed, 0 tests failed out of 2" in done.stdout
    assert "level 1, basic functions: reached" in done.stdout and "trained 50 steps on acme_x" in done.stdout
    assert run(BIN / "torch-backend", "verify", "build/libhal_acme_x.so", cwd=project).stdout.count("FAIL") == 0


def test_the_projects_tests_fail_when_the_plugin_is_wrong(tmp_path):
    new_plugin("acme", cwd=tmp_path)
    project = tmp_path / "acme"
    source = project / "plugin.c"
    source.write_text(source.read_text().replace("memcpy(dst, src, size)", "memcpy(dst, src, size - (size > 100))"))
    run("cmake", "-S", ".", "-B", "build", cwd=project)
    run("cmake", "--build", "build", cwd=project)
    done = run("ctest", "--test-dir", "build", cwd=project, check=8)
    assert "0% tests passed, 2 tests failed" in done.stdout


def test_the_workflow_runs_commands_that_exist(tmp_path):
    """The steps of continuous integration: folders and targets of this project, and options of the command."""
    new_plugin("acme", cwd=tmp_path)
    steps = yaml.safe_load((tmp_path / "acme/.github/workflows/conformance.yml").read_text())["jobs"]["test"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert "cmake -S . -B build && cmake --build build" in commands and "ctest --test-dir build --output-on-failure" in commands
    (upstream,) = (command for command in commands if command.startswith("torch-backend upstream"))
    assert '"$PWD/build/libhal_acme.so"' in upstream
    tests = tmp_path / "acme/pytorch/test"
    tests.mkdir(parents=True)
    # Without PyTorch's files the step reaches the check of the files, which is the last one of the options.
    done = run("bash", "-c", upstream, cwd=tmp_path / "acme", check=2, TORCH=".".join(torch.__version__.split(".")[:2]))
    assert "pytorch/test/test_indexing.py does not exist" in done.stderr


def test_every_word_of_the_template_is_the_plugins_name(tmp_path):
    new_plugin("acme", "--directory", "some/where", cwd=tmp_path)
    written, template = contents(tmp_path / "some/where"), contents(ROOT / "plugins/template")
    assert {str(path) for path in written} == {str(path).replace("template", "acme") for path in template if "__pycache__" not in path.parts}
    assert not any(b"template" in text.lower() for text in written.values())
    assert oct((tmp_path / "some/where").stat().st_mode & 0o022) == "0o0"


@pytest.mark.parametrize("name, reason", [
    ("", "lower-case letters"), ("Acme", "lower-case letters"), ("acme2", "no digits"), ("acme-x", "lower-case letters"),
    ("../acme", "lower-case letters"), ("acme/x", "lower-case letters"), ("äcme", "lower-case letters"), ("acme\n", "lower-case letters"),
    ("a" * 32, "at most 31"), ("cudanon", "'cpu' or 'cuda'"), ("cpux", "'cpu' or 'cuda'"), ("nn", "torch.nn exists"), ("ones", "torch.ones exists"),
    ("xpu", "exists"), ("ideep", "device type"), ("class", "Python"), ("fake", "torch_backend"), ("opencl", "torch_backend"), ("threads", "torch_backend"),
    ("vulkan", "torch_backend"), ("pjrt", "torch_backend"),
    ("template", "torch_backend"), ("plugin", "CMake target"),
])  # fmt: skip
def test_a_name_that_cannot_be_is_refused_with_the_reason_and_nothing_is_written(tmp_path, monkeypatch, capsys, name, reason):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new-plugin", name]) == 2
    said = capsys.readouterr().err
    assert reason in said and f"'{name}'" in said
    assert list(tmp_path.iterdir()) == []


def test_a_name_whose_package_is_installed_is_refused(tmp_path):
    (tmp_path / "acme_plugin.py").write_text("")
    done = new_plugin("acme", cwd=tmp_path, check=2, PYTHONPATH=str(tmp_path))
    assert "acme_plugin is installed" in done.stderr


def test_nothing_is_ever_overwritten(tmp_path, capsys):
    folder, file, link = tmp_path / "folder", tmp_path / "file", tmp_path / "link"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    file.write_text("mine")
    link.symlink_to(tmp_path / "nowhere")
    for place in (folder, file, link):
        assert cli.main(["new-plugin", "acme", "--directory", str(place)]) == 1
        assert str(place) in capsys.readouterr().err
    assert contents(tmp_path) == {Path("file"): b"mine", Path("folder/mine"): b"mine"} and link.is_symlink()
    (folder / "mine").unlink()
    assert cli.main(["new-plugin", "acme", "--directory", str(folder)]) == 0  # an empty one is taken
    before = contents(folder)
    assert cli.main(["new-plugin", "acme", "--directory", str(folder)]) == 1
    assert contents(folder) == before


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    done = new_plugin("acme", "--directory", "file/acme", cwd=tmp_path, check=1)
    assert "file" in done.stderr and "Traceback" not in done.stderr


# ---- the porting guide ----


@pytest.fixture
def environment_of_its_own(tmp_path):
    """A virtual environment that sees this one's packages, so that installed files do not remain."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "outer.pth").write_text(f"{PACKAGE.parent}\n")
    return folder / "bin"


def test_the_porting_guides_commands_lead_from_new_plugin_to_a_trained_network(tmp_path, environment_of_its_own):
    text = (ROOT / "docs/porting.md").read_text()
    (commands,) = re.findall(r"<!-- test: new plugin -->\n```\w*\n(.*?)```", text, re.S)
    start = time.monotonic()
    done = run("bash", "-euxc", commands, cwd=tmp_path, PATH=f"{environment_of_its_own}:{BIN}:/usr/bin:/bin")
    assert time.monotonic() - start < 600
    assert "level 1, basic functions: reached" in done.stdout
    assert "100% tests passed" in done.stdout
    assert "acme:0" in done.stdout and "accuracy" in done.stdout  # of the demo
    (installed,) = environment_of_its_own.parent.glob("lib/python*/site-packages/acme_plugin/libhal_acme.so")
    assert installed.is_file()


# ---- without torch ----

BROKEN = {"missing": "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')", "broken": "raise OSError('libgomp.so.1: cannot open')"}


@pytest.mark.parametrize("how", BROKEN)
def test_verify_and_new_plugin_work_where_torch_cannot_be_imported(tmp_path, how):
    (tmp_path / "site/torch").mkdir(parents=True)
    (tmp_path / "site/torch/__init__.py").write_text(BROKEN[how])
    setting = {"PYTHONPATH": str(tmp_path / "site")}
    new_plugin("acme", cwd=tmp_path, **setting)
    new_plugin("nn!", cwd=tmp_path, check=2, **setting)
    command = BIN / "torch-backend"
    fake = PACKAGE / "plugins/libhal_fake.so"
    done = run(command, "verify", fake, "--suite", "copy", cwd=tmp_path, **setting)
    assert " passed, 0 failed" in done.stdout
    assert run(command, "verify", tmp_path / "none.so", cwd=tmp_path, check=1, **setting).stdout.count("FAIL") == 1
    assert run(command, "--cmake-dir", cwd=tmp_path, **setting).stdout.strip() == str(PACKAGE / "cmake")
    for name in ("info", "doctor", "coverage", "demo"):
        done = run(command, name, cwd=tmp_path, check=1, **setting)
        assert "torch cannot be imported" in done.stderr and "Traceback" not in done.stderr
    done = run(sys.executable, "-c", "import torch_backend\ntorch_backend.ops", cwd=tmp_path, check=1, **setting)
    assert "ImportError: torch_backend.ops needs torch" in done.stderr
