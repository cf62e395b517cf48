"""A message at the end of a process in which accelerate, and so transformers' Trainer, chose the CPU although the
device was active.

accelerate stores the device that it chose for the process, so this is detected without changing accelerate. It has
no hook for the choice itself. Other libraries do not store their choice.
"""

from __future__ import annotations

import sys

from .. import _registry, ops
from . import _hook


def sentence() -> str:
    """Returns the message, or "" if another device was chosen, the user requested the CPU, or the device was used."""
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    chosen = getattr(state, "_shared_state", {})
    device = chosen.get("device")
    if device is None or device.type != "cpu" or chosen.get("_cpu") or "accelerate" in _hook.enabled:
        return ""
    if any(row.native or row.fallback for row in ops.report()):
        return ""
    name = _registry.device_name()
    return (
        f"torch_backend: accelerate chose the CPU, since it does not know '{name}', and nothing was computed on '{name}'. "
        "Set TORCH_BACKEND_INTEGRATIONS=1, or call torch_backend.integrations.enable() before it chooses; "
        "Accelerator(cpu=True) keeps the CPU."
    )


def tell() -> None:
    """Prints the message, if there is one; called when the interpreter ends."""
    try:
        text = sentence()
    except Exception:  # an error must not disturb the exit, whatever the version of accelerate
        return
    if text:
        print(text, file=sys.stderr)
