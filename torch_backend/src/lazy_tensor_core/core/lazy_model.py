"""Devices of the type "lazy", steps, saving, and what replicas exchange: torch_backend.xla.core.xla_model under Lazy Tensors Core's names."""

from torch_backend.xla.core.xla_model import (
    REDUCE_AND,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_MUL,
    REDUCE_OR,
    REDUCE_SUM,
    add_step_closure,
    all_gather,
    all_reduce,
    all_to_all,
    collective_permute,
    do_on_ordinals,
    fork_rng,
    get_local_ordinal,
    get_memory_info,
    get_ordinal,
    get_rng_state,
    is_master_ordinal,
    mark_step,
    master_print,
    mesh_reduce,
    optimizer_step,
    reduce_gradients,
    reduce_scatter,
    rendezvous,
    save,
    set_replication,
    set_rng_state,
    wait_device_ops,
)
from torch_backend.xla.core.xla_model import get_xla_supported_devices as get_lazy_supported_devices
from torch_backend.xla.core.xla_model import is_xla_tensor as is_lazy_tensor
from torch_backend.xla.core.xla_model import xla_device as lazy_device
from torch_backend.xla.core.xla_model import xla_device_hw as lazy_device_hw
from torch_backend.xla.core.xla_model import xla_real_devices as lazy_real_devices
from torch_backend.xla.core.xla_model import xla_replication_devices as lazy_replication_devices
from torch_backend.xla.core.xla_model import xrt_world_size as lrt_world_size

__all__ = [
    "REDUCE_AND", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_MUL", "REDUCE_OR", "REDUCE_SUM", "add_step_closure", "all_gather", "all_reduce", "all_to_all",
    "collective_permute", "do_on_ordinals", "fork_rng", "get_lazy_supported_devices", "get_local_ordinal", "get_memory_info", "get_ordinal", "get_rng_state",
    "is_lazy_tensor", "is_master_ordinal", "lazy_device", "lazy_device_hw", "lazy_real_devices", "lazy_replication_devices", "lrt_world_size", "mark_step",
    "master_print", "mesh_reduce", "optimizer_step", "reduce_gradients", "reduce_scatter", "rendezvous", "save", "set_replication", "set_rng_state",
    "wait_device_ops",
]  # fmt: skip
