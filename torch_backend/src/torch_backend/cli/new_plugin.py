"""The command `new-plugin`: writes the project of a plugin, which builds and passes its tests as it is.

The project is the installed copy of plugins/template, in which the word "template" is nothing but the plugin's name. Needs no torch.
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
_LONGEST = 31  # bytes, of a plugin's name: HAL_PLUGIN_NAME_BYTES less the NUL
_OURS = {"cuda", "fake", "lazy", "npu", "opencl", "template", "threads"}
# hal_add_plugin(NAME) makes the target hal_NAME, beside those of the SDK.
_TARGETS = {"plugin", "plugin_archive"}


def problem(name: str) -> str:
    """Says why a plugin cannot be called `name`; empty when it can."""
    if len(name) > _LONGEST:
        return f"it has {len(name)} characters, and a plugin's name at most {_LONGEST}"
    if name in _OURS:
        return "a plugin of torch_backend has this name"
    # Without torch, what depends on torch's own names is found when the plugin is first used.
    found = _activation.name_problem(sys.modules.get("torch"), name)
    if found:
        return found
    if keyword.iskeyword(name):
        return f"it is a word of Python, so that torch.{name} could not be written"
    if name in _TARGETS:
        return f"the SDK has a CMake target hal_{name}"
    if importlib.util.find_spec(f"{name}_plugin"):
        return f"a Python package {name}_plugin is installed already"
    return ""


def write(name: str, folder: Path) -> None:
    """Writes the project into `folder`, which is not there or empty: the whole of it, or nothing. Raises OSError."""
    template = _PACKAGE / "template"
    if not template.is_dir():
        raise FileNotFoundError(f"{template} is missing; install torch_backend again")
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise FileExistsError(f"{folder} exists already and is never overwritten; name another folder with --directory")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that one rename puts it there; which fails if somebody else has filled it meanwhile.
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for source in sorted(path for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            target = made / _renamed(str(source.relative_to(template)), name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_renamed(source.read_text(encoding="utf-8"), name), encoding="utf-8")
        made.chmod(0o777 & ~_umask())  # mkdtemp's is the user's alone
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
    parser.add_argument("name", metavar="NAME", help="the plugin's name, which becomes the device's in torch: torch.ones(3, device=NAME)")
    parser.add_argument("--directory", metavar="DIR", help="the folder to make; by default NAME here. One that has files is never touched")


def run(arguments) -> int:
    """Writes the project and says what to do next; 2 for a name that cannot be, 1 for a folder that cannot be written."""
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
    print(f"{folder}: the plugin {name}, five functions over malloc. Next:\n\n"
          f"    cd {folder}\n"
          f"    cmake -S . -B build && cmake --build build\n"
          f"    ctest --test-dir build --output-on-failure\n\n"
          f"README.md there says how to go on.")  # fmt: skip
    return 0
