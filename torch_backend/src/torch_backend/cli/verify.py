"""The command `verify`: compares a plugin with the contract of plugin_ops.def, by the conformance suite hal-cts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import _program


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


def main(argv) -> int:
    """Runs the suite on the plugin `argv[0]`, a path or a name. Returns the suite's exit code, or 2 for wrong usage."""
    options = list(argv)
    if options and not options[0].startswith("-"):
        try:
            options[:1] = ["--plugin", locate(options[0])]
        except FileNotFoundError as error:
            print(f"torch-backend verify: {error}", file=sys.stderr)
            return 2
    return _program.run("verify", "hal-cts", "PLUGIN [options of hal-cts]", options)
