"""The C++ API, as a program without Python sees it: found by CMake in the installed package, with a test suite and an example."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

import torch_backend

ROOT = Path(__file__).resolve().parents[3]


def build(source, folder):
    """Configures and builds a project against the installed package."""
    cmake = Path(torch_backend.__file__).parent / "cmake"
    torch_dir = Path(torch.__file__).parent
    subprocess.run(["cmake", "-S", source, "-B", folder, f"-Dtorch_backend_DIR={cmake}", f"-DTORCH_BACKEND_TORCH_DIR={torch_dir}",
                    "-DCMAKE_BUILD_TYPE=Debug"], check=True, capture_output=True, text=True)  # fmt: skip
    done = subprocess.run(["cmake", "--build", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(program, **settings):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAL_", "TORCH_BACKEND"))}
    return subprocess.run([program], env={**environment, **settings}, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def tests(tmp_path_factory):
    return build(ROOT / "test/cpp", tmp_path_factory.mktemp("cpp")) / "api"


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_the_cpp_api(tests, asynchronous):
    done = run(tests, HAL_FAKE_DEVICES="2", HAL_FAKE_MEMORY="1G", HAL_FAKE_ASYNC=asynchronous)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example(tmp_path):
    done = run(build(ROOT / "docs/examples/libtorch", tmp_path) / "example")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0.5 * 0.5 * 256 = 64" in done.stdout
