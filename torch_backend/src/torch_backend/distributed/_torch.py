"""Wraps functions of torch.distributed that compare the names of backends with those of torch's own.

Source: torch.distributed.distributed_c10d and torch.nn.parallel.distributed.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from datetime import timedelta

import torch

from .._imports import after_import
from . import _attention, _backend, _symmetric


def _with_a_name(function):
    """Wraps init_process_group, so that a group of the device has a name.

    Without a name torch 2.13 and 2.14 assume that Gloo is the group's default backend. The group has no Gloo, so
    DistributedDataParallel fails.
    """

    @functools.wraps(function)
    def init_process_group(backend=None, *args, **kwargs):
        if backend is None and kwargs.get("device_id") is None:
            backend = _backend.NAME
        return function(backend, *args, **kwargs)

    return init_process_group


def _backend_of(group, device: torch.device):
    try:
        return group._get_backend(device)
    except RuntimeError:
        return None


def _with_a_host_leg(function):
    """Wraps monitored_barrier: torch 2.13 and 2.14 accept only groups whose backend is Gloo. The device's backend uses
    Gloo for CPU tensors.
    """

    @functools.wraps(function)
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        from torch.distributed import distributed_c10d as c10d

        joined = c10d._get_default_group() if group is None else group
        if not isinstance(joined, c10d.ProcessGroup) or not _backend.is_ours(_backend_of(joined, torch.device("cpu"))):
            return function(group, timeout, wait_all_ranks)
        if isinstance(timeout, (int, float)):
            timeout = timedelta(seconds=timeout)
        if timeout is None:
            timeout = joined._get_backend(torch.device("cpu")).options._timeout
        return joined.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    return monitored_barrier


def _with_an_end(function):
    """Wraps _coalescing_manager. torch does not end its bracket after an error: later collectives of the group would be
    added to the bracket, and would never run.
    """

    @functools.wraps(function)
    @contextlib.contextmanager
    def _coalescing_manager(group=None, device=None, async_ops=False):
        from torch.distributed import distributed_c10d as c10d

        joined = c10d._get_default_group() if group is None else group
        try:
            with function(joined, device, async_ops) as manager:
                yield manager
        except BaseException:
            c10d._world.pg_coalesce_state.pop(joined, None)
            is_group = device and isinstance(joined, c10d.ProcessGroup)
            backend = _backend_of(joined, torch.device(device)) if is_group else None
            if _backend.is_ours(backend):
                backend._discard_bracket()
            raise

    return _coalescing_manager


def _for_all_devices(function, device: str):
    """Wraps shrink_group: torch registers the new backend for one type of device. The device's backend supports both."""

    @functools.wraps(function)
    def shrink_group(*args, **kwargs):
        group = function(*args, **kwargs)
        types_of_group = {found.type for found in group._device_types}
        backend = next(iter(group._get_backend(found) for found in group._device_types), None)
        if _backend.is_ours(backend):
            for kind in {"cpu", device} - types_of_group:
                group._register_backend(torch.device(kind), torch.distributed.ProcessGroup.BackendType.GLOO, backend)
            group._set_group_name(group.group_name)
        return group

    return shrink_group


def _with_our_timeout(function):
    """Wraps _set_pg_timeout, which dist.breakpoint and training libraries call: torch sets the timeouts of Gloo and NCCL,
    and ignores other backends with a warning.
    """

    @functools.wraps(function)
    def _set_pg_timeout(timeout, group=None):
        from torch.distributed import distributed_c10d as c10d

        joined = c10d._get_default_group() if group is None else group
        backend = _backend_of(joined, torch.device("cpu")) if isinstance(joined, c10d.ProcessGroup) else None
        if not _backend.is_ours(backend):
            return function(timeout, group)
        backend.set_timeout(timeout)

    return _set_pg_timeout


def _for_our_groups(function):
    """Wraps _add_ephemeral_timeout_for_all_pgs, which extends the timeouts of NCCL only."""

    @functools.wraps(function)
    def _add_ephemeral_timeout_for_all_pgs(timeout):
        from torch.distributed import distributed_c10d as c10d

        function(timeout)
        for group in c10d._world.pg_map:
            backend = _backend_of(group, torch.device("cpu"))
            if _backend.is_ours(backend):
                backend._add_ephemeral_timeout(timeout)

    return _add_ephemeral_timeout_for_all_pgs


def _by_device_count(function):
    """Wraps new_subgroups: without `group_size` a group has the ranks of one host, as many as it has devices. torch counts
    those of CUDA.
    """

    @functools.wraps(function)
    def new_subgroups(group_size=None, *args, **kwargs):
        return function(torch.accelerator.device_count() if group_size is None else group_size, *args, **kwargs)

    return new_subgroups


def _gathered_backward(function):
    """Wraps the backward pass of torch.distributed.nn.functional._all_gather_base, which knows NCCL and XCCL only."""

    @functools.wraps(function)
    def backward(ctx, grad_output):
        from torch.distributed import distributed_c10d as c10d

        joined = c10d._get_default_group() if ctx.group is None else ctx.group
        if not _backend.is_ours(_backend_of(joined, grad_output.device)) or grad_output.device.type == "cpu":
            return function(ctx, grad_output)
        size = torch.distributed.get_world_size(joined)
        if grad_output.shape[0] % size:
            raise RuntimeError(f"_all_gather_base: the gradient of the result has {grad_output.shape[0]} rows, which {size} ranks cannot divide")
        part = grad_output.new_empty((grad_output.shape[0] // size, *grad_output.shape[1:]))
        c10d.reduce_scatter_single(part, grad_output.contiguous(), c10d.ReduceOp.SUM, joined)
        return None, part, None

    return staticmethod(backward)


def _install_autograd(module) -> None:
    kind = module._AllGatherBase
    kind.backward = _gathered_backward(kind.backward)


def _for_bfloat16(function, device: str):
    """Wraps DistributedDataParallel._check_comm_hook, which rejects the hooks that compress to bfloat16 if the backend
    is not NCCL or XCCL.
    """

    @functools.wraps(function)
    def check(self, hook):
        if getattr(hook, "__name__", None) in ("bf16_compress_hook", "bf16_compress_wrapper_hook") and self.device_type == device:
            renamed = types.FunctionType(hook.__code__, hook.__globals__, "compress", hook.__defaults__, hook.__closure__)
            renamed.__annotations__ = hook.__annotations__
            hook = renamed
        return function(self, hook)

    return check


def install(device: str) -> None:
    """Wraps the functions, in each module that has them."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import device_mesh, distributed_c10d
    from torch.nn.parallel import DistributedDataParallel

    wrapped = {
        "init_process_group": _with_a_name(distributed_c10d.init_process_group),
        "monitored_barrier": _with_a_host_leg(distributed_c10d.monitored_barrier),
        "_coalescing_manager": _with_an_end(distributed_c10d._coalescing_manager),
        "shrink_group": _for_all_devices(distributed_c10d.shrink_group, device),
        "new_subgroups": _by_device_count(distributed_c10d.new_subgroups),
        "_set_pg_timeout": _with_our_timeout(distributed_c10d._set_pg_timeout),
        "_add_ephemeral_timeout_for_all_pgs": _for_our_groups(distributed_c10d._add_ephemeral_timeout_for_all_pgs),
    }
    for module in (torch.distributed, distributed_c10d, device_mesh):
        for name, function in wrapped.items():
            if hasattr(module, name):
                setattr(module, name, function)
    _symmetric.install(device)
    name = "torch.distributed._symmetric_memory"
    after_import(name, lambda: _symmetric.install_functions(sys.modules[name], device))
    after_import("torch.distributed.tensor", _attention.install)
    after_import("torch.distributed.fsdp", lambda: _symmetric.install_in_fsdp(sys.modules["torch.distributed.fsdp"], device))
    autograd = "torch.distributed.nn.functional"
    after_import(autograd, lambda: _install_autograd(sys.modules[autograd]))
    DistributedDataParallel._check_comm_hook = _for_bfloat16(DistributedDataParallel._check_comm_hook, device)
