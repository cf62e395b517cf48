"""The commands of the tutorials run, and print what the pages show."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs/tutorials"
BIN = Path(sys.executable).parent


def block(page, mark):
    """Returns the one block of a page with this mark."""
    (text,) = re.findall(rf"<!-- test: {mark} -->\n```\w+\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.S)
    return text


def run(commands, folder, check=True, **settings):
    """Runs commands in a copy of docs/examples; the programs of this environment come first on PATH."""
    if not (folder / "docs").exists():
        shutil.copytree(ROOT / "docs/examples", folder / "docs/examples")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_BACKEND", "HAL_"))}
    environment |= {"PATH": f"{BIN}:{environment['PATH']}", "HAL_ALLOW_UNSAFE_PLUGINS": "1", "OMP_NUM_THREADS": "1", **settings}
    done = subprocess.run(["bash", "-e", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def assert_shown(page, mark, output):
    """Each line of the page's output is in the output of the program."""
    for line in block(page, mark).splitlines():
        assert line.strip() in output, f"{line.strip()!r} is not in:\n{output}"


# ---- port a driver ----


def port(folder, step, check=True):
    """Builds a step of the tutorial and returns what its commands print."""
    commands = block("port-a-driver", "port commands").replace("-DSTEP=1", f"-DSTEP={step}")
    return run(commands, folder, check).stdout


def test_the_commands_of_port_a_driver_train_with_five_functions(tmp_path):
    assert_shown("port-a-driver", "output step 1", port(tmp_path, 1))


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 3, 4])
def test_every_later_step_conforms_and_trains(step, tmp_path):
    output = port(tmp_path, step)
    assert "libhal_acme.so conforms" in output and "as on the CPU" in output
    assert_shown("port-a-driver", "output step 3", output)  # step 2 has the default events
    if step == 4:
        assert_shown("port-a-driver", "output step 4", output)
        assert "level 4, own operators: reached" in output


def test_step_five_makes_a_wheel_that_is_found_by_name(tmp_path, run_python, monkeypatch):
    run(block("port-a-driver", "port wheel"), tmp_path)
    (wheel,) = (tmp_path / "docs/examples/port_driver/dist").glob("acme_plugin-0.1-py3-none-*.whl")
    run(f"{sys.executable} -m pip install -q --no-deps --target site {wheel}", tmp_path)
    (tmp_path / "site").chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    script = "import torch, torch_backend; print((torch.ones(2, 2, device='acme') @ torch.ones(2, 2, device='acme')).tolist())"
    done = run_python(script, TORCH_BACKEND="acme", HAL_ALLOW_UNSAFE_PLUGINS=1)
    assert done.stdout == "[[2.0, 2.0], [2.0, 2.0]]\n"


# ---- find a wrong result ----


def test_the_wrong_result_is_found_reproduced_and_traced(tmp_path):
    page = "find-a-wrong-result"
    done = run(block(page, "wrong result commands"), tmp_path, check=False)
    assert done.returncode != 0
    assert_shown(page, "output autocompare", done.stdout + done.stderr)
    wrong = {"TORCH_BACKEND": str(tmp_path / "build-wrong/libhal_acme.so")}
    assert run(block(page, "wrong result reproduce"), tmp_path, check=False, **wrong).returncode == 1
    traced = run(block(page, "wrong result trace"), tmp_path, **wrong)
    assert_shown(page, "output trace", traced.stdout + traced.stderr)
    silent = run("python docs/examples/wrong_result/program.py", tmp_path, HAL_LAYERS="validate", **wrong)
    assert "validate:" not in silent.stderr
    run("cmake -S docs/examples/port_driver -B build-wrong -DWRONG_LAYOUT=OFF && cmake --build build-wrong", tmp_path)
    assert "0 divergences" in "".join(run("torch-backend autocompare docs/examples/wrong_result/program.py", tmp_path, **wrong).stderr)


# ---- the other tutorials ----


def test_two_processes_train_and_a_mismatch_is_named(tmp_path):
    done = run(block("distributed-training", "distributed commands"), tmp_path, GLOO_SOCKET_IFNAME="lo")
    assert_shown("distributed-training", "output distributed", done.stdout)


def test_the_tests_of_the_ci_tutorial_pass(tmp_path):
    done = run(block("test-your-ci", "ci commands"), tmp_path)
    assert re.search(r"\b7 passed", done.stdout), done.stdout


def test_the_compiler_of_lazy_programs_runs(tmp_path):
    done = run(block("lazy-compiler", "examples"), tmp_path)
    assert_shown("lazy-compiler", "output compiler", done.stdout)


def test_the_parts_of_the_c_api_run(tmp_path):
    (commands,) = re.findall(r"<!-- test: examples -->\n```bash\n(.*?)```", (ROOT / "docs/c-api.md").read_text(), re.S)
    output = run(commands, tmp_path).stdout
    assert "graphs: 0 plus 3 runs is 3" in output and "errors: OUT_OF_RANGE" in output
    assert len(re.findall(r"^[a-z ]+: ", output, re.M)) == 7


def test_every_listing_of_the_documents_begins_and_ends_in_its_file():
    for page in [*(ROOT / "docs").glob("*.md"), *PAGES.glob("*.md")]:
        for path, options in re.findall(r"\{literalinclude\} (\S+)\n(.*?)```", page.read_text(), re.S):
            source = (page.parent / path).read_text()
            for marker in re.findall(r"^:(?:start-at|end-before|end-at): (.*)", options, re.M):
                assert marker.strip('"') in source, f"{page.name}: {path}: {marker}"

