"""A sentence at the end of a process in which accelerate, and so transformers' Trainer, chose the CPU although our device was active.

accelerate keeps the device that it chose for the process, so this is seen without changing it; when it chooses, nobody is asked. The
other libraries leave no trace of their choice.
"""

from __future__ import annotations

import sys

from .. import _registry, ops
from . import _hook


def sentence() -> str:
    """Gives the sentence, or "" where there is nothing to say: another device was chosen, the user asked for the CPU, ours was used."""
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
    """Prints the sentence, if there is one; called when the interpreter ends."""
    try:
        text = sentence()
    except Exception:  # an end must stay an end, whatever another version of accelerate looks like
        return
    if text:
        print(text, file=sys.stderr)
