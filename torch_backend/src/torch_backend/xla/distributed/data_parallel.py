"""One network on several devices of a process: a thread for each device, with a copy of the network."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import traceback

import torch

from ..core import _replicas
from ..core import xla_model as xm
from . import parallel_loader

__all__ = ["Context", "DataParallel"]


class Context:
    """Attributes of a thread that remain from one call of DataParallel to the next."""

    def __init__(self, device):
        self.device = device

    def getattr_or(self, name: str, defval):
        """Returns an attribute. If it is missing, sets it to `defval`, or to the result of `defval()`."""
        if not hasattr(self, name):
            setattr(self, name, defval() if callable(defval) else defval)
        return getattr(self, name)


class DataParallel:
    """Trains copies of a network, one for each device; `optimizer_step` averages the gradients.

    `network`: a module, which is copied, or a function that creates one. `device_ids`: devices or their names, by
    default all of the type. An empty list, or no device: the CPU, without threads.
    """

    def __init__(self, network, device_ids=None):
        self._device_ids = xm.get_xla_supported_devices() if device_ids is None else [str(device) for device in device_ids]
        self._native_run = not self._device_ids
        module = network if isinstance(network, torch.nn.Module) else network()
        self._models = [module] if self._native_run else [copy.deepcopy(module).to(device) for device in self._device_ids]
        self._contexts = [Context(torch.device(device)) for device in self._device_ids or ["cpu"]]

    @property
    def devices(self) -> list[str]:
        """Returns the devices' names; empty on the CPU."""
        return list(self._device_ids)

    @property
    def models(self) -> list[torch.nn.Module]:
        """Returns the copies of the network, in the order of `devices`."""
        return self._models

    def __call__(self, loop_fn, loader, fixed_batch_size: bool = False, batchdim: int = 0) -> list:
        """Calls `loop_fn(model, device_loader, device, context)` in a thread for each device, and returns the list of
        results.

        `device_loader` yields pairs (number, sample). If a thread fails, the waits of the others for it end, and its
        exception is raised here. With XLA_PARALLEL_EXIT=1 the exception is printed, and the process ends with status
        17.
        """
        if self._native_run:
            return [loop_fn(self._models[0], enumerate(loader), torch.device("cpu"), self._contexts[0])]
        parallel = parallel_loader.ParallelLoader(loader, self._device_ids, batchdim=batchdim, fixed_batch_size=fixed_batch_size)
        replicas = _replicas.Replicas(self._device_ids)
        results: list = [None] * len(self._device_ids)
        errors: list = []
        threads = [
            threading.Thread(target=self._train, args=(index, loop_fn, parallel, replicas, results, errors)) for index in range(len(self._device_ids))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        parallel.close()
        if errors:
            raise errors[0]
        return results

    def _train(self, index: int, loop_fn, parallel, replicas, results, errors) -> None:
        context = self._contexts[index]
        try:
            xm.set_replication(str(context.device), replicas)
            loader = enumerate(parallel.per_device_loader(context.device))
            results[index] = loop_fn(self._models[index], loader, context.device, context)
            xm.mark_step()
        except BaseException as error:
            if os.environ.get("XLA_PARALLEL_EXIT") == "1":
                traceback.print_exc()
                os._exit(17)
            errors.append(error)
            replicas.leave()
            parallel.close()
        finally:
            with contextlib.suppress(Exception):
                xm.set_replication(None, [])
