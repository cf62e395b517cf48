"""The builds of the extension in this package: one for each minor version of torch that it serves, whose C++ classes differ.

Each is a folder, such as builds/2.13: the extension `_C`, the C++ library in lib/, the header that names the versions in include/.
All else of the package is the same for each torch.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

FOLDER = Path(__file__).absolute().parent / "builds"


def minor(version: str) -> str:
    """Gives "2.13" of a version of torch such as "2.13.0+cpu"."""
    return ".".join(str(version).split(".")[:2])


def folder(version: str) -> Path:
    """Gives the folder of the build for a version of torch, whether it is there or not."""
    return FOLDER / minor(version)


def minors() -> list[str]:
    """Gives the minor versions of torch that this package is built for, the oldest first."""
    names = [path.name for path in FOLDER.iterdir() if re.fullmatch(r"\d+\.\d+", path.name)] if FOLDER.is_dir() else []
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def problem(version: str) -> str:
    """Says why this package cannot serve a version of torch, and what to do; "" when it can."""
    if minor(version) in minors():
        return ""
    return (f"torch {version} is installed, and this torch_backend is built for torch {listed(minors()) or 'none'}. Install one of these, "
            f"or build torch_backend for yours, if it is one that the sources support ({_window()}): "
            "pip install --no-build-isolation --force-reinstall torch_backend")  # fmt: skip


def listed(names: list[str]) -> str:
    """Gives "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def select(version: str) -> None:
    """Makes `torch_backend._C` the extension for a version of torch; loads nothing, and there may be none (`problem`)."""
    path, package = str(folder(version)), sys.modules[__package__]
    if path not in package.__path__:
        package.__path__.append(path)


def version() -> str:
    """Returns the version of the installed package."""
    return metadata.version("torch_backend")


def _window() -> str:
    """Gives what this package asks for in its metadata, such as "torch<2.16,>=2.13"."""
    try:
        wanted = metadata.requires("torch_backend") or []
    except metadata.PackageNotFoundError:  # the package is on the path without having been installed
        wanted = []
    return next((line for line in wanted if re.match(r"torch\b", line)), "see pyproject.toml")
