"""The command `new-plugin`: writes the project of a plugin, which builds and passes its tests without changes.

The project is the installed copy of plugins/template, in which the word "template" is used only as the plugin's
name. Does not need torch.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from torch_backend import _activation

_PACKAGE = Path(__file__).resolve().parents[1]
_LONGEST = 31  # maximum length of a plugin's name in bytes: HAL_PLUGIN_NAME_BYTES without the NUL
_OURS = {"cuda", "fake", "lazy", "npu", "opencl", "pjrt", "template", "threads", "vulkan"}
# hal_add_plugin(NAME) creates the target hal_NAME in addition to those of the SDK.
_TARGETS = {"plugin", "plugin_archive"}


def problem(name: str) -> str:
    """Returns why `name` is invalid as a plugin's name; "" if it is valid."""
    if len(name) > _LONGEST:
        return f"it has {len(name)} characters, but a plugin's name has at most {_LONGEST}"
    if name in _OURS:
        return "a plugin of torch_backend has this name"
    # If torch is missing, conflicts with torch's own names are found when the plugin is first used.
    found = _activation.name_problem(sys.modules.get("torch"), name)
    if found:
        return found
    if keyword.iskeyword(name):
        return f"it is a keyword of Python, so torch.{name} is invalid syntax"
    if name in _TARGETS:
        return f"the SDK has a CMake target hal_{name}"
    if importlib.util.find_spec(f"{name}_plugin"):
        return f"a Python package {name}_plugin is installed already"
    return ""


def write(name: str, folder: Path) -> None:
    """Writes the whole project into `folder`, which must not exist or must be empty, or writes nothing. Raises OSError."""
    template = _PACKAGE / "template"
    if not template.is_dir():
        raise FileNotFoundError(f"{template} is missing; install torch_backend again")
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise FileExistsError(f"{folder} exists already and is not overwritten; choose another folder with --directory")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Created in the same parent folder, so that one rename moves it into place. The rename fails if `folder` has been
    # filled meanwhile.
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for source in sorted(path for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            target = made / _renamed(str(source.relative_to(template)), name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_renamed(source.read_text(encoding="utf-8"), name), encoding="utf-8")
        made.chmod(0o777 & ~_umask())  # mkdtemp allows access only to the user
        os.rename(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _renamed(text: str, name: str) -> str:
    return re.sub("template", name, text)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def add_arguments(parser) -> None:
    """Declares the command's options."""
    parser.add_argument("name", metavar="NAME", help="the plugin's name, which becomes the device type in torch: torch.ones(3, device=NAME)")
    parser.add_argument("--directory", metavar="DIR", help="the folder to create; by default NAME in the current folder. A folder with files is never changed")


def run(arguments) -> int:
    """Writes the project and prints the next steps. Returns 2 for an invalid name, 1 if the folder cannot be written."""
    name = arguments.name
    found = problem(name)
    if found:
        print(f"torch-backend new-plugin: '{name}' cannot name a plugin: {found}", file=sys.stderr)
        return 2
    folder = Path(arguments.directory or name)
    try:
        write(name, folder.absolute())
    except OSError as error:
        print(f"torch-backend new-plugin: {error}", file=sys.stderr)
        return 1
    print(f"{folder}: the plugin {name}, five functions based on malloc. Next:\n\n"
          f"    cd {folder}\n"
          f"    cmake -S . -B build && cmake --build build\n"
          f"    ctest --test-dir build --output-on-failure\n\n"
          f"README.md there describes the next steps.")  # fmt: skip
    return 0
