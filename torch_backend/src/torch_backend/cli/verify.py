"""The command `verify`: holds a plugin's file to the contract of plugin_ops.def, with the conformance suite hal-cts."""

from __future__ import annotations

from . import _program


def main(argv) -> int:
    """Runs the suite on the plugin `argv[0]`; the suite's exit code, or 2 for wrong usage."""
    plugin = ["--plugin"] if argv and not argv[0].startswith("-") else []
    return _program.run("verify", "hal-cts", "PATH.so [options of hal-cts]", argv, plugin)
