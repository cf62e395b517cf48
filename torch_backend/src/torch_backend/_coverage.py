"""Which kernel each ATen operator runs on a device: queried from the device, not counted from registrations."""

from __future__ import annotations

import functools
import json
from typing import NamedTuple

from . import _builds
from ._extension import extension

KINDS = ("native", "composite", "fallback", "unsupported")

# torch's numbers of dtypes (c10/core/ScalarType.h).
_DTYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 8: "complex32", 9: "complex64",
           10: "complex128", 11: "bool", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz",
           27: "uint16", 28: "uint32", 29: "uint64"}  # fmt: skip


class Coverage(NamedTuple):
    """Which kernel an operator runs.

    `kind` is "native" (the device), "composite" (other operators, which are reported separately), "fallback" (the
    CPU's kernel) or "unsupported" (the call raises). For a native operator ``by`` is "plugin" (the plugin's own
    operator), "portable" (a portable kernel), "plugin, portable" (either), or "memory" (tensors, views, copies and
    fills, which need no kernel). ``plugin`` and ``portable`` are the dtypes in which they compute. Operands of other
    dtypes are cast, or the call goes to the fallback.
    """

    op: str
    kind: str
    by: str = ""
    plugin: tuple = ()
    portable: tuple = ()


@functools.lru_cache(maxsize=None)
def _support() -> dict:
    """Returns codegen's description of each registered overload: its entry, and the kernels that its function may call.
    """
    import torch

    return json.loads((_builds.folder(torch.__version__) / "support.json").read_text())


def _dtypes(mask: int) -> tuple:
    return tuple(name for number, name in _DTYPES.items() if mask >> number & 1)


def _composite(has) -> bool:
    return any(map(has, ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")))


def _row(op: str, kernels: dict) -> Coverage:
    from torch import _C

    def has(key):
        return _C._dispatch_has_kernel_for_dispatch_key(f"aten::{op}", key)

    if not has("PrivateUse1"):
        on_cpu = any(map(has, ("CPU", "SparseCPU", "SparseCsrCPU")))
        return Coverage(op, "composite" if _composite(has) else "fallback" if on_cpu else "unsupported")
    known = _support().get(op)
    if known is None:  # registered by hand, without kernels: accessors, pinned memory, sparse layouts, composites
        return Coverage(op, "composite" if _composite(has) else "native", "" if _composite(has) else "memory")
    own, portable = kernels.get(known["vendor"], (0, 0))[0], 0
    for name in known["kernels"]:
        own, portable = own | kernels[name][0], portable | kernels[name][1]
    if own or portable:
        return Coverage(op, "native", ", ".join(["plugin"] * bool(own) + ["portable"] * bool(portable)), _dtypes(own), _dtypes(portable))
    if known["else"] == "memory":
        return Coverage(op, "native", "memory")
    return Coverage(op, known["else"])


def coverage(*names: str, device: int | None = None) -> list[Coverage]:
    """Returns which kernel each ATen operator runs on a device, sorted by operator name.

    ``names`` are operator names such as "add" or "add.Tensor"; by default all. ``device`` is a device index; None
    means the current device. Starts the device. A call may still go to the fallback because of its layout, sizes or
    arguments; `report` counts such calls while a program runs.

    Raises:
        RuntimeError: no plugin is active.
    """
    index = extension().current_device() if device is None else device
    kernels = {name: (own, portable) for name, own, portable in extension().operator_dtypes(index)}
    from torch import _C

    found = sorted(name[len("aten::") :] for name in _C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return [_row(name, kernels) for name in found if not names or name in names or name.split(".")[0] in names]


def counts(rows) -> dict:
    """Returns the number of rows of each kind, and for native rows also by implementation."""
    result = {kind: sum(row.kind == kind for row in rows) for kind in KINDS}
    for by in ("plugin", "portable", "memory"):
        result[f"native by {by}"] = sum(by in row.by.split(", ") for row in rows)
    return result
