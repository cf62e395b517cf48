"""Host copies of a call's device tensors, byte for byte.

Tensors of one storage remain views of one memory, with their strides and offsets. Only `memory_copy` of the plugin
is used: a copy of a strided tensor would run an operator of the device, possibly the one that is wrong.
"""

from __future__ import annotations

import torch

_ALIGNMENT = 64  # bytes; copies keep their addresses modulo this, because vector code may require it
_AROUND = 256  # bytes before and after a written tensor that are compared, too


def is_plain(tensor) -> bool:
    """Returns whether a tensor is strided memory, so that it can be copied by its bytes."""
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


def extent(tensor) -> tuple[int, int]:
    """Returns the range of bytes of its storage that contains a tensor's elements: begin and end."""
    item, first = tensor.element_size(), tensor.storage_offset()
    if tensor.numel() == 0:
        return first * item, first * item
    last = first + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride()))
    return first * item, (last + 1) * item


def storage_id(tensor) -> int:
    """Returns a number that identifies a storage while it exists."""
    return tensor.untyped_storage()._cdata


def same_bytes(first, second) -> bool:
    """Returns whether two host tensors of the same size have the same bytes. Compares words, which is many times faster."""
    words = first.numel() // 8 * 8
    return torch.equal(first[:words].view(torch.int64), second[:words].view(torch.int64)) and torch.equal(first[words:], second[words:])


class Memory:
    """A range of a device storage, and its contents before the call."""

    def __init__(self, tensor):
        self.tensor = tensor  # holds a reference to the storage
        self.begin, self.end = extent(tensor)
        self.written = False
        self.before = None  # bytes on the host

    def include(self, tensor, written: bool) -> None:
        """Extends the range to another tensor of the storage."""
        begin, end = extent(tensor)
        if written:
            begin, end = max(0, begin - _AROUND), min(end + _AROUND, tensor.untyped_storage().nbytes())
        self.begin, self.end = min(self.begin, begin), max(self.end, end)
        self.written |= written

    def read(self):
        """Returns the current bytes of the device as a host tensor; waits for the current stream."""
        begin = self.begin // _ALIGNMENT * _ALIGNMENT
        storage = self.tensor.untyped_storage()
        count = max(0, min(self.end, storage.nbytes()) - begin)
        # A contiguous copy of bytes runs no operator of the device, and its host memory is aligned.
        return torch.empty(0, dtype=torch.uint8, device=self.tensor.device).set_(storage, begin, (count,), (1,)).to("cpu", copy=True)

    def raw_view(self, host, tensor):
        """Returns the view that `tensor` has of the storage, over the bytes `host`, without its conjugate and negative
        bits.
        """
        begin = self.begin // _ALIGNMENT * _ALIGNMENT // tensor.element_size()
        offset = max(0, tensor.storage_offset() - begin)  # empty tensors may have any offset
        return torch.empty(0, dtype=tensor.dtype).set_(host.untyped_storage(), offset, tensor.size(), tensor.stride())

    def view(self, host, tensor):
        """Returns the same view with the conjugate and negative bits."""
        return with_bits(self.raw_view(host, tensor), tensor)


def with_bits(host, tensor):
    """Sets the conjugate and negative bits of `tensor` on a host view."""
    if tensor.is_complex() and tensor.is_conj():
        host = torch._conj(host)
    return torch._neg_view(host) if tensor.is_neg() else host


def to_host(tensor):
    """Copies a strided device tensor to the host with its strides; returns a host tensor unchanged."""
    if tensor.device.type == "cpu":
        return tensor
    if tensor._is_zerotensor():
        return torch.zeros(tensor.size(), dtype=tensor.dtype)
    memory = Memory(tensor)
    return memory.view(memory.read(), tensor)


class Snapshot:
    """The contents of some tensors' storages before a call, and host copies of the tensors."""

    def __init__(self, tensors, written: set[int]):
        self.memories: dict[int, Memory] = {}
        # Other tensors of the same memory: the call may change the shapes of its own arguments.
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
        """Returns {id of a device tensor: its host copy}, in new memory where the call writes."""
        hosts = {key: memory.before.clone() if memory.written else memory.before for key, memory in self.memories.items()}
        made = {}
        for key, tensor in self.tensors.items():
            if tensor._is_zerotensor():
                made[key] = torch._efficientzerotensor(tensor.size(), dtype=tensor.dtype)
            else:
                made[key] = self.memories[storage_id(tensor)].view(hosts[storage_id(tensor)], tensor)
        return made

    def changed(self):
        """Returns the id of a tensor in whose memory bytes changed that the call must not write, or None."""
        for storage, memory in self.memories.items():
            now, before = memory.read(), memory.before
            if now.numel() != before.numel():  # `out=` replaced the storage's memory
                continue
            mine = [(key, tensor) for key, tensor in self._stored() if storage_id(tensor) == storage]
            if memory.written:  # bytes that may change are made equal in both copies
                before = before.clone()
                for key, tensor in mine:
                    if key in self.written:
                        for host in (now, before):
                            memory.raw_view(host, tensor).zero_()
            if not same_bytes(now, before):
                return next((key for key, _ in mine if key not in self.written), mine[0][0])
        return None
