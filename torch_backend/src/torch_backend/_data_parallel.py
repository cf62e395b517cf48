"""torch.nn.DataParallel: its copies and reductions between devices are written for CUDA, so it is refused with an error
message instead of a missing symbol.
"""

from __future__ import annotations

import functools

import torch
from torch.nn.parallel import comm

from . import _registry

_COLLECTIVES = ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather")


def _refusal(what: str) -> NotImplementedError:
    name = _registry.type_name()
    return NotImplementedError(
        f"{what} copies between devices with functions that torch implements for CUDA only, and is not supported on '{name}'. Use the module "
        f"itself on one device, module.to('{name}:0'); a model too large for one device can be split by moving its layers to "
        f"several, layer.to('{name}:1')."
    )


def _of_ours(values) -> bool:
    """Returns whether a nested list or tuple contains a tensor of the device."""
    if isinstance(values, torch.Tensor):
        return values.device.type == _registry.type_name()
    return isinstance(values, (list, tuple)) and any(_of_ours(value) for value in values)


def install() -> None:
    """Replaces the class and the functions that it uses by versions that raise if they would run on the device."""
    init = torch.nn.DataParallel.__init__

    @functools.wraps(init)
    def __init__(self, module, *arguments, **options):
        if torch._utils._get_available_device_type() == _registry.type_name():
            raise _refusal("torch.nn.DataParallel")
        init(self, module, *arguments, **options)

    torch.nn.DataParallel.__init__ = __init__
    for name in _COLLECTIVES:
        _guard(name, getattr(comm, name))


def _guard(name: str, function) -> None:
    @functools.wraps(function)
    def guarded(tensors, *arguments, **options):
        if _of_ours(tensors):
            raise _refusal(f"torch.nn.parallel.comm.{name}")
        return function(tensors, *arguments, **options)

    setattr(comm, name, guarded)
