"""Runs the program of one rank of a large group in one process, and reports its memory and its messages.

Collectives transfer nothing: their results are undefined, and received tensors are all ones. Shapes, memory and the
order of calls are those of the real run; numbers are not.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import time
from collections import Counter
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _registry

_NAME = "torch_backend_dry_run"
# Maps operators of c10d and of functional collectives to names in torch.distributed. Others, such as waits and
# barriers, send nothing.
_WORDS = {
    "allreduce_": "all_reduce", "allreduce_coalesced_": "all_reduce", "all_reduce": "all_reduce", "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce", "all_reduce_coalesced_": "all_reduce",
    "_allgather_base_": "all_gather", "allgather_": "all_gather", "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather", "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter", "reduce_scatter_": "reduce_scatter", "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter", "reduce_scatter_tensor_out": "reduce_scatter",
    "alltoall_": "all_to_all", "alltoall_base_": "all_to_all", "all_to_all_single": "all_to_all",
    "broadcast_": "broadcast", "broadcast": "broadcast", "reduce_": "reduce", "gather_": "gather", "scatter_": "scatter",
    "send": "send", "isend": "send", "recv_": "recv", "recv_any_source_": "recv", "irecv": "recv",
}  # fmt: skip
# Functional collectives call those of c10d. Each is counted once, at the outer call.
_NAMESPACES = ("c10d", "_c10d_functional")


@dataclass
class Report:
    """The result of the dry run of one rank.

    messages: the number of messages by (operator, ranks of the group, bytes). The message is the whole tensor: the
    result of all_gather, the input of reduce_scatter. peak_memory: bytes of device memory. seconds: duration of the
    dry run itself.
    """

    world_size: int
    rank: int
    messages: Counter = field(default_factory=Counter)
    peak_memory: int = 0
    seconds: float = 0.0

    @property
    def calls(self) -> Counter:
        """Returns the number of messages by (operator, ranks of the group)."""
        return self._sums(lambda message: 1)

    @property
    def sent(self) -> Counter:
        """Returns the bytes of all messages by (operator, ranks of the group)."""
        return self._sums(lambda message: message)

    def _sums(self, weight) -> Counter:
        sums: Counter = Counter()
        for (operator, ranks, message), count in self.messages.items():
            sums[operator, ranks] += count * weight(message)
        return sums

    def communication(self, host, link, ranks_per_host: int) -> float:
        """Returns the estimated seconds of all collectives, one after another, by `torch_backend.distributed.model`.
        Groups of consecutive ranks share hosts; send and recv are steps of the link, or copies on the host.
        """
        from . import model

        total = 0.0
        for (operator, ranks, message), calls in self.messages.items():
            if operator in model.OPERATORS:
                total += calls * model.best(operator, ranks, message, host, link, ranks_per_host)[0]
            elif operator == "send":
                total += calls * (link.step(message) if link else model.on_host("broadcast", 2, message, host))
        return total

    def __str__(self) -> str:
        lines = [f"rank {self.rank} of {self.world_size}: {self.peak_memory / (1 << 20):.1f} MiB of device memory at its peak; dry run {self.seconds:.1f} s"]
        sent = self.sent
        for (operator, ranks), calls in sorted(self.calls.items()):
            lines.append(f"  {operator:<15} {ranks:>6} ranks {calls:>8} calls {sent[operator, ranks] / (1 << 20):>12.2f} MiB")
        return "\n".join(lines)


class _Count(TorchDispatchMode):
    """Counts the collectives that a program calls, also those of autograd's threads."""

    def __init__(self, report: Report):
        super().__init__()
        self._report = report

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        namespace, _, name = function._schema.name.partition("::")
        if namespace in _NAMESPACES and name in _WORDS:
            self._note(_WORDS[name], function._schema.arguments, args, kwargs or {})
        result = function(*args, **(kwargs or {}))
        if namespace == "c10d" and _WORDS.get(name) == "recv":
            for tensor in args[0]:  # ones mean agreement in a vote of the ranks, as in the stages of a pipeline
                tensor.fill_(1)
        return result

    def _note(self, operator: str, schema, args, kwargs) -> None:
        given = dict(zip((argument.name for argument in schema), args)) | kwargs
        ranks = _ranks(given)
        whole = max(map(_bytes, given.values()))
        # The call has only one rank's part of the message: in a functional all_gather, and in gather and scatter on
        # ranks other than the root.
        if "process_group" not in given and operator == "all_gather":
            whole *= ranks
        elif operator in ("gather", "scatter") and not _bytes(given["output_tensors" if operator == "gather" else "input_tensors"]):
            whole *= ranks
        self._report.messages[operator, ranks, whole] += 1


def _ranks(given: dict) -> int:
    """Returns the ranks of the group in a call."""
    from torch.distributed.distributed_c10d import _resolve_process_group

    group = given.get("process_group")
    if group is None:
        name = given["group_name"]
        group = _resolve_process_group(name) if isinstance(name, str) else name
    else:
        group = dist.ProcessGroup.unbox(group)
    return group.size()


def _bytes(value) -> int:
    """Returns the bytes of a tensor, or of a list of them."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


def _register() -> None:
    from torch._C._distributed_c10d import FakeProcessGroup

    def create(options, group_options=None):
        return FakeProcessGroup._create_internal(options.group_rank, options.group_size, group_options)

    if _NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(_NAME, create, extended_api=True, devices=["cpu", _registry.type_name()])


@contextlib.contextmanager
def dry_run(world_size: int, rank: int = 0):
    """Runs the block as rank `rank` of `world_size`, without the other ranks. Yields a Report, which is complete when
    the block ends.

    In the block `init_process_group` ignores its arguments and starts no communication. RANK, WORLD_SIZE, LOCAL_RANK
    and LOCAL_WORLD_SIZE have the values of the rank. Groups that still exist at the end of the block are destroyed.
    Source: torch's process group without communication (FakeProcessGroup).

    Raises ValueError if the rank is not in the group, and RuntimeError if a process group exists.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of {world_size} ranks")
    if dist.is_initialized():
        raise RuntimeError("dry_run creates the process group itself; destroy the existing one first")
    _register()
    module = torch.get_device_module(_registry.type_name())
    report = Report(world_size, rank)
    devices = module.device_count()
    settings = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank % devices, "LOCAL_WORLD_SIZE": min(devices, world_size)}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update({name: str(value) for name, value in settings.items()})
    module.reset_peak_memory_stats()
    begin = time.perf_counter()
    try:
        with _without_communication(world_size, rank), _Count(report):
            yield report
    finally:
        module.synchronize()
        report.seconds, report.peak_memory = time.perf_counter() - begin, module.max_memory_allocated()
        if dist.is_initialized():
            dist.destroy_process_group()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def _without_communication(world_size: int, rank: int):
    """Replaces init_process_group, and the functions that send objects, in all modules of torch that have them, until
    the block ends.
    """
    from torch.distributed import device_mesh, distributed_c10d
    from torch.testing._internal.distributed.fake_pg import FakeStore

    real = distributed_c10d.init_process_group

    @functools.wraps(real)
    def init_process_group(backend=None, *args, **kwargs):
        real(_NAME, store=FakeStore(), rank=rank, world_size=world_size)

    replaced = {"init_process_group": init_process_group, **_objects(distributed_c10d)}
    kept = [(module, name, getattr(module, name)) for module in (dist, distributed_c10d, device_mesh) for name in replaced if hasattr(module, name)]
    for module, name, _ in kept:
        setattr(module, name, replaced[name])
    try:
        yield
    finally:
        for module, name, function in kept:
            setattr(module, name, function)


def _objects(c10d) -> dict:
    """Returns replacements of the functions that send Python objects. All ranks have the object of this rank; the
    object of another rank is unknown.
    """

    def all_gather_object(object_list, obj, group=None):
        object_list[:] = [copy.deepcopy(obj) for _ in object_list]

    def gather_object(obj, object_gather_list=None, *args, **kwargs):
        if object_gather_list is not None:
            all_gather_object(object_gather_list, obj)

    def from_source(real):
        signature = inspect.signature(real)

        @functools.wraps(real)
        def receive(*args, **kwargs):
            given = signature.bind(*args, **kwargs).arguments
            group, source = given.get("group"), given.get("src", 0)
            if given.get("group_src") is not None:
                source = c10d.get_global_rank(group or c10d.group.WORLD, given["group_src"])
            if real.__name__ == "recv_object_list" or source != c10d.get_rank():
                raise RuntimeError(f"{real.__name__}: a dry run does not have the object of rank {source}; set the value in the program without "
                                   "communication, for example by input_args, output_args, input_grads and output_grads of PipelineStage")  # fmt: skip
            if real.__name__ == "scatter_object_list":
                given["scatter_object_output_list"][0] = given["scatter_object_input_list"][c10d.get_rank(group)]

        return receive

    names = ("broadcast_object_list", "scatter_object_list", "recv_object_list")
    return {"all_gather_object": all_gather_object, "gather_object": gather_object, "send_object_list": lambda *args, **kwargs: None,
            **{name: from_source(getattr(c10d, name)) for name in names}}  # fmt: skip
