"""Libraries of custom operators for tests, built out of tree from the installed package alone."""

import os
import pathlib
import shutil
import subprocess
import sys

import precompiled
import torch

import torch_backend

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(torch_backend.__file__).resolve().parent
EXAMPLE, KINDS = ROOT / "docs" / "examples" / "custom_op", ROOT / "test" / "python" / "package" / "custom_ops"


def copied(source, folder, *changes):
    """Copies a library's folder and replaces texts in all its files: pairs of (old, new)."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.iterdir():
        text = path.read_text()
        for old, new in changes:
            text = text.replace(old, new)
        path.write_text(text)
    return folder


def configure(source, build):
    """Runs CMake; returns the completed process."""
    environment = {name: value for name, value in os.environ.items() if name not in ("TORCH_BACKEND", "PYTHONPATH")}
    command = ["cmake", "-S", source, "-B", build, f"-Dtorch_backend_DIR={PACKAGE / 'cmake'}", f"-DPython_EXECUTABLE={sys.executable}",
               f"-DTORCH_BACKEND_TORCH_DIR={pathlib.Path(torch.__file__).parent}", *precompiled.settings()]  # fmt: skip
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def build(*sources):
    """Builds libraries next to their sources, in parallel; returns (the build folder, the output of the configuration)
    of each."""
    folders, said = [source.parent / f"build-{source.name}" for source in sources], []
    for source, folder in zip(sources, folders):
        done = configure(source, folder)
        assert done.returncode == 0, done.stderr
        said.append(done.stderr)
    builds = [subprocess.Popen(["cmake", "--build", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for folder in folders]
    for process in builds:
        output, _ = process.communicate(timeout=900)
        assert process.returncode == 0, output
    return list(zip(folders, said))
