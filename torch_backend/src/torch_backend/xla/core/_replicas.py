"""Replicas that are threads of one process: they exchange values at a meeting point."""

from __future__ import annotations

import threading

from . import _devices


class Replicas:
    """Threads that train together, each with its device, and where they meet. A replica that has left, by an exception or at its end, is not
    waited for."""

    def __init__(self, devices):
        self.devices = [str(device) for device in devices]
        self._values = [None] * len(self.devices)
        self._changed = threading.Condition()
        self._joined, self._arrived, self._meetings, self._left = set(), 0, 0, False

    def gather(self, value, take=None):
        """Returns the values of all replicas in their order, each after `take`. Raises RuntimeError when a replica has left."""
        try:
            self._values[_devices.context.index] = value
            self._meet()
            values = [take(one) if take else one for one in self._values]
            self._meet()  # no replica writes its value, or passes the next one, before all have taken theirs
            return values
        except Exception:
            self.leave()
            raise

    def _meet(self) -> None:
        with self._changed:
            meeting = self._meetings
            self._arrived += 1
            if self._arrived == len(self.devices):
                self._arrived, self._meetings = 0, meeting + 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._meetings != meeting or self._left)
            if self._meetings == meeting:
                raise RuntimeError(f"replica {_devices.context.index} of {len(self.devices)} waits for one that has failed or ended")

    def join(self, index: int) -> _Membership:
        """Adds a replica. It leaves when the result is destroyed."""
        with self._changed:
            self._joined.add(index)
        return _Membership(self)

    def takes(self, index: int) -> bool:
        """Returns whether a replica may begin here: not again once one has left, but late, to learn of that."""
        with self._changed:
            return not self._left or index not in self._joined

    def leave(self) -> None:
        """Ends the waits for this replica, now and later, with an error."""
        with self._changed:
            self._left = True
            self._changed.notify_all()


class _Membership:
    """Held by a thread, whose thread-local values are destroyed with it."""

    def __init__(self, replicas: Replicas):
        self.replicas = replicas

    def __del__(self):
        self.replicas.leave()


def set_replication(device, devices) -> None:
    """Makes the calling thread the replica on `device`, which becomes the thread's current device. All threads of the group pass the same
    `devices`, in the same order. An empty list ends the membership, as the end of the thread does: replicas that wait for it raise RuntimeError."""
    if not devices:
        _devices.context.replication = _devices.context.membership = None
        return
    names = devices.devices if isinstance(devices, Replicas) else [str(one) for one in devices]
    if str(device) not in names:
        raise ValueError(f"set_replication: device {device} is none of {names}")
    index = names.index(str(device))
    shared = devices if isinstance(devices, Replicas) else _replicas_of(names, index)
    if _devices.replication() is not shared:
        _devices.context.membership = shared.join(index)
    _devices.context.replication, _devices.context.index = shared, index
    _devices.xla_device()


_known: dict[tuple, Replicas] = {}
_lock = threading.Lock()


def _replicas_of(names, index: int) -> Replicas:
    """Returns the same meeting point for all threads that name the same devices; a new one for a replica that begins again."""
    names = tuple(names)
    with _lock:
        if names not in _known or not _known[names].takes(index):
            _known[names] = Replicas(names)
        return _known[names]
