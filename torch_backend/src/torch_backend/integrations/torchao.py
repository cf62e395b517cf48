"""torchao: weights of 4 bits as for XPU, weights of 8 bits by the operator that reads them, and the check whether the
hardware multiplies float8.

Its other formats (intx, float8 weights, dynamic int8) need no patch.
"""

from __future__ import annotations

from types import ModuleType

import torch

from torch_backend._registry import device_name

from ._table import Patch, Table, Undo
from ._tools import say_our_name, together, wrap

_INT8 = "torchao.quantization.quantize_.workflows.int8.int8_tensor"
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


def _is_weight_only(x, weight) -> bool:
    """Returns whether a linear layer multiplies by weights of 8 bits, each row of which has one scale, and computes no
    gradients: the operator has no derivative."""
    return (
        x.device.type == device_name()
        and x.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and weight.act_quant_kwargs is None
        and weight.act_pre_scale is None
        and weight.block_size[-1] == weight.qdata.shape[-1]
        and not (torch.is_grad_enabled() and x.requires_grad)
    )


def _linear(x, weight, bias=None):
    """torchao converts the weights to the dtype of x before it multiplies."""
    rows = weight.qdata.shape[0]
    scales = weight.scale.to(x.dtype).flatten().expand(rows)
    y = torch._weight_int8pack_mm(x.reshape(-1, x.shape[-1]), weight.qdata, scales).reshape(*x.shape[:-1], rows)
    return y if bias is None else y + bias


def _by_operator(table: dict, function) -> Undo:
    """Replaces torchao's implementation of a function in the table of its class."""
    original = table[function]

    def linear(called, types, args, kwargs):
        if kwargs or not _is_weight_only(args[0], args[1]):
            return original(called, types, args, kwargs)
        return _linear(*args)

    table[function] = linear

    def undo() -> None:
        table[function] = original

    return undo


def _eight_bits(module: ModuleType) -> Undo:
    made = module.Int8Tensor
    return together(
        _by_operator(made._TORCH_FN_TABLE[made], torch.nn.functional.linear),
        _by_operator(made._ATEN_OP_TABLE[made], torch.ops.aten.linear.default),
    )


def _float8(module: ModuleType) -> Undo:
    return say_our_name(module, "xpu", only=["_check_hardware_support"])


TABLES = [
    Table("torchao", ("0.18", "0.19"), [
        Patch(_PLAIN, 'weights of 4 bits, int4_packing_format="plain_int32"', _four_bits),
        Patch(_INT8, "weights of 8 bits by their operator", _eight_bits),
        Patch("torchao.float8.inference", "dynamic float8", _float8),
    ]),
]  # fmt: skip
