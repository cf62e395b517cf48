"""Groups whose ranks are threads of one process."""

from __future__ import annotations

import datetime


def thread_group(store, rank: int, size: int, timeout: datetime.timedelta = datetime.timedelta(minutes=30), name: str = "threads"):
    """Returns a torch.distributed.ProcessGroup for one of `size` threads of this process, each with a device of its own.

    `store`: a torch.distributed.HashStore, the same one in all threads, used for no other group. The group is not the
    default one: pass it as `group=` to functions of torch.distributed, and as `process_group=` to
    DistributedDataParallel. It has tensors of the device and of the CPU. It ends with its last reference. The ranks
    connect in the first collective. `name`: of the group, in messages and logs. Raises ValueError for a rank outside of the group.
    """
    import torch  # the command line imports this package without torch
    from torch.distributed import PrefixStore, ProcessGroup, distributed_c10d

    from .. import _registry
    from . import _backend

    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} of {size} threads: expected 0 to {size - 1}")
    options = distributed_c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = PrefixStore("ranks", store), rank, size
    options.timeout, options.group_id, options.global_ranks_in_group = timeout, name, list(range(size))
    backend = _backend._create(_backend.NAME, options)
    group = ProcessGroup(PrefixStore("group", store), rank, size)
    kind = ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    for device in ("cpu", _registry.type_name()):
        group._register_backend(torch.device(device), kind, backend)
    group._set_group_name(name)
    return group
