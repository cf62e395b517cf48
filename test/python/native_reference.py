"""Helpers of the tests of native operators: samples that are equal on the CPU and on the device, and the comparison.

Each comparison runs with the strict fallback, so that it fails unless a kernel of the device ran, and reads the
operator's counter.
"""

import sys
from pathlib import Path

import torch

import torch_backend
from torch_backend.fallback import strict

CODEGEN = Path(__file__).resolve().parents[2] / "codegen"
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32,
          "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}  # fmt: skip


def load_model():
    """Returns the operator model of codegen: the registered overloads."""
    sys.path.insert(0, str(CODEGEN))
    try:
        import aten_model
        import entries

        return aten_model.build(entries.load_all())
    finally:
        sys.path.remove(str(CODEGEN))


def overload(name):
    """Returns torch.ops.aten's operator for "name.overload"."""
    packet, _, over = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), over or "default")


def native_count(kernel_op):
    """How often the operator of an entry, or one of several, ran natively."""
    names = (kernel_op,) if isinstance(kernel_op, str) else kernel_op
    return sum(plugin + portable for name, plugin, portable, _ in torch_backend._C.operator_counts() if name in names)


class Sample:
    """A tensor by its contiguous base and a view of it: the same strides on each device."""

    def __init__(self, base, view=lambda base: base):
        self.base, self.view = base, view

    def on(self, device):
        return self.view(self.base.clone().to(device))


def place(argument, device):
    """Moves the samples of an argument to a device; other arguments are unchanged."""
    return argument.on(device) if isinstance(argument, Sample) else argument


def assert_same(ours, theirs, *, strides=True, **tolerance):
    """Compares results: device, dtype, shape, strides, values."""
    ours, theirs = (x if isinstance(x, (tuple, list)) else (x,) for x in (ours, theirs))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.device.type == torch_backend.device_name()
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if strides and b.numel() > 0:
            assert a.stride() == b.stride()
        torch.testing.assert_close(a.cpu(), b, equal_nan=True, **tolerance)


def assert_native(kernel_op, function, arguments, keywords=None, *, strides=True, **tolerance):
    """Runs a function on the CPU and natively on the device and compares the results. Returns the device's."""
    keywords = keywords or {}
    device = torch_backend.device_name()
    theirs = function(*(place(a, "cpu") for a in arguments), **{k: place(v, "cpu") for k, v in keywords.items()})
    placed = [place(a, device) for a in arguments]
    placed_keywords = {k: place(v, device) for k, v in keywords.items()}
    before = native_count(kernel_op)
    with strict():
        ours = function(*placed, **placed_keywords)
    assert native_count(kernel_op) > before, f"{kernel_op} did not run natively"
    assert_same(ours, theirs, strides=strides, **tolerance)
    return ours
