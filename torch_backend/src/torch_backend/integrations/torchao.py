"""torchao: weights of 4 bits as for XPU, and the check whether the hardware multiplies float8.

Its other formats (int8, intx, float8 weights) need no patch.
"""

from __future__ import annotations

from types import ModuleType

from ._table import Patch, Table, Undo
from ._tools import say_our_name, together, wrap

_PLAIN = "torchao.quantization.quantize_.workflows.int4.int4_plain_int32_tensor"


def _packed(from_weight, cls, weight, block_size):
    """XPU's packed weights are a matrix. Those of other devices have the sizes of ATen's tiles, which the product's meta
    function, and with it torch.compile, refuses."""
    made = from_weight(cls, weight, block_size)
    made.qdata = made.qdata.reshape(weight.size(0), -1)
    return made


def _four_bits(module: ModuleType) -> Undo:
    named = say_our_name(module, "xpu", only=["Int4PlainInt32Tensor.from_hp", "_", "_from_hp_xpu", "_linear_xpu"])
    return together(named, wrap(module, "_from_hp_xpu", _packed))


def _float8(module: ModuleType) -> Undo:
    return say_our_name(module, "xpu", only=["_check_hardware_support"])


TABLES = [
    Table("torchao", ("0.18", "0.19"), [
        Patch(_PLAIN, 'weights of 4 bits, int4_packing_format="plain_int32"', _four_bits),
        Patch("torchao.float8.inference", "dynamic float8", _float8),
    ]),
]  # fmt: skip
