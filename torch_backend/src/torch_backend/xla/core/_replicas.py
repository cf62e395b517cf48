"""Replicas that are threads of one process: they exchange values in a shared list, and tensors by collectives of their
devices.
"""

from __future__ import annotations

import threading

import torch

from torch_backend.distributed import _threads

from . import _devices


class Replicas:
    """A group of threads that train together, each with its device. The others do not wait for a replica that has left,
    by an exception or at its end.
    """

    def __init__(self, devices):
        self.devices = [str(device) for device in devices]
        self._values = [None] * len(self.devices)
        self._changed = threading.Condition()
        self._joined, self._arrived, self._meetings, self._left = set(), 0, 0, False
        self._stores: dict[tuple, torch.distributed.HashStore] = {}
        self._groups: dict[tuple, object] = {}

    def gather(self, value, take=None):
        """Returns the values of all replicas in their order, each converted by `take`. Raises RuntimeError if a replica
        has left.
        """
        try:
            self._values[_devices.context.index] = value
            self._meet()
            values = [take(one) if take else one for one in self._values]
            self._meet()  # no replica writes its value, or starts the next exchange, before all have read theirs
            return values
        except Exception:
            self.leave()
            raise

    def group(self, members: tuple):
        """Returns the process group of this replica with others. Called after an exchange that all replicas have come to,
        so that none of them waits in a collective for one that has left.
        """
        index = _devices.context.index
        with self._changed:
            store = self._stores.setdefault(members, torch.distributed.HashStore())
        if (members, index) not in self._groups:
            self._groups[members, index] = _threads.thread_group(store, members.index(index), len(members), name="replicas")
        return self._groups[members, index]

    def _meet(self) -> None:
        with self._changed:
            meeting = self._meetings
            self._arrived += 1
            if self._arrived == len(self.devices):
                self._arrived, self._meetings = 0, meeting + 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._meetings != meeting or self._left)
            if self._meetings == meeting:
                raise RuntimeError(f"replica {_devices.context.index} of {len(self.devices)} waits for a replica that has failed or ended")

    def join(self, index: int) -> _Membership:
        """Adds a replica. It leaves the group when the result is destroyed."""
        with self._changed:
            self._joined.add(index)
        return _Membership(self)

    def takes(self, index: int) -> bool:
        """Returns whether a replica may join this group. After a replica has left, earlier members may not join again;
        others may, and then get the error.
        """
        with self._changed:
            return not self._left or index not in self._joined

    def leave(self) -> None:
        """Ends the current and later waits for this replica with an error."""
        with self._changed:
            self._left = True
            self._changed.notify_all()


class _Membership:
    """A value of a thread, which is destroyed with the thread's other thread-local values."""

    def __init__(self, replicas: Replicas):
        self.replicas = replicas

    def __del__(self):
        self.replicas.leave()


def set_replication(device, devices) -> None:
    """Makes the calling thread the replica on `device`, which becomes the thread's current device.

    All threads of the group pass the same `devices`, in the same order. An empty list, or the end of the thread,
    ends the membership. Replicas that wait for this one then raise RuntimeError.
    """
    if not devices:
        _devices.context.replication = _devices.context.membership = None
        return
    names = devices.devices if isinstance(devices, Replicas) else [str(one) for one in devices]
    if str(device) not in names:
        raise ValueError(f"set_replication: device {device} is not among {names}")
    index = names.index(str(device))
    shared = devices if isinstance(devices, Replicas) else _replicas_of(names, index)
    if _devices.replication() is not shared:
        _devices.context.membership = shared.join(index)
    _devices.context.replication, _devices.context.index = shared, index
    _devices.xla_device()


_known: dict[tuple, Replicas] = {}
_lock = threading.Lock()


def _replicas_of(names, index: int) -> Replicas:
    """Returns the same group for all threads with the same devices, and a new group for a replica that joins again."""
    names = tuple(names)
    with _lock:
        if names not in _known or not _known[names].takes(index):
            _known[names] = Replicas(names)
        return _known[names]
