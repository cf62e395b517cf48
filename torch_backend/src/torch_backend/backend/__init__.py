"""The device module: torch.<name>, with the names and parameters of torch.cuda, based on torch.accelerator.

Device counts, type names and seeding start no device. A device is initialized when it is first used.
"""

from __future__ import annotations

from torch import AcceleratorError, OutOfMemoryError

from . import _utils, amp, graphs, memory, nvtx, pools, random, sensors, sparse, streams, tensors  # noqa: F401
from ._utils import _get_device_index  # noqa: F401  torch.utils and libraries use it
from .amp import get_amp_supported_dtype, is_bf16_supported
from .devices import (
    _is_in_bad_fork,  # noqa: F401  torch.random
    _lazy_init,  # noqa: F401  torch's C++
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    enable_peer_access,
    get_sync_debug_mode,
    init,
    ipc_collect,
    is_available,
    is_initialized,
    set_device,
    set_sync_debug_mode,
    synchronize,
)
from .graphs import (
    Graph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
    register_graph_capture_end_hook,
    register_graph_capture_start_hook,
    register_graph_instantiate_hook,
    register_graph_replay_end_hook,
    register_graph_replay_start_hook,
)
from .memory import (
    MemPool,
    PluggableAllocator,
    caching_allocator_alloc,
    caching_allocator_delete,
    change_current_allocator,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from .properties import (
    DeviceProperties,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    is_tf32_supported,
)
from .random import (
    _get_generator,  # noqa: F401  torch._prims
    _get_rng_state_offset,  # noqa: F401  torch.distributed.tensor
    _set_rng_state_offset,  # noqa: F401
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
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    _sleep,  # noqa: F401  torch's tests
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

has_half = True
has_magma = False

_types = tensors.tensor_types(f"torch.{_utils.name()}")
globals().update(_types)

__all__ = [
    "AcceleratorError", "DeviceProperties", "Event", "ExternalStream", "Graph", "MemPool", "OutOfMemoryError", "PluggableAllocator", "Stream",
    "StreamContext", "amp",
    "caching_allocator_alloc", "caching_allocator_delete", "can_device_access_peer", "change_current_allocator", "clock_rate", "current_device",
    "current_stream",
    "default_generators", "default_stream", "device", "device_count", "device_memory_used", "device_of", "empty_cache",
    "enable_peer_access", "get_allocator_backend",
    "get_amp_supported_dtype", "get_arch_list", "get_device_capability", "get_device_name", "get_device_properties", "get_gencode_flags",
    "get_per_process_memory_fraction", "get_rng_state", "get_rng_state_all", "get_stream_from_external", "get_sync_debug_mode", "graph",
    "graph_pool_handle", "graphs", "has_half", "has_magma", "host_memory_stats", "host_memory_stats_as_nested_dict", "init", "initial_seed",
    "ipc_collect", "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized", "is_tf32_supported", "list_gpu_processes",
    "make_graphed_callables", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory", "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "memory_usage", "nvtx", "power_draw", "random", "register_graph_capture_end_hook",
    "register_graph_capture_start_hook", "register_graph_instantiate_hook", "register_graph_replay_end_hook",
    "register_graph_replay_start_hook", "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_host_memory_stats", "reset_peak_memory_stats", "seed", "seed_all",
    "set_device", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream", "set_sync_debug_mode", "sparse", "stream",
    "streams", "synchronize", "temperature", "use_mem_pool", "utilization", *_types,
]  # fmt: skip

_register_with_inductor = None  # set at registration; inductor is imported at its first use


def _inductor_backend_init() -> None:
    """Registers the device with inductor. torch 2.15 and later call it when inductor starts, until the device is
    registered.
    """
    if _register_with_inductor is not None:
        _register_with_inductor()


def __getattr__(name: str):
    if name == "_initialized":  # read by torch.utils.checkpoint
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    if name == "Scheduling":
        # torch 2.13 and 2.14 check whether this attribute exists, and register such a device without a cache key.
        _inductor_backend_init()
    raise AttributeError(f"module 'torch.{_utils.name()}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
