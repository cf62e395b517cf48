"""The device module: torch.<name>, in the words of torch.cuda and torch.xpu.

Asking for counts, names of types, or seeding starts no device; a device is initialised when it is first used.
"""

from __future__ import annotations

from . import _utils, amp, graphs, memory, random, sensors, streams
from .amp import get_amp_supported_dtype, is_bf16_supported
from .devices import (
    DeviceProperties,
    _is_in_bad_fork,
    _lazy_init,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from .graphs import Graph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables
from .memory import (
    MemPool,
    empty_cache,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from .random import (
    _get_generator,
    _get_rng_state_offset,
    _set_rng_state_offset,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .sensors import clock_rate, device_memory_used, list_gpu_processes, memory_usage, power_draw, temperature, utilization
from .streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream

from torch import OutOfMemoryError

__all__ = [
    "DeviceProperties", "Event", "Graph", "MemPool", "OutOfMemoryError", "Stream", "StreamContext", "amp", "can_device_access_peer", "clock_rate", "current_device",
    "current_stream", "default_generators", "default_stream", "device", "device_count", "device_memory_used", "device_of", "empty_cache", "get_amp_supported_dtype",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "graph", "graph_pool_handle", "graphs", "host_memory_stats",
    "host_memory_stats_as_nested_dict", "init", "initial_seed", "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized", "list_gpu_processes", "make_graphed_callables",
    "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory", "memory_allocated",
    "memory_reserved", "memory_stats", "memory_stats_as_nested_dict", "memory_summary", "memory_usage", "power_draw", "random",
    "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats", "reset_peak_host_memory_stats",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_per_process_memory_fraction", "set_rng_state",
    "set_rng_state_all", "set_stream", "stream", "streams", "synchronize", "temperature", "use_mem_pool", "utilization",
]  # fmt: skip


_register_with_inductor = None  # set by the registration; inductor is imported when it is first used


def __getattr__(name: str):
    if name == "_initialized":  # read by torch.utils.checkpoint
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    if name == "Scheduling" and _register_with_inductor is not None:
        # Inductor queries whether there is one, and would register it without a key for its cache.
        _register_with_inductor()
    raise AttributeError(f"module 'torch.{_utils.name()}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
