"""PyTorch's caching allocator as a simulation: which segments its policy would request for a sequence of allocations.

The rules are those of PyTorch's documentation and default settings: sizes are rounded to 512 bytes; requests of up to 1
MiB come from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, and larger ones have a segment of their own,
rounded to 2 MiB. The smallest free block of the stream that is large enough serves a request, of several the one with
the lowest address. It is split if more than 1 MiB (in the small pool, 512 bytes) remains. Freed blocks are joined with
their neighbors. An allocation never fails.
"""

from __future__ import annotations

import bisect

KIB, MIB = 1 << 10, 1 << 20
ROUND, SMALL_LIMIT, SMALL_SEGMENT, LARGE_SEGMENT, LARGE_LIMIT, SEGMENT_ROUND = 512, MIB, 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB


def rounded(size: int) -> int:
    """Returns the size of the block for a request."""
    return max(ROUND, -(-size // ROUND) * ROUND)


def segment_size(size: int) -> int:
    """Returns the size of the segment that is requested for a block of a rounded size."""
    if size <= SMALL_LIMIT:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE_LIMIT else -(-size // SEGMENT_ROUND) * SEGMENT_ROUND


class _Block:
    __slots__ = ("address", "size", "free", "previous", "next", "pool")

    def __init__(self, address: int, size: int, pool: list):
        self.address, self.size, self.pool = address, size, pool
        self.free = False
        self.previous = self.next = None


class TorchPolicy:
    """The simulated allocator. `reserved` is the size of its segments now."""

    def __init__(self):
        self.reserved = 0
        self._top = 1 << 40  # address of the next segment; segments are not adjacent
        self._pools: dict = {}  # free blocks as sorted lists of (size, address, block), by pool, stream and kind
        self._blocks: dict = {}

    def allocate(self, key, size: int, stream, pool) -> None:
        """Allocates a block, which `free(key)` frees."""
        size = rounded(size)
        small = size <= SMALL_LIMIT
        free = self._pools.setdefault((pool, stream, small), [])
        at = bisect.bisect_left(free, (size, 0))
        if at < len(free):
            block = free.pop(at)[2]
            block.free = False
        else:
            block = self._new_segment(segment_size(size), free)
        rest = block.size - size
        if rest >= ROUND if small else rest > SMALL_LIMIT:
            self._split(block, size)
        self._blocks[key] = block

    def free(self, key) -> None:
        """Frees a block."""
        block = self._blocks.pop(key)
        for other in (block.previous, block.next):
            if other is not None and other.free:
                self._take(other)
                block = self._join(*((other, block) if other is block.previous else (block, other)))
        self._put(block)

    def empty_cache(self) -> None:
        """Frees the segments without blocks in use, except those of private pools."""
        for (pool, _, _), free in self._pools.items():
            if pool is not None:
                continue
            whole = [entry for entry in free if entry[2].previous is None and entry[2].next is None]
            self.reserved -= sum(entry[0] for entry in whole)
            kept = {entry[1] for entry in whole}
            free[:] = [entry for entry in free if entry[1] not in kept]

    def _new_segment(self, size: int, free: list) -> _Block:
        block = _Block(self._top, size, free)
        self._top += size + SEGMENT_ROUND
        self.reserved += size
        return block

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.address + size, block.size - size, block.pool)
        rest.previous, rest.next = block, block.next
        if block.next is not None:
            block.next.previous = rest
        block.next, block.size = rest, size
        self._put(rest)

    @staticmethod
    def _join(low: _Block, high: _Block) -> _Block:
        low.size += high.size
        low.next = high.next
        if high.next is not None:
            high.next.previous = low
        return low

    @staticmethod
    def _put(block: _Block) -> None:
        block.free = True
        bisect.insort(block.pool, (block.size, block.address, block))

    @staticmethod
    def _take(block: _Block) -> None:
        block.free = False
        del block.pool[bisect.bisect_left(block.pool, (block.size, block.address))]
