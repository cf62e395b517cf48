"""The command `verify`: compares a plugin with the contract of plugin_ops.def, by the conformance suite hal-cts."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from . import _program, _verify_diff
from ._output import check_output


def _folders() -> list:
    """Returns the folders of HAL_PLUGIN_PATH and that of the shipped plugins."""
    named = [Path(folder) for folder in os.environ.get("HAL_PLUGIN_PATH", "").split(":") if folder]
    return [*named, Path(__file__).resolve().parents[1] / "plugins"]


def locate(plugin: str) -> str:
    """Returns the absolute path of a plugin: a path, or a name that the folders have a libhal_<name>.so of.

    FileNotFoundError: a name that no folder has.
    """
    if "/" in plugin or plugin.endswith(".so"):
        return os.path.abspath(plugin)
    for folder in _folders():
        if (folder / f"libhal_{plugin}.so").is_file():
            return str(folder / f"libhal_{plugin}.so")
    searched = ", ".join(map(str, _folders()))
    raise FileNotFoundError(f"unknown plugin '{plugin}': expected a path, or a name with a libhal_{plugin}.so in {searched}")


def _take(options: list, name: str):
    """Removes an option and its value from `options`. Returns the value of the last one, None without one.

    ValueError: an option without a value.
    """
    value = None
    while found := [i for i, option in enumerate(options) if option == name or option.startswith(name + "=")]:
        option, following = options[found[0]], options[found[0] + 1 : found[0] + 2]
        if option == name and not following:
            raise ValueError(f"{name} needs the name of a file")
        value = option.partition("=")[2] if option != name else following[0]
        del options[found[0] : found[0] + (2 if option == name else 1)]
    return value


def _run(options: list) -> int:
    return _program.run("verify", "hal-cts", "PLUGIN [options of hal-cts] [--diff OLD.json]", options)


def _run_and_compare(options: list, old: str) -> int:
    """Runs the suite and compares with an earlier run. Returns 1 if something is worse, or else 0; 2: invalid usage."""
    before, kept = _verify_diff.read(old), _take(options, "--json")
    if kept is not None:
        check_output(kept)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "new.json")
        code = _run([*options, "--json", path])
        if not os.path.exists(path):
            return code
        if kept:
            shutil.copyfile(path, kept)
        return _verify_diff.show(before, _verify_diff.read(path), old)


def main(argv) -> int:
    """Runs the suite on the plugin `argv[0]`, a path or a name. Returns the suite's exit code, or 2 for wrong usage.
    With `--diff OLD.json`, the file of an earlier run with `--json`, prints the changes since then, and returns 1 if a
    change is for the worse, or else 0."""
    options = list(argv)
    try:
        if options and not options[0].startswith("-"):
            options[:1] = ["--plugin", locate(options[0])]
        old = _take(options, "--diff")
        return _run(options) if old is None else _run_and_compare(options, old)
    except (OSError, ValueError) as error:
        print(f"torch-backend verify: {error}", file=sys.stderr)
        return 2
