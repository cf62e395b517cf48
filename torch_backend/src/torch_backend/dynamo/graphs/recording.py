"""A graph of a compiled region for fixed addresses: the inputs are copied or fixed, the outputs are memory of the graph."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence

import torch

from torch_backend import _C
from torch_backend._registry import type_name
from torch_backend.backend.graphs import Graph, graph as capture

KEPT_BYTES = 1 << 16  # larger outputs are never cloned

_capturing = threading.local()
# Addresses of the memory of outputs, with the number of recordings that own it: the address of an output is fixed as
# long as its recording exists.
_managed: dict[int, int] = {}


def host_kernels() -> _C.HostKernels | None:
    """Returns where the recording of this thread keeps its calls of kernels on the host; None if there is none."""
    return getattr(_capturing, "kernels", None)


def is_managed(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor lies in the output of a recording."""
    return tensor.untyped_storage().data_ptr() in _managed


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all elements between a tensor's first and last one, as one dimension."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((extent if tensor.numel() else 0,), (1,))


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy with the same strides, which generated backward passes check."""
    return _flat(tensor).clone().as_strided(tensor.shape, tensor.stride())


def _place(tensor: torch.Tensor, start: torch.Tensor) -> tuple:
    """Returns sizes, strides and the distance of a tensor from another one of the same memory."""
    return tensor.shape, tensor.stride(), tensor.storage_offset() - start.storage_offset()


def _manage(owner, tensor: torch.Tensor) -> None:
    """Makes the address of a tensor's memory fixed as long as `owner` exists."""
    address = tensor.untyped_storage().data_ptr()
    if address:
        _managed[address] = _managed.get(address, 0) + 1
        weakref.finalize(owner, _forget, address)


class _Memory:
    """Memory of a graph that a region returns. Tensors of the program may share it until the next replay."""

    def __init__(self, tensor: torch.Tensor):
        self._tensor = tensor.detach()
        self._storage = tensor.untyped_storage()
        self._users = (0, 0)
        _manage(self, tensor)

    def _count(self) -> tuple[int, int]:
        """Returns the number of tensors, and of references to the one Python object that torch has for the storage."""
        return torch._C._storage_Use_Count(self._storage._cdata), sys.getrefcount(self._storage)

    def count_users(self) -> None:
        """Called when only the recording refers to the memory."""
        self._users = self._count()

    def is_free(self) -> bool:
        """Returns whether no tensor or storage of the program refers to the memory."""
        tensors, references = self._count()
        return tensors <= self._users[0] and references <= self._users[1]

    def is_small(self) -> bool:
        return self._storage.nbytes() <= KEPT_BYTES

    def tensor(self, clone: bool) -> torch.Tensor:
        return _clone(self._tensor) if clone else self._tensor.detach()


def _forget(address: int) -> None:
    _managed[address] -= 1
    if not _managed[address]:
        del _managed[address]


class Recording:
    """A region that has been captured once.

    `copied` are the places of the inputs that each run copies into memory of the recording. `mutated` are those of the
    inputs that the region changes.
    """

    def __init__(self, model: Callable, inputs: Sequence, copied: Sequence[int], mutated: Sequence[int]):
        self._copied = tuple(copied)
        self._returned = tuple(place for place in copied if place in mutated)
        # The key of this recording has their addresses, and the graph their values.
        self._constants = [one for one in inputs if isinstance(one, torch.Tensor) and one.device.type == "cpu"]
        self._kernels = _C.HostKernels()
        self._graph = Graph()
        self._stream: torch.Stream | None = None
        given = [one.detach() if isinstance(one, torch.Tensor) else one for one in inputs]
        for place in self._copied:
            given[place] = torch.empty_strided(given[place].shape, given[place].stride(), dtype=given[place].dtype, device=given[place].device)
        self._buffers = [given[place] for place in self._copied]
        self._flat = [_flat(one) for one in self._buffers]
        self._capture(model, given)

    def _capture(self, model: Callable, given: list) -> None:
        _capturing.kernels = self._kernels
        try:
            with capture(self._graph):
                outputs = model(list(given))
        finally:
            _capturing.kernels = None
        owners = {one.untyped_storage()._cdata: place for place, one in enumerate(given) if isinstance(one, torch.Tensor)}
        memories: dict[int, _Memory] = {}
        # For each output a function of the inputs and of the outputs that are cloned.
        self._outputs = [self._output(one, number, given, owners, memories) for number, one in enumerate(outputs)]
        self._memories = list(memories.values())
        del outputs
        for memory in self._memories:
            memory.count_users()

    def _output(self, output, number: int, given: list, owners: dict, memories: dict) -> Callable:
        if not isinstance(output, torch.Tensor):
            return lambda inputs, clones: output
        storage = output.untyped_storage()._cdata
        if (place := owners.get(storage)) is not None:
            shape, stride, distance = _place(output, given[place])
            if (shape, stride, distance) == _place(given[place], given[place]):
                return lambda inputs, clones: inputs[place]
            return lambda inputs, clones: inputs[place].as_strided(shape, stride, inputs[place].storage_offset() + distance)
        if output.device.type == "cpu":  # where the graph keeps the state of its random numbers, for the backward pass
            _manage(self, output)
            return lambda inputs, clones: output
        if output.device.type != type_name():
            raise NotImplementedError(f"output {number} is on '{output.device}'")
        memory = _Memory(output)
        memories[len(memories)] = memory
        return lambda inputs, clones: memory.tensor(memory in clones)

    def busy(self) -> list[_Memory]:
        """Returns the outputs of the previous run that the program still uses."""
        return [memory for memory in self._memories if not memory.is_free()]

    def output_numbers(self, memories: Sequence[_Memory]) -> list[int]:
        return [number for number, memory in enumerate(self._memories) if memory in memories]

    def run(self, inputs: list, cloned: Sequence[int]) -> list:
        """Replays the graph. `cloned` are the numbers of the outputs that are returned as copies. Empties `inputs`."""
        stream = torch.accelerator.current_stream()
        if self._stream != stream:
            if self._stream is not None:
                stream.wait_stream(self._stream)
            for buffer in self._buffers:
                buffer.record_stream(stream)
            self._stream = stream
        for flat, place in zip(self._flat, self._copied):
            flat.copy_(_flat(inputs[place]))
        self._kernels.begin_replay()
        self._graph.replay()
        for buffer, place in zip(self._buffers, self._copied):
            if place in self._returned:
                inputs[place].copy_(buffer)
        clones = {self._memories[number] for number in cloned}
        results = [output(inputs, clones) for output in self._outputs]
        inputs.clear()
        return results

    def take_failure(self) -> str | None:
        """Returns the message of a kernel on the host that has failed."""
        return self._kernels.take_failure()
