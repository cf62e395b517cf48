"""Finds the operator entries that the plugin compiles: element-wise ones by the expression of their entry, others by a row
{"name", takes, emit} of a list in emit_*.c. Each entry with a portable kernel has one of these, or a reason in NOT_COMPILED.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(FOLDER / "tools")]
import expressions  # noqa: E402  found by the line above

# Entries that run on their portable kernel, between two programs.
NOT_COMPILED = {
    "_nonzero_count": "the size of the result depends on data",
    "nonzero.places": "the size of the result depends on data",
    "_check_divisor": "a check, whose failure is an error of the program",
    "_check_probability": "a check, whose failure is an error of the program",
    "igamma": "a series whose number of terms depends on data",
    "igammac": "a series whose number of terms depends on data",
    "resample": "grid_sampler, whose positions depend on data",
    "_dequantize_blocks": "formats of 4 and 5 bits in blocks",
}


def rows():
    """Returns the names in the lists of emit_*.c."""
    texts = [file.read_text() for file in FOLDER.glob("emit_*.c")]
    return {name for text in texts for name in re.findall(r'\{"([\w.]+)",\s*\w+,\s*\w+\}', text)} - {"expression"}


def compiled(codegen):
    """Returns the names of the compiled entries, and of those that are expressions."""
    written = {entry.name for entry, program in expressions.programs(codegen) if program}
    return written | rows(), written


def problems(codegen, more=()):
    """Returns a message for each entry (and name in `more`) without emission and reason, and for each row or reason without entry."""
    found, _ = compiled(codegen)
    import entries

    table = entries.load()
    kernels = [entry.name for entry in table if entry.kernel] + list(more)
    known = {entry.name for entry in table}
    for name in kernels:
        if name not in found and name not in NOT_COMPILED:
            yield (f"the operator '{name}' has a portable kernel, but no program of the plugin pjrt: add a row to the list of its subject in "
                   "plugins/pjrt/emit_*.c, or the reason to NOT_COMPILED of plugins/pjrt/tools/emissions.py")  # fmt: skip
    for name in sorted(rows() - known):
        yield f"the operator '{name}' of a list in plugins/pjrt/emit_*.c has no entry in codegen/operators"
    for name in NOT_COMPILED:
        if name in found or name not in known:
            yield f"the operator '{name}' has a reason in plugins/pjrt/tools/emissions.py, but {'is compiled' if name in found else 'no entry'}"
