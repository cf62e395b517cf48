"""Saving, random numbers and memory of devices of the type "lazy"."""

from __future__ import annotations

import contextlib
import copy
import sys

import torch
from torch.utils import _pytree

from torch_backend._registry import device_name

from . import _devices, _exchange, _steps


def master_print(*args, fd=None, local: bool = False, flush: bool = False) -> None:
    """Prints only in replica 0; `fd`: sys.stdout by default."""
    if _devices.is_master_ordinal(local=local):
        print(*args, file=fd or sys.stdout, flush=flush)


def mapped(data, kind, function):
    """Returns a copy of nested data in which each instance of `kind` is replaced by `function` of it.

    Containers keep their classes. Dicts also keep their attributes, such as the versions of a state_dict. Other
    objects are traversed if torch.utils._pytree supports them.
    """

    def inner(value):
        return mapped(value, kind, function)

    if isinstance(data, kind):
        return function(data)
    if isinstance(data, dict):
        result = copy.copy(data)
        for key in data:
            result[key] = inner(data[key])
        return result
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(inner, data))
    if isinstance(data, (list, tuple, set, frozenset)):
        return type(data)([inner(one) for one in data])
    return _pytree.tree_map_only(kind, function, data)


def _maybe_convert_to_cpu(data, convert: bool = True):
    """Returns a copy of nested data with its lazy tensors on the CPU. Their work is submitted in one step."""
    _steps.mark_step()
    return mapped(data, torch.Tensor, lambda tensor: tensor.cpu() if _devices.is_xla_tensor(tensor) else tensor) if convert else data


def save(data, file_or_path, master_only: bool = True, global_master: bool = False) -> None:
    """Saves nested data by torch.save, with its lazy tensors as CPU tensors.

    Only replica 0 saves, and the others wait for it; with `master_only=False` all save. `global_master`: replica 0
    of all hosts, not of each host.
    """
    writes = not master_only or _devices.is_master_ordinal(local=not global_master)
    data = _maybe_convert_to_cpu(data, convert=writes)
    if writes:
        torch.save(data, file_or_path)
    _exchange.rendezvous("torch_backend.xla.save")


def _index(device) -> int:
    return torch.accelerator.current_device_index() if device is None else _devices._number(device)


_SEED_BITS = 64  # the bits of the seed in a random state; the bits above are the position in its sequence


def _generator(device) -> torch.Generator:
    torch.get_device_module(device_name()).init()
    return torch.get_device_module(device_name()).default_generators[_index(device)]


def set_rng_state(seed: int, device=None) -> None:
    """Seeds the generator of a device, by default the current one. With a result of `get_rng_state`, restores that
    state.
    """
    generator = _generator(device)
    generator.manual_seed(seed & ((1 << _SEED_BITS) - 1) if seed >= 0 else seed)
    generator.set_offset(max(seed, 0) >> _SEED_BITS)


def get_rng_state(device=None) -> int:
    """Returns the state of a device's generator, by default the current one, as a number: the seed, plus the position."""
    generator = _generator(device)
    return generator.initial_seed() | generator.get_offset() << _SEED_BITS


@contextlib.contextmanager
def fork_rng(device=None, enabled: bool = True):
    """Restores the states of the generators of a device and the CPU at the end of a block."""
    if not enabled:
        yield
        return
    with torch.random.fork_rng([_index(device)], device_type=device_name()):
        yield


def get_memory_info(device: torch.device | str | None = None) -> dict[str, int]:
    """Returns `bytes_limit`, `bytes_used` and `peak_bytes_used` of a device's memory in bytes, and `kb_total` and
    `kb_free` in KiB.
    """
    index, module = _index(device), torch.get_device_module(device_name())
    free, total = module.mem_get_info(index)
    return {
        "bytes_limit": total, "bytes_used": module.memory_allocated(index), "peak_bytes_used": module.max_memory_allocated(index),
        "kb_total": total // 1024, "kb_free": free // 1024,
    }  # fmt: skip
