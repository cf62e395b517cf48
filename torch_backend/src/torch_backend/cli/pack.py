"""The command `pack`: compiles the portable kernels ahead of time into a file next to a plugin, with the program
hal-pack.
"""

from __future__ import annotations

from . import _program


def main(argv) -> int:
    """Builds a pack. Returns the program's exit code."""
    return _program.run("pack", "hal-pack", "--output FILE.pack [options of hal-pack]", argv)
