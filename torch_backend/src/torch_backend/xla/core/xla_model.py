"""Devices of the type "lazy", steps, saving, and exchange between replicas, under torch_xla's names.

Usage: `import torch_backend.xla.core.xla_model as xm`. A replica is a process (of `xla_multiprocessing.spawn`, or of
torch.distributed) or a thread of `data_parallel`. Processes exchange tensors by the collectives of the device's
backend of torch.distributed, or through host memory if the group has no such backend. Threads copy from device to
device.
"""

import torch

from ..utils import utils
from ._devices import (
    check_view_sharing,
    get_local_ordinal,
    get_ordinal,
    get_xla_supported_devices,
    is_master_ordinal,
    is_xla_tensor,
    xla_device,
    xla_device_hw,
    xla_real_devices,
    xla_replication_devices,
    xrt_world_size,
)
from ._exchange import (
    REDUCE_AND,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_MUL,
    REDUCE_OR,
    REDUCE_SUM,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast_master_param,
    collective_broadcast,
    collective_permute,
    mesh_reduce,
    reduce_scatter,
    rendezvous,
)
from ._rates import RateTracker
from ._replicas import set_replication
from ._saving import fork_rng, get_memory_info, get_rng_state, master_print, save, set_rng_state
from ._steps import add_step_closure, mark_step, optimizer_step, reduce_gradients, wait_device_ops


def do_on_ordinals(target, data=(), ordinals=(0,)):
    """Calls `target(*data)` only in the replicas `ordinals`, and returns its value there. All replicas wait for them."""
    mark_step()
    result = target(*data) if get_ordinal() in ordinals else None
    rendezvous("torch_backend.xla.core.xla_model.do_on_ordinals")
    return result


def unlazy(tensors) -> None:
    """Submits deferred work, and waits until the tensors are computed."""
    mark_step(wait=True)


def send_cpu_data_to_device(datas, device, input_sharding=None):
    """Copies CPU tensors in nested data, and those of DataWrapper, to a device."""
    return utils.for_each_instance_rewrite(
        datas, lambda value: isinstance(value, (torch.Tensor, utils.DataWrapper)), lambda value: utils.sent(value, device)
    )


__all__ = [
    "REDUCE_AND", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_MUL", "REDUCE_OR", "REDUCE_SUM", "RateTracker", "add_step_closure", "all_gather", "all_reduce", "all_to_all",
    "broadcast_master_param", "check_view_sharing", "collective_broadcast", "collective_permute", "do_on_ordinals", "fork_rng", "get_local_ordinal",
    "get_memory_info", "get_ordinal", "get_rng_state", "get_xla_supported_devices", "is_master_ordinal", "is_xla_tensor", "mark_step", "master_print",
    "mesh_reduce", "optimizer_step", "reduce_gradients", "reduce_scatter", "rendezvous", "save", "send_cpu_data_to_device", "set_replication", "set_rng_state",
    "unlazy", "wait_device_ops", "xla_device", "xla_device_hw", "xla_real_devices", "xla_replication_devices", "xrt_world_size",
]  # fmt: skip
