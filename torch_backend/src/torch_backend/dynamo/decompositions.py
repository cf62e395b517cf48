"""Operators that inductor decomposes into slow loops for the host, and calls for devices whose kernels run there.

torch traces a graph with inductor's decompositions before it starts inductor for the device, so they change when torch
defines them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from .._registry import type_name

# Inductor decomposes them into atomic additions.
NOT_DECOMPOSED = (torch.ops.aten.max_pool2d_with_indices_backward.default,)


def install(computes_on_host: Callable[[], bool]) -> None:
    """Called when torch has defined inductor's decompositions. `computes_on_host` returns whether the device's kernels are
    those of the host; it is called while inductor traces.
    """
    from torch._inductor import decomposition

    table = decomposition.decompositions
    for operator in NOT_DECOMPOSED:
        table[operator] = _for_others(table[operator], computes_on_host)
    decomposition.fast_random_decomps.cache_clear()  # a copy of the table


def _for_others(original, computes_on_host):
    """Returns a decomposition that does not apply to tensors of the device if its kernels are those of the host."""

    @functools.wraps(original)
    def decompose(x, *rest, **options):
        return NotImplemented if x.device.type == type_name() and computes_on_host() else original(x, *rest, **options)

    return decompose
