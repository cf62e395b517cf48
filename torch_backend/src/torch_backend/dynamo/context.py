"""`with torch.<name>.device(index)` in a compiled function."""

from __future__ import annotations

import torch

from .. import backend
from .._registry import type_name
from ..backend import _utils


def device_variable(base: type) -> type:
    """Returns TorchDynamo's variable of the context manager, a subclass of its GenericDeviceVariable."""

    class DeviceVariable(base):
        """Represents torch.<name>.device."""

        _exchange_fn = staticmethod(torch._C._accelerator_exchangeDevice)
        _maybe_exchange_fn = staticmethod(torch._C._accelerator_maybeExchangeDevice)
        _get_device_index_fn = staticmethod(_utils._get_device_index)

        def module_name(self) -> str:
            return f"torch.{type_name()}"

        def python_type(self) -> type:
            return backend.device

    return DeviceVariable
