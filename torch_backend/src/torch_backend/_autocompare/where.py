"""Finds where in a program the running operator was called."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

_LIBRARIES = tuple(f"{Path(file).resolve().parent}/" for file in (torch.__file__, Path(__file__).parent))


def line() -> str:
    """Returns the innermost Python line outside of torch and of this package, and the node of autograd that is running."""
    node = torch._C._current_autograd_node()
    place = "at an unknown line"
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(_LIBRARIES) and not frame.filename.startswith("<frozen"):
            place = f"at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
            break
    if node is None:
        return place
    # With torch.autograd.set_detect_anomaly(True) the node has the traceback of its forward pass.
    forward = "".join(node.metadata.get("traceback_", [])[-1:]).strip()
    return f"in the backward pass, node {node.name()}, {place}" + (f"; forward {forward}" if forward else "")
