"""The accelerator for Lightning and Fabric: devices of torch_backend by index."""

from __future__ import annotations

import torch

from torch_backend import backend
from torch_backend._registry import device_name


def has_collectives() -> bool:
    """Returns whether torch.distributed has a backend for the device."""
    if not torch.distributed.is_available():
        return False
    return device_name() in torch.distributed.Backend.default_device_backend_map


def accelerator(base: type) -> type:
    """Returns the accelerator as a subclass of Lightning's or Fabric's."""

    class TorchBackendAccelerator(base):
        """Devices of the plugins that torch_backend has opened."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != device_name():
                raise ValueError(f"expected a device '{device_name()}', got '{device}'")
            backend.set_device(device)

        def get_device_stats(self, device) -> dict:
            return backend.memory_stats(device)

        def teardown(self) -> None:
            backend.empty_cache()

        @staticmethod
        def parse_devices(devices):
            return indices(devices)

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device(device_name(), index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            # Several devices require several processes, and these require collectives.
            return backend.device_count() if has_collectives() else 1

        @staticmethod
        def is_available() -> bool:
            return backend.is_available()

        @staticmethod
        def name() -> str:
            return device_name()

    return TorchBackendAccelerator


def indices(devices) -> list:
    """Returns the indices of Lightning's `devices`: a number of devices, -1 for all, or a list such as "0,1" or [0, 1]."""
    count = backend.device_count()
    if isinstance(devices, str):
        text = devices.strip()
        devices = [int(part) for part in text.split(",") if part.strip()] if "," in text else int(text)
    if isinstance(devices, bool) or not isinstance(devices, (int, list, tuple)):
        raise TypeError(f"devices={devices!r}: expected a number of devices, or a list of their indices")
    if isinstance(devices, int):
        if devices == 0 or devices < -1:
            raise ValueError(f"devices={devices}: expected a number of devices, or -1 for all {count}")
        devices = range(count) if devices == -1 else range(devices)
    chosen = list(devices)
    if not chosen or len(set(chosen)) != len(chosen) or not all(0 <= index < count for index in chosen):
        raise ValueError(f"devices={chosen}: '{device_name()}' has {count} device(s), 0 to {count - 1}, each may be named once")
    return chosen
