"""Random operators that the backward pass of a region with graphs computes again (torch.utils.checkpoint).

For such a region torch passes generators to both passes. A recorded operator generates numbers from the generator that
it was recorded with, and each replay continues it. Without graphs, the forward pass stores the state of the device's
generator (../recomputed_random.py), so the numbers follow torch.manual_seed.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools

from ..._registry import type_name

_wanted = contextvars.ContextVar("torch_backend_graphs_wanted", default=False)


@contextlib.contextmanager
def generators():
    """In this context, regions are compiled for graphs of the backend "cudagraphs"."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def install() -> None:
    """Called when torch has imported its partitioner of forward and backward passes."""
    from torch._functorch import partitioners
    from torch._functorch._aot_autograd import utils

    register = getattr(utils, "register_graphsafe_rng_device_type", None)
    if register is None or not hasattr(partitioners, "supports_graphsafe_rng"):
        return
    register(type_name())
    original = partitioners.supports_graphsafe_rng

    @functools.wraps(original)
    def supports(device) -> bool:
        return original(device) and (device.type != type_name() or _has_graphs())

    partitioners.supports_graphsafe_rng = supports


def _has_graphs() -> bool:
    """Returns whether the region that is compiled runs as graphs, by either backend."""
    from torch._inductor import config

    return _wanted.get() or config.triton.cudagraphs
