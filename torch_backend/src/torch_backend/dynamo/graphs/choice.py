"""Decides whether a region can be a graph of this device."""

from __future__ import annotations

from ..._registry import type_name


def is_ours(tensors) -> bool:
    """Returns whether tensors are on this device. Without tensors, it is the program's accelerator that counts."""
    import torch

    types = {one.device.type for one in tensors if isinstance(one, torch.Tensor)}
    return type_name() in types if types else torch.accelerator.current_accelerator().type == type_name()


def skip(sentence: str) -> None:
    """Logs why a region runs without graphs, as torch does: once, as a warning of the log "cudagraphs"."""
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    log_cudagraph_skip_and_bump_counter(sentence)


def reason_against(device_node_mapping, incompatible) -> str | None:
    """Returns why a graph of torch.fx cannot be recorded; None if it can. `incompatible` is a node that torch excludes
    from graphs.
    """
    from torch._inductor.cudagraph_utils import format_default_skip_message

    devices = {device: node for device, node in device_node_mapping.items() if device.type != "meta"}
    for device, node in devices.items():
        if device.type == "cpu":
            return format_default_skip_message(f"work on the CPU ({node.name})")
    if len(devices) > 1:
        return format_default_skip_message(f"several devices: {', '.join(sorted(map(str, devices)))}")
    if incompatible is not None:
        return format_default_skip_message(f"an operator that graphs do not record: {incompatible.target}")
    return None
