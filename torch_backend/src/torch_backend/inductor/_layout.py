"""The memory format of convolutions in compiled graphs."""

from __future__ import annotations

import functools

import torch
from torch._inductor.graph import GraphLowering

from torch_backend.backend import _utils


def install() -> None:
    """Keeps the format of the program for convolutions of the device. Inductor changes it to channels last, which suits
    cuDNN and oneDNN; the device's convolutions would copy inputs, weights and gradients to the contiguous format.
    """
    decide = GraphLowering.decide_layout_opt

    @functools.wraps(decide)
    def kept(gm: torch.fx.GraphModule, **options) -> bool:
        return not any(map(_is_convolution_of_device, gm.graph.nodes)) and decide(gm, **options)

    GraphLowering.decide_layout_opt = staticmethod(kept)


def _is_convolution_of_device(node: torch.fx.Node) -> bool:
    if node.target not in (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default):
        return False
    return any(each.meta["val"].device.type == _utils.name() for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor))
