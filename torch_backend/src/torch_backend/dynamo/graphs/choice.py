"""Decides whether a region can be a graph of this device."""

from __future__ import annotations

from ..._registry import type_name

# Higher-order operators that read a tensor on the host, and then select what runs.
_READ_ON_HOST = ("cond", "while_loop", "while_loop_stack_output")


def is_ours(tensors) -> bool:
    """Returns whether tensors are on this device. Without tensors, it is the program's accelerator that counts."""
    import torch

    types = {one.device.type for one in tensors if isinstance(one, torch.Tensor)}
    return type_name() in types if types else torch.accelerator.current_accelerator().type == type_name()


def skip(sentence: str) -> None:
    """Logs why a region runs without graphs, as torch does: once, as a warning of the log "cudagraphs"."""
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    log_cudagraph_skip_and_bump_counter(sentence)


def sentence(reason: str) -> str:
    """Returns the text of the warning."""
    return f"skipping graphs due to {reason}"


def reason_against(device_node_mapping, gm) -> str | None:
    """Returns the reason why a graph of torch.fx cannot be recorded, with the operator and the program's line; None if it
    can.
    """
    from .lines import line_of

    devices = {device: node for device, node in device_node_mapping.items() if device.type != "meta"}
    for device, node in devices.items():
        if device.type == "cpu":
            return sentence(f"work on the CPU ({node.name}){line_of(node)}")
    if len(devices) > 1:
        places = ", ".join(sorted(f"{device}{line_of(node)}" for device, node in devices.items()))
        return sentence(f"several devices: {places}")
    if (node := _incompatible(gm)) is not None:
        return sentence(f"an operator that graphs do not record: {node.target}{line_of(node)}")
    return None


def _incompatible(gm):
    """Returns the first node of a graph, or of one that is nested in it, that torch excludes from graphs or that reads
    a tensor on the host.
    """
    import torch
    from torch._inductor.utils import get_first_incompatible_cudagraph_node

    for part in gm.modules():
        if isinstance(part, torch.fx.GraphModule):
            node = get_first_incompatible_cudagraph_node(part)
            node = next(filter(_reads_on_host, part.graph.nodes), None) if node is None else node
            if node is not None:
                return node
    return None


def _reads_on_host(node) -> bool:
    """Returns whether a node selects what runs by a tensor. A condition that is a number is part of the recording."""
    import torch

    if not isinstance(node.target, torch._ops.HigherOrderOperator) or node.target.name() not in _READ_ON_HOST:
        return False
    condition = node.args[0]
    return node.target.name() != "cond" or isinstance(condition, torch.fx.Node) and isinstance(condition.meta.get("val"), torch.Tensor)
