"""The builds of the extension in this package: one for each supported minor version of torch, because torch's C++
classes differ.

Each build is a folder, such as builds/2.13. It holds the extension `_C`, the C++ library in lib/, and the header
with the versions in include/. The rest of the package is the same for every version of torch.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).absolute().parent
FOLDER = PACKAGE / "builds"


def minor(version: str) -> str:
    """Returns the minor version, "2.13", of a version of torch such as "2.13.0+cpu"."""
    return ".".join(str(version).split(".")[:2])


def folder(version: str) -> Path:
    """Returns the folder of the build for a version of torch; the folder may not exist."""
    return FOLDER / minor(version)


def minors() -> list[str]:
    """Returns the minor versions of torch that this package is built for, the oldest first."""
    names = [path.name for path in FOLDER.iterdir() if re.fullmatch(r"\d+\.\d+", path.name)] if FOLDER.is_dir() else []
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def problem(version: str) -> str:
    """Returns why this package does not support a version of torch, and what to do; "" if it does."""
    if minor(version) in minors():
        return ""
    return (f"torch {version} is installed, and this torch_backend is built for torch {listed(minors()) or 'none'}. Install one of these, "
            f"or build torch_backend for yours, if it is one that the sources support ({_window()}): "
            "pip install --no-build-isolation --force-reinstall torch_backend")  # fmt: skip


def listed(names: list[str]) -> str:
    """Returns "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def select(version: str) -> None:
    """Makes `torch_backend._C` the extension for a version of torch. Loads nothing; the build may not exist (see
    `problem`).
    """
    path, package = str(folder(version)), sys.modules[__package__]
    if path not in package.__path__:
        package.__path__.append(path)


def version() -> str:
    """Returns the version of the installed package."""
    return metadata.version("torch_backend")


def _window() -> str:
    """Returns the requirement of the package's metadata, such as "torch<2.16,>=2.13"."""
    try:
        wanted = metadata.requires("torch_backend") or []
    except metadata.PackageNotFoundError:  # the package is on the path without being installed
        wanted = []
    return next((line for line in wanted if re.match(r"torch\b", line)), "see pyproject.toml")
