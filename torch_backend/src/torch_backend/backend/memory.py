"""The caching allocators of device and pinned host memory: statistics under torch's names, and functions that release
memory.
"""

from __future__ import annotations

import torch
from typing_extensions import deprecated

from torch_backend import _C

from ._utils import Device, existing_index, name
from .history import (
    _allocation_traceback,  # noqa: F401
    _attach_out_of_memory_observer,  # noqa: F401
    _dump_snapshot,  # noqa: F401
    _is_history_enabled,  # noqa: F401
    _record_memory_history,  # noqa: F401
    _save_memory_usage,  # noqa: F401
    _save_segment_usage,  # noqa: F401
    _set_allocator_settings,  # noqa: F401
    _snapshot,  # noqa: F401
    default_fraction,
    memory_snapshot,
)
from .pluggable import PluggableAllocator, change_current_allocator, get_allocator_backend
from .pools import MemPool, use_mem_pool
from .sensors import list_gpu_processes

__all__ = [
    "MemPool", "PluggableAllocator", "caching_allocator_alloc", "caching_allocator_delete", "change_current_allocator", "empty_cache",
    "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats", "host_memory_stats_as_nested_dict", "host_register",
    "host_unregister", "list_gpu_processes", "max_memory_allocated", "max_memory_cached", "max_memory_reserved",
    "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_host_memory_stats", "reset_peak_memory_stats", "set_per_process_memory_fraction", "use_mem_pool",
]  # fmt: skip


def empty_cache() -> None:
    """Returns cached memory that no tensor uses to the devices."""
    _C.empty_cache(-1)


def memory_stats_as_nested_dict(device: Device = None) -> dict:
    """Returns the statistics of a device as nested dictionaries: kind, pool, and current / peak / allocated / freed."""
    return torch._C._accelerator_getDeviceStats(existing_index(device))


def _flatten(nested: dict) -> dict:
    flat = {}

    def add(prefix: str, value) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    add("", nested)
    return dict(sorted(flat.items()))


def memory_stats(device: Device = None) -> dict:
    """Returns the statistics of a device under flat names such as "allocated_bytes.all.current", as
    torch.cuda.memory_stats.
    """
    return _flatten(memory_stats_as_nested_dict(device))


def _bytes(kind: str, what: str, device) -> int:
    return memory_stats_as_nested_dict(device)[kind]["all"][what]


def memory_allocated(device: Device = None) -> int:
    """Returns the number of bytes that tensors use."""
    return _bytes("allocated_bytes", "current", device)


def max_memory_allocated(device: Device = None) -> int:
    """Returns the peak of `memory_allocated` since the start or `reset_peak_memory_stats`, in bytes."""
    return _bytes("allocated_bytes", "peak", device)


def memory_reserved(device: Device = None) -> int:
    """Returns the number of bytes that the allocator has reserved, used or cached."""
    return _bytes("reserved_bytes", "current", device)


def max_memory_reserved(device: Device = None) -> int:
    """Returns the peak of `memory_reserved` since the start or `reset_peak_memory_stats`, in bytes."""
    return _bytes("reserved_bytes", "peak", device)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Sets every peak to the current value."""
    torch._C._accelerator_resetPeakStats(existing_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Sets the totals of allocated and freed memory to zero."""
    torch._C._accelerator_resetAccumulatedStats(existing_index(device))


def host_memory_stats_as_nested_dict() -> dict:
    """Returns the statistics of pinned host memory, added up over the devices that were used, as nested dictionaries.

    "allocations" and "allocated_bytes" count page-locked blocks, used and cached. "active_requests" and
    "active_bytes" count those in use by tensors or by copies. Each has current / peak / allocated / freed. Bytes are
    of blocks rounded up to their size class. "host_alloc_time" and "host_free_time" are times of the plugin's
    functions in microseconds, with total / max / min / count / avg. "num_host_alloc" and "num_host_free" are the
    numbers of calls. All are zero before the first use.
    """
    return _C.host_memory_stats()


def host_memory_stats() -> dict:
    """Returns the statistics of pinned host memory under flat names such as "active_bytes.current", as
    torch.cuda.host_memory_stats.

    `host_memory_stats_as_nested_dict` explains them.
    """
    return _flatten(host_memory_stats_as_nested_dict())


def reset_peak_host_memory_stats() -> None:
    """Sets every peak of pinned host memory to the current value."""
    _C.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Sets the totals, counts and times of pinned host memory to zero."""
    _C.reset_accumulated_host_memory_stats()


def mem_get_info(device: Device = None) -> tuple:
    """Returns the free and total bytes of a device. If its plugin does not report them, the total is the memory that
    this process has allocated.
    """
    return torch._C._accelerator_getMemoryInfo(existing_index(device))


def __getattr__(attribute: str):
    if attribute.lower() == f"{name()}pluggableallocator":  # such as FakePluggableAllocator
        return PluggableAllocator
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


_fractions: dict[int, float] = {}  # by device, if a limit was set


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limits the memory that the allocator may allocate on a device to a fraction of the device's memory.

    A larger allocation raises torch.OutOfMemoryError. A fraction of 1 removes the limit.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"Invalid type for fraction argument, must be `float`, got {fraction!r}")
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: (0, 1]")
    index = existing_index(device)
    total = _C.memory_capacity(index)  # raises if the capacity is unknown
    _C.set_memory_limit(index, 0 if fraction == 1.0 else max(int(total * fraction), 1))  # 0 is no limit
    _fractions[index] = float(fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Returns the fraction that `set_per_process_memory_fraction` or PYTORCH_ALLOC_CONF has set, 1.0 by default."""
    return _fractions.get(existing_index(device), default_fraction())


def _host_range(memory: torch.Tensor | int, size: int | None) -> tuple[int, int]:
    if isinstance(memory, torch.Tensor):
        storage = memory.untyped_storage()
        if storage.device.type != "cpu":
            raise ValueError(f"expected a tensor on the CPU, got one on '{storage.device}'")
        return storage.data_ptr(), storage.nbytes()
    if size is None:
        raise TypeError("host_register: an address needs its size in bytes")
    return memory, size


def host_register(memory: torch.Tensor | int, size: int | None = None, device: Device = None) -> None:
    """Page-locks host memory that exists: that of a tensor on the CPU, or `size` bytes at an address.

    Copies with `non_blocking=True` from and to it do not wait, and `is_pinned()` of its tensors is True. Call
    `host_unregister` before the memory is freed.

    Raises:
        NotImplementedError: the plugin does not page-lock existing memory.
    """
    index = existing_index(device)
    torch.empty(0).pin_memory()  # initializes the device in torch: before that, is_pinned() does not query it
    _C.register_host(index, *_host_range(memory, size))


def host_unregister(memory: torch.Tensor | int, device: Device = None) -> None:
    """Ends `host_register`. Work that uses the memory must be done (`synchronize`)."""
    _C.unregister_host(existing_index(device), _host_range(memory, 0)[0])


def caching_allocator_alloc(size: int, device: Device = None, stream: torch.Stream | int | None = None) -> int:
    """Allocates `size` bytes for work of a stream, by default the device's current one, and returns the address.

    `stream` is a torch.Stream or its `native_handle`. Only `caching_allocator_delete` frees the memory.
    """
    index = existing_index(device)
    if stream is None:
        stream = torch.accelerator.current_stream(torch.device(name(), index))
    if isinstance(stream, torch.Stream):
        if stream.device != torch.device(name(), index):
            raise ValueError(f"caching_allocator_alloc: the stream is of '{stream.device}', the memory of '{name()}:{index}'")
        number = stream.stream_id
    elif isinstance(stream, int):
        number = _C.stream_of_native(index, stream)
    else:
        raise TypeError(
            "Invalid type for stream argument, must be `torch.Stream` or `int` representing a pointer to an existing stream, got "
            f"{stream!r}"
        )
    if number is None:
        raise ValueError(f"caching_allocator_alloc: '{name()}:{index}' has no stream with the native handle {stream:#x}")
    return _C.allocate_raw(index, number, size)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees the memory that `caching_allocator_alloc` returned. Work queued on its stream may still use it."""
    _C.release_raw(mem_ptr)


@deprecated("`memory_cached` has been renamed to `memory_reserved`", category=FutureWarning)
def memory_cached(device: Device = None) -> int:
    """Returns the number of bytes that the allocator has reserved: `memory_reserved`."""
    return memory_reserved(device)


@deprecated("`max_memory_cached` has been renamed to `max_memory_reserved`", category=FutureWarning)
def max_memory_cached(device: Device = None) -> int:
    """Returns the peak of the reserved memory in bytes: `max_memory_reserved`."""
    return max_memory_reserved(device)


@deprecated("`reset_max_memory_allocated` resets all peaks; use `reset_peak_memory_stats`", category=FutureWarning)
def reset_max_memory_allocated(device: Device = None) -> None:
    """Sets every peak to the current value: `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


@deprecated("`reset_max_memory_cached` resets all peaks; use `reset_peak_memory_stats`", category=FutureWarning)
def reset_max_memory_cached(device: Device = None) -> None:
    """Sets every peak to the current value: `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 10240 or unit == "GiB":
            return f"{count:d} {unit}"
        count //= 1024
    raise AssertionError("unreachable")


_SUMMARY = (
    ("Allocated memory", "allocated_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Reserved memory", "reserved_bytes", True),
    ("Non-releasable memory", "inactive_split_bytes", True),
    ("Allocations", "allocation", False),
    ("Active allocations", "active", False),
    ("Segments", "segment", False),
    ("Non-releasable allocations", "inactive_split", False),
)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Returns a table of the statistics as text; with `abbreviated`, without a row for each pool."""
    index = existing_index(device)
    stats = memory_stats_as_nested_dict(index)
    line = "| {:<28} | {:>11} | {:>11} | {:>11} | {:>11} |".format
    rule = "-" * len(line("", "", "", "", ""))
    head = f"| device {index}: out of memory {stats['num_ooms']} times, cache flushed for a retry {stats['num_alloc_retries']} times"
    rows = [rule, f"{head:<{len(rule) - 1}}|", rule, line("", "now", "peak", "total", "freed"), rule]
    for title, kind, is_bytes in _SUMMARY:
        show = _size if is_bytes else str
        for pool in ("all",) if abbreviated else ("all", "large_pool", "small_pool"):
            stat = stats[kind][pool]
            cells = [show(stat[what]) for what in ("current", "peak", "allocated", "freed")]
            rows.append(line(title if pool == "all" else f"  {pool.replace('_', ' ')}", *cells))
    return "\n".join([*rows, rule])
