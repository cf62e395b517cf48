"""Ray Train: a device manager for workers with a resource of the device's name.

Ray knows the resources of its own list of accelerators; workers without one of them compute on the CPU.
"""

from __future__ import annotations

from types import ModuleType

import torch

from torch_backend._registry import device_name

from ._table import Patch, Table, Undo
from ._tools import exchange, together


def _amount() -> float:
    """Returns how many of the device's resources Ray has assigned to this process; 0 if none."""
    import ray

    return ray.get_runtime_context().get_assigned_resources().get(device_name(), 0) if ray.is_initialized() else 0


def _local_rank() -> int:
    """Returns the number of this worker on its machine; 0 in a process that is not a worker of Ray Train."""
    import ray.train

    try:
        return ray.train.get_context().get_local_rank() or 0
    except RuntimeError:
        return 0


def _manager(base: type) -> type:
    """Returns the device manager, a subclass of Ray's interface."""
    from torch_backend import backend

    class DeviceManager(base):
        """The devices of a worker: Ray counts a resource without numbers, so they follow from the worker's local rank."""

        def is_available(self) -> bool:
            return backend.is_available()

        def get_devices(self) -> list[torch.device]:
            amount = _amount() or 1
            first = int(_local_rank() * amount)
            return [torch.device(device_name(), first + index) for index in range(max(1, int(amount)))]

        def set_device(self, device) -> None:
            backend.set_device(device)

        def supports_stream(self) -> bool:
            return True

        def create_stream(self, device: torch.device):
            return backend.Stream(device)

        def get_stream_context(self, stream):
            return backend.stream(stream)

        def get_current_stream(self):
            return backend.current_stream()

    return DeviceManager


def _device_manager(module: ModuleType) -> Undo:
    manager = _manager(module.TorchDeviceManager)
    by_context, by_type = module.get_torch_device_manager_by_context, module.get_torch_device_manager_by_device_type

    def get_torch_device_manager_by_context():
        return manager() if _amount() else by_context()

    def get_torch_device_manager_by_device_type(device_type: str):
        return manager() if device_type.lower() == device_name() else by_type(device_type)

    return together(exchange(by_context, get_torch_device_manager_by_context), exchange(by_type, get_torch_device_manager_by_device_type))


TABLES = [
    Table("ray", ("2.60", "2.61"), [
        Patch("ray.air._internal.device_manager", "Ray Train: the device of workers with a resource of its name", _device_manager),
    ])
]  # fmt: skip
