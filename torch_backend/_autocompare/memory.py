"""Host copies of a call's device tensors, byte for byte.

Tensors of one storage stay views of one memory, with their strides and offsets, and nothing but `memory_copy` of the plugin is asked:
a copy of a strided tensor would be an operator of the device, which may be the one that is wrong.
"""

from __future__ import annotations

import torch

_ALIGNMENT = 64  # bytes; copies keep their addresses modulo this, as vector code may ask


def is_plain(tensor) -> bool:
    """Tells whether a tensor is strided memory, so that it can be copied by its bytes."""
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


def extent(tensor) -> tuple[int, int]:
    """Gives the bytes of its storage that a tensor's elements lie in: begin and end."""
    item, first = tensor.element_size(), tensor.storage_offset()
    if tensor.numel() == 0:
        return first * item, first * item
    last = first + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride()))
    return first * item, (last + 1) * item


def storage_id(tensor) -> int:
    """Tells storages apart while they live."""
    return tensor.untyped_storage()._cdata


class Memory:
    """A part of a device storage, and what it held before the call."""

    def __init__(self, tensor):
        self.tensor = tensor  # keeps the storage
        self.begin, self.end = extent(tensor)
        self.written = False
        self.before = None  # bytes on the host

    def include(self, tensor, written: bool) -> None:
        """Takes note of another tensor of the storage."""
        begin, end = extent(tensor)
        self.begin, self.end = min(self.begin, begin), max(self.end, end)
        self.written |= written

    def read(self):
        """Gives the bytes that the device has now, as a host tensor; waits for the current stream."""
        begin = self.begin // _ALIGNMENT * _ALIGNMENT
        storage = self.tensor.untyped_storage()
        count = max(0, min(self.end, storage.nbytes()) - begin)
        # A contiguous copy of bytes is no operator of the device, and its host memory is aligned.
        return torch.empty(0, dtype=torch.uint8, device=self.tensor.device).set_(storage, begin, (count,), (1,)).cpu()

    def view(self, host, tensor):
        """Gives what `tensor` is of the storage, of the bytes `host`."""
        begin = self.begin // _ALIGNMENT * _ALIGNMENT // tensor.element_size()
        offset = max(0, tensor.storage_offset() - begin)  # empty tensors may lie anywhere
        return with_bits(torch.empty(0, dtype=tensor.dtype).set_(host.untyped_storage(), offset, tensor.size(), tensor.stride()), tensor)


def with_bits(host, tensor):
    """Gives a host view the conjugate and negative bits of `tensor`."""
    if tensor.is_complex() and tensor.is_conj():
        host = torch._conj(host)
    return torch._neg_view(host) if tensor.is_neg() else host


def to_host(tensor):
    """Copies a strided device tensor to the host with its strides; a host tensor stays what it is."""
    if tensor.device.type == "cpu":
        return tensor
    if tensor._is_zerotensor():
        return torch.zeros(tensor.size(), dtype=tensor.dtype)
    memory = Memory(tensor)
    return memory.view(memory.read(), tensor)


class Snapshot:
    """What the storages of some device tensors held before a call, and host copies of the tensors."""

    def __init__(self, tensors, written: set[int]):
        self.memories: dict[int, Memory] = {}
        self.tensors, self.written = tensors, written
        for tensor in tensors:
            if tensor._is_zerotensor():
                continue
            memory = self.memories.setdefault(storage_id(tensor), Memory(tensor))
            memory.include(tensor, id(tensor) in written)
        for memory in self.memories.values():
            memory.before = memory.read()

    def copies(self) -> dict[int, torch.Tensor]:
        """Gives {id of a device tensor: its host copy}, of new memory where the call writes."""
        hosts = {key: memory.before.clone() if memory.written else memory.before for key, memory in self.memories.items()}
        made = {}
        for tensor in self.tensors:
            if tensor._is_zerotensor():
                made[id(tensor)] = torch._efficientzerotensor(tensor.size(), dtype=tensor.dtype)
                continue
            key = storage_id(tensor)
            made[id(tensor)] = self.memories[key].view(hosts[key], tensor)
        return made

    def before(self, tensor):
        """Gives a host view of what the tensor held before the call; not to be written."""
        key = storage_id(tensor)
        return self.memories[key].view(self.memories[key].before, tensor)

    def changed(self):
        """Gives a tensor in whose memory bytes changed that the call was not to write, or None."""
        for key, memory in self.memories.items():
            now, before = memory.read(), memory.before
            if now.numel() != before.numel():  # `out=` gave the storage other memory
                continue
            allowed = torch.ones_like(before) if memory.written else None
            for tensor in self.tensors:
                if allowed is not None and id(tensor) in self.written and storage_id(tensor) == key:
                    raw = torch.empty(0, dtype=tensor.dtype)
                    begin = memory.begin // _ALIGNMENT * _ALIGNMENT // tensor.element_size()
                    raw.set_(allowed.untyped_storage(), max(0, tensor.storage_offset() - begin), tensor.size(), tensor.stride()).zero_()
            same = torch.equal(now, before) if allowed is None else not bool(((now != before) & (allowed != 0)).any())
            if not same:
                mine = [t for t in self.tensors if not t._is_zerotensor() and storage_id(t) == key]
                return next((t for t in mine if id(t) not in self.written), mine[0])
        return None
