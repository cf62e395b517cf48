"""Private memory pools."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from torch_backend import _C

from ._utils import Device, existing_index
from .history import memory_snapshot
from .pluggable import raw_allocator

_handles = itertools.count(1)


def new_pool_id() -> tuple[int, int]:
    """Returns an id of memory that graphs and a `MemPool` may share."""
    return (next(_handles), 0)


class MemPool:
    """A private memory pool.

    Memory allocated while the pool is in use (`use_mem_pool`) comes from it. Memory freed to it serves only users of
    the pool, which may be graphs (`pool=MemPool().id`). The pool belongs to the device that uses it first. When the
    pool is destroyed, its memory returns to the device.

    Args:
        allocator: a `memory.PluggableAllocator`, or its `allocator()`, that allocates the pool's segments; by default the
            plugin does.
        use_on_oom: free memory of the pool also serves allocations outside of it that would otherwise fail for lack
        of memory.
        no_split: each allocation has its own segment.
    """

    def __init__(self, allocator=None, use_on_oom: bool = False, no_split: bool = False):
        self._allocator = None if allocator is None else raw_allocator(allocator)
        self.id = new_pool_id()
        self._pool = _C.MemoryPool(self.id, bool(use_on_oom), bool(no_split), self._allocator)

    @property
    def allocator(self) -> _C.PluggableAllocator | None:
        """The pluggable allocator of the pool; None if the plugin allocates."""
        return self._allocator

    def use_count(self) -> int:
        """Returns the number of the pool's users: this object, graphs, and `use_mem_pool` while it is in effect."""
        return self._pool.use_count()

    def snapshot(self, include_traces: bool = True) -> list[dict]:
        """Returns the pool's segments with their blocks: `memory_snapshot(self.id)`."""
        return memory_snapshot(self.id, include_traces=include_traces)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Makes allocations on a device's current stream (default: the current device) use a `MemPool`, in every thread.

    Raises:
        RuntimeError: the stream allocates from a pool already, or the pool belongs to another device.
    """
    if not isinstance(pool, MemPool):
        raise TypeError(f"use_mem_pool: expected a MemPool, got {pool!r:.60}")
    stream = pool._pool.begin(existing_index(device))
    try:
        yield
    finally:
        pool._pool.end(stream)
