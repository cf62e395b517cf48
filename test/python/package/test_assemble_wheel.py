"""One wheel assembled from several: files that depend on PyTorch once per version, other files once, and never two that
conflict."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "cmake/assemble_wheel.py"
NAME = "torch_backend-0.1.0-cp311-cp311-linux_x86_64.whl"
SHARED = {"torch_backend/__init__.py": b"one = 1\n", "torch_backend/lib/libtorch_backend_hal.so.0": b"\x7fELF",
          "torch_backend-0.1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch_backend\nVersion: 0.1.0\n",
          "torch_backend-0.1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n"}  # fmt: skip


def build(minor, **changed):
    """The files of a wheel for one PyTorch."""
    files = {**SHARED, f"torch_backend/builds/{minor}/_C.so": minor.encode(), **changed}
    return {name: content for name, content in files.items() if content is not None}


def make(folder, files):
    path = folder / NAME
    folder.mkdir()
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100755 if ".so" in name else 0o100644) << 16
            wheel.writestr(info, content)
        wheel.writestr("torch_backend-0.1.0.dist-info/RECORD", "nothing,,\n")
    return path


def assemble(tmp_path, *wheels):
    paths = [make(tmp_path / str(number), files) for number, files in enumerate(wheels)]
    return subprocess.run([sys.executable, TOOL, tmp_path / "dist", *paths], capture_output=True, text=True)


def test_pip_installs_a_wheel_of_three_builds_and_finds_every_file_as_recorded(tmp_path):
    done = assemble(tmp_path, *(build(minor) for minor in ("2.9", "2.15", "2.14")))
    assert done.returncode == 0 and done.stdout.endswith(f"{NAME}: for torch 2.9, 2.14, 2.15\n"), done.stderr
    wheel = (tmp_path / "dist" / NAME).rename(tmp_path / "torch_backend-0.1.0-py3-none-any.whl")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel],
                   check=True, capture_output=True)  # fmt: skip
    site = tmp_path / "site"
    assert {path.name: (path / "_C.so").read_bytes() for path in (site / "torch_backend/builds").iterdir()} == {
        "2.9": b"2.9", "2.14": b"2.14", "2.15": b"2.15"}  # fmt: skip
    assert (site / "torch_backend/lib/libtorch_backend_hal.so.0").stat().st_mode & 0o111
    from importlib.metadata import Distribution

    recorded = Distribution.at(site / "torch_backend-0.1.0.dist-info").files
    import base64
    import hashlib

    hashed = [file for file in recorded if file.hash]
    assert {str(file) for file in hashed} > set(SHARED) - {"torch_backend-0.1.0.dist-info/WHEEL"}
    for file in hashed:
        digest = hashlib.sha256((site / str(file)).read_bytes()).digest()
        assert file.hash.value == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "other, sentence",
    [
        (build("2.13"), "is built for torch 2.13, as an earlier wheel"),
        (build("2.14", **{"torch_backend/__init__.py": b"one = 2\n"}), "torch_backend/__init__.py differs between"),
        (build("2.14", **{"torch_backend/new.py": b""}), "torch_backend/new.py is missing in"),
        (build("2.14", **{"torch_backend/__init__.py": None}), "torch_backend/__init__.py is missing in"),
    ],
    ids=["twice", "differs", "added", "missing"],
)
def test_wheels_that_do_not_fit_are_refused_by_the_name_of_the_file(tmp_path, other, sentence):
    done = assemble(tmp_path, build("2.13"), other)
    assert done.returncode == 1 and sentence in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "dist").exists()


def test_wheels_of_several_pythons_are_refused(tmp_path):
    one = make(tmp_path / "one", build("2.13"))
    two = make(tmp_path / "two", build("2.14")).rename(tmp_path / "two" / NAME.replace("cp311", "cp312"))
    done = subprocess.run([sys.executable, TOOL, tmp_path / "dist", one, two], capture_output=True, text=True)
    assert done.returncode == 1 and "the wheels must have one name" in done.stderr
