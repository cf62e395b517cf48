"""Writes the support matrix: for each plugin the kernels it takes, and for each operator the dtypes of its kernel.

    support_matrix.py OUT

Plugins are read from plugins/*/, operators from codegen/operators.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))
import entries  # noqa: E402  found by the line above
from dtypes import DTYPES, TORCH_NAMES  # noqa: E402

# Columns: dtypes with equal support in all but a few operators share one.
COLUMNS = {
    "float32": ("f32",),
    "float64": ("f64",),
    "float16": ("f16",),
    "bfloat16": ("bf16",),
    "int8 to int64": ("i8", "i16", "i32", "i64", "u8"),
    "uint16 to uint64": ("u16", "u32", "u64"),
    "bool": ("bool",),
    "complex": ("c64", "c128"),
}
DIALECTS = ("native", "opencl-c", "cuda-c")
assert sorted(token for tokens in COLUMNS.values() for token in tokens) == sorted(DTYPES) == sorted(TORCH_NAMES.values())


def plugins():
    """Returns {plugin: (the dialects of the portable kernels that it takes, whether it has operators of its own)}."""
    found = {}
    for folder in sorted(path.parent for path in (ROOT / "plugins").glob("*/CMakeLists.txt")):
        text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.c")))
        takes = [name for name in DIALECTS if "hal_plugin_module_load(" in text and re.search(rf'strcmp\(dialect, "{name}"\)', text)]
        found[folder.name] = takes, "hal_plugin_op_find(" in text
    return found


def cell(kernel, tokens, dtypes):
    """Returns ✓ (all of the dtypes), part, source (all, on devices whose kernels are compiled from source) or ""."""
    computed, further = set(kernel.dtypes), set(kernel.device_dtypes)
    if isinstance(dtypes, str) and dtypes.startswith("element_size"):  # kernels that move elements: any dtype of a size
        sizes = {DTYPES[token].size for token in computed}
        computed = {token for token, dtype in DTYPES.items() if dtype.size in sizes}
    if computed >= set(tokens):
        return "✓"
    if computed | further >= set(tokens):
        return "source"
    return "part" if (computed | further) & set(tokens) else ""


def tables():
    """Returns {file of codegen/operators: the rows of its operators with kernels}."""
    found = {}
    for entry in entries.load():
        if entry.kernel and not entry.part_of:
            row = entry.name, [cell(entry.kernel, tokens, entry.keys["kernel"]["dtypes"]) for tokens in COLUMNS.values()]
            found.setdefault(entry.place.path.stem, []).append(row)
    return found


def text():
    """Returns the page."""
    lines = ["# Support matrix", "", "Which plugins take the portable kernels, and which dtypes the kernels have. This page is generated from",
             "`codegen/operators` and `plugins`. For an installation with your plugin, the command is:", "",
             "```", "torch-backend coverage", "```", "", "## Plugins", "",
             "| plugin | portable kernels | operators of its own |", "|---|---|---|"]  # fmt: skip
    for name, (dialects, own) in plugins().items():
        lines.append(f"| `{name}` | {', '.join(dialects) or 'none: the CPU fallback runs'} | {'✓' if own else ''} |")
    lines += ["", "A plugin that takes portable kernels runs all operators below natively. float64 and complex128 need a device with",
              "double precision. The tables list the dtypes that a kernel computes in. Operands of another dtype are converted",
              "before the call if a dtype of the kernel represents their values (float16 in float32, int16 in int64); otherwise",
              "the operator falls back to the CPU. Operators that are composed of others are not listed.", "",
              "- ✓: all dtypes of the column", "- part: some of them",
              "- source: all of them on devices whose kernels are compiled from source, not on the host's processor"]  # fmt: skip
    for subject, rows in sorted(tables().items()):
        lines += ["", f"## {subject.replace('_', ' ').capitalize()}", "", f"| operator | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
        lines += [f"| `{name}` | {' | '.join(cells)} |" for name, cells in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the page."""
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
