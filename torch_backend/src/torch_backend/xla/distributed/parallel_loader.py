"""Loaders whose threads copy samples to their devices in advance, and that mark a step before each sample."""

from __future__ import annotations

import itertools
import queue
import threading

import torch

from ..core import xla_model as xm
from ..utils import utils

__all__ = ["MpDeviceLoader", "ParallelLoader", "PerDeviceLoader"]

_END = object()


class _Failure:
    """An exception that is passed to the reader."""

    def __init__(self, error: BaseException):
        self.error = error


class _Queue:
    """A bounded queue that both sides can close, which ends all waits."""

    def __init__(self, size: int):
        self._queue: queue.Queue = queue.Queue(maxsize=max(size, 1))
        self._closed = threading.Event()

    def put(self, value) -> bool:
        """Adds a value. Returns False if the queue was closed."""
        while not self._closed.is_set():
            try:
                self._queue.put(value, timeout=0.1)
                return True
            except queue.Full:
                pass
        return False

    def get(self):
        """Returns the next value, or `_END` if the queue was closed."""
        while not self._closed.is_set():
            try:
                return self._queue.get(timeout=0.1)
            except queue.Empty:
                pass
        return _END

    def close(self) -> None:
        self._closed.set()
        while not self._queue.empty():  # releases the samples
            try:
                self._queue.get_nowait()
            except queue.Empty:
                return


class PerDeviceLoader:
    """An iterator over the samples of one device, created by `ParallelLoader.per_device_loader`. It marks a step every
    `batches_per_execution` samples.
    """

    def __init__(self, loader: ParallelLoader, device):
        self._loader, self._device, self._count = loader, device, 0

    def __iter__(self):
        return self

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def __next__(self):
        if self._count % self._loader.batches_per_execution == 0:
            xm.mark_step()
        item = self._loader.next_item(self._device)
        if item is None:
            xm.mark_step()
            raise StopIteration
        self._count += 1
        return item

    next = __next__

    def close(self) -> None:
        """Ends the loader and its threads."""
        self._loader.close()


class ParallelLoader:
    """Reads a loader in a thread, and copies sample i to `devices[i % n]` in advance.

    If the loader ends in the middle of a round, the samples of that round are dropped. With `fixed_batch_size`, a
    sample is dropped if its size of dimension `batchdim` differs from that of the first one.

    `loader_prefetch_size`, `device_prefetch_size`: the maximum number of samples that wait on the host, and for each
    device. `host_to_device_transfer_threads`: the number of threads that copy to a device; only a single thread
    preserves the order. An exception of the loader is raised by the iterator.
    """

    def __init__(
        self, loader, devices, batchdim: int = 0, batches_per_execution: int = 1, loader_prefetch_size: int = 16, device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1, input_sharding=None, fixed_batch_size: bool = False,
    ):  # fmt: skip
        if batches_per_execution < 1 or host_to_device_transfer_threads < 1:
            raise ValueError("ParallelLoader: batches_per_execution and host_to_device_transfer_threads must be at least 1")
        self.loader, self.devices, self.batches_per_execution = loader, [torch.device(device) for device in devices], batches_per_execution
        if not self.devices:
            raise ValueError("ParallelLoader: expected at least one device")
        self._batchdim, self._fixed = batchdim, fixed_batch_size
        self._read = {device: _Queue(loader_prefetch_size) for device in self.devices}
        self._ready = {device: _Queue(device_prefetch_size) for device in self.devices}
        self._copying = {device: host_to_device_transfer_threads for device in self.devices}
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._read_all, name="loader", daemon=True)]
        for device, _ in itertools.product(self.devices, range(host_to_device_transfer_threads)):
            self._threads.append(threading.Thread(target=self._copy_all, args=(device,), name=f"loader of {device}", daemon=True))
        for thread in self._threads:
            thread.start()

    def per_device_loader(self, device) -> PerDeviceLoader:
        """Returns the iterator over a device's samples."""
        return PerDeviceLoader(self, self._known(device))

    def per_device_samples(self) -> int:
        """Returns the number of samples for each device."""
        return len(self.loader) // len(self.devices)

    def next_item(self, device):
        """Returns the next sample of a device, or None after the last one."""
        item = self._ready[self._known(device)].get()
        if item is _END:
            self._ready[self._known(device)].close()
            return None
        if isinstance(item, _Failure):
            self.close()
            raise item.error
        return item

    def close(self) -> None:
        """Ends the threads and releases their samples. It may be called at any time, also repeatedly."""
        for one in (*self._read.values(), *self._ready.values()):
            one.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _known(self, device) -> torch.device:
        device = torch.device(device)
        if device not in self._ready:
            raise ValueError(f"ParallelLoader: device {device} is not among {[str(one) for one in self.devices]}")
        return device

    def _rounds(self):
        """Yields lists with one sample for each device."""
        size, batch = None, []
        for sample in self.loader:
            if self._fixed:
                now = self._batch_size(sample)
                size = now if size is None else size
                if now != size:
                    continue
            batch.append(sample)
            if len(batch) == len(self.devices):
                yield batch
                batch = []

    def _batch_size(self, sample):
        sizes: list = []
        utils.for_each_instance(sample, lambda value: isinstance(value, torch.Tensor), lambda value: sizes.append(value.size(self._batchdim)))
        return sizes[0] if sizes else None

    def _read_all(self) -> None:
        try:
            for batch in self._rounds():
                for device, sample in zip(self.devices, batch):
                    if not self._read[device].put(sample):
                        return
            last = _END
        except BaseException as error:  # an exception of the loader, which the iterator raises
            last = _Failure(error)
        for device in self.devices:
            for _ in range(self._copying[device]):
                self._read[device].put(last)

    def _copy_all(self, device: torch.device) -> None:
        while True:
            sample = self._read[device].get()
            if sample is _END or isinstance(sample, _Failure):
                with self._lock:
                    self._copying[device] -= 1
                    last = self._copying[device] == 0
                if last or sample is not _END:
                    self._ready[device].put(sample)
                return
            try:
                sample = xm.send_cpu_data_to_device(sample, device)
            except BaseException as error:
                sample = _Failure(error)
            if not self._ready[device].put(sample) or isinstance(sample, _Failure):
                return


class MpDeviceLoader:
    """A loader whose samples are copied to one device in advance; may be iterated once an epoch. Keyword arguments are
    ParallelLoader's.
    """

    def __init__(self, loader, device, **kwargs):
        self._loader, self._device, self._parallel_loader_kwargs = loader, torch.device(device), kwargs

    def __iter__(self):
        parallel = ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs)
        try:
            yield from parallel.per_device_loader(self._device)
        finally:
            parallel.close()

    def __len__(self) -> int:
        return len(self._loader)
