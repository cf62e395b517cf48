"""Host copies of a call's device tensors, byte for byte.

Tensors of one storage stay views of one memory, with their strides and offsets, and nothing but `memory_copy` of the plugin is asked:
a copy of a strided tensor would be an operator of the device, which may be the one that is wrong.
"""

from __future__ import annotations

import torch

_ALIGNMENT = 64  # bytes; copies keep their addresses modulo this, as vector code may ask
_AROUND = 256  # bytes before and behind a written tensor that are looked at, too


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


def same_bytes(first, second) -> bool:
    """Compares two host tensors of as many bytes; in words, which is many times faster."""
    words = first.numel() // 8 * 8
    return torch.equal(first[:words].view(torch.int64), second[:words].view(torch.int64)) and torch.equal(first[words:], second[words:])


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
        if written:
            begin, end = max(0, begin - _AROUND), min(end + _AROUND, tensor.untyped_storage().nbytes())
        self.begin, self.end = min(self.begin, begin), max(self.end, end)
        self.written |= written

    def read(self):
        """Gives the bytes that the device has now, as a host tensor; waits for the current stream."""
        begin = self.begin // _ALIGNMENT * _ALIGNMENT
        storage = self.tensor.untyped_storage()
        count = max(0, min(self.end, storage.nbytes()) - begin)
        # A contiguous copy of bytes is no operator of the device, and its host memory is aligned.
        return torch.empty(0, dtype=torch.uint8, device=self.tensor.device).set_(storage, begin, (count,), (1,)).to("cpu", copy=True)

    def raw_view(self, host, tensor):
        """Gives what `tensor` is of the storage, of the bytes `host`, without its conjugate and negative bits."""
        begin = self.begin // _ALIGNMENT * _ALIGNMENT // tensor.element_size()
        offset = max(0, tensor.storage_offset() - begin)  # empty tensors may lie anywhere
        return torch.empty(0, dtype=tensor.dtype).set_(host.untyped_storage(), offset, tensor.size(), tensor.stride())

    def view(self, host, tensor):
        """The same with the bits."""
        return with_bits(self.raw_view(host, tensor), tensor)


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
    """What the storages of some tensors held before a call, and host copies of the tensors."""

    def __init__(self, tensors, written: set[int]):
        self.memories: dict[int, Memory] = {}
        # Other tensors of the same memory: the call may change the shapes of those that it was given.
        self.tensors = {id(tensor): tensor.detach() for tensor in tensors}
        self.written = written
        for key, tensor in self._stored():
            memory = self.memories.setdefault(storage_id(tensor), Memory(tensor))
            memory.include(tensor, key in written)
        for memory in self.memories.values():
            memory.before = memory.read()

    def _stored(self):
        return [(key, tensor) for key, tensor in self.tensors.items() if not tensor._is_zerotensor()]

    def copies(self) -> dict[int, torch.Tensor]:
        """Gives {id of a device tensor: its host copy}, of new memory where the call writes."""
        hosts = {key: memory.before.clone() if memory.written else memory.before for key, memory in self.memories.items()}
        made = {}
        for key, tensor in self.tensors.items():
            if tensor._is_zerotensor():
                made[key] = torch._efficientzerotensor(tensor.size(), dtype=tensor.dtype)
            else:
                made[key] = self.memories[storage_id(tensor)].view(hosts[storage_id(tensor)], tensor)
        return made

    def changed(self):
        """Gives the id of a tensor in whose memory bytes changed that the call was not to write, or None."""
        for storage, memory in self.memories.items():
            now, before = memory.read(), memory.before
            if now.numel() != before.numel():  # `out=` gave the storage other memory
                continue
            mine = [(key, tensor) for key, tensor in self._stored() if storage_id(tensor) == storage]
            if memory.written:  # what may change is made equal in both
                before = before.clone()
                for key, tensor in mine:
                    if key in self.written:
                        for host in (now, before):
                            memory.raw_view(host, tensor).zero_()
            if not same_bytes(now, before):
                return next((key for key, _ in mine if key not in self.written), mine[0][0])
        return None
