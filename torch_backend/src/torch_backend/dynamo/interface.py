"""The device in the terms of TorchDynamo and inductor (torch._dynamo.device_interface)."""

from __future__ import annotations

import dataclasses
import types

import torch
from torch._dynamo.device_interface import DeviceInterface, caching_worker_current_devices, caching_worker_device_properties

from torch_backend import _builds, _hal, backend
from torch_backend.backend import _utils
from torch_backend.triton import _registration as _triton


_CPU = 1 << 5  # HAL_DEVICE_CPU of hal/plugin.h
_LEAST_WARP = 32  # with less, inductor would split reductions into parts of a few elements


def _properties(index: int) -> types.SimpleNamespace:
    """Returns the properties that inductor uses to split reductions: the threads that a unit runs at the same time. A
    unit of a CPU runs one group of 256 items.
    """
    known = backend.get_device_properties(index)
    facts = {field.name: getattr(known, field.name) for field in dataclasses.fields(known)}
    facts["warp_size"] = max(known.warp_size, _LEAST_WARP)
    facts["max_threads_per_multi_processor"] = 256 if known.flags & _CPU else 2048
    return types.SimpleNamespace(**facts)


def plugin_versions() -> list[tuple]:
    """Returns name, version, ABI and number of devices of each plugin, for the keys of caches; starts no device."""
    return [(plugin.name, plugin.version, plugin.abi, plugin.device_count) for plugin in _hal.plugins()]


class Interface(DeviceInterface):
    """The device module as an interface of TorchDynamo.

    torch 2.15 and later also call `is_gpu`, `exposes_streams` (inherited: `Stream` is not the base class's),
    `get_cache_system_info`, `get_cpp_device_options` and `get_multi_processor_count` (inherited: the properties have
    that field).
    """

    device = backend.device
    Event = torch.Event
    Stream = torch.Stream

    class Worker:
        """The functions that compile workers may call. Workers are forked, so they must not access the device; they
        read what was recorded before.
        """

        @staticmethod
        def set_device(device: int) -> None:
            caching_worker_current_devices[_utils.name()] = device

        @staticmethod
        def current_device() -> int:
            name = _utils.name()
            return caching_worker_current_devices[name] if name in caching_worker_current_devices else backend.current_device()

        @staticmethod
        def get_device_properties(device=None):
            name = _utils.name()
            if name not in caching_worker_device_properties:
                count = backend.device_count()
                caching_worker_device_properties[name] = [_properties(index) for index in range(count)]
            index = _utils._get_device_index(device, optional=True)
            return caching_worker_device_properties[name][index]

    current_device = staticmethod(backend.current_device)
    set_device = staticmethod(backend.set_device)
    device_count = staticmethod(backend.device_count)
    is_available = staticmethod(backend.is_available)
    stream = staticmethod(backend.stream)
    current_stream = staticmethod(backend.current_stream)
    set_stream = staticmethod(backend.set_stream)
    synchronize = staticmethod(backend.synchronize)
    memory_allocated = staticmethod(backend.memory_allocated)

    @staticmethod
    def exchange_device(device: int) -> int:
        return torch._C._accelerator_exchangeDevice(device)

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        return torch._C._accelerator_maybeExchangeDevice(device)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        backend.set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return backend.current_stream(device_idx).stream_id

    @staticmethod
    def get_compute_capability(device=None) -> int | str:
        """Returns the architecture for which Triton compiles; "" without a Triton for the device."""
        return _triton.architecture(_utils._get_device_index(device, optional=True))

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def is_dtype_supported(dtype: torch.dtype, including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def is_triton_capable(device=None) -> bool:
        """Returns whether Triton is installed with a compiler for the device. Kernels of the program run then; inductor's
        own kernels are Triton's on request only.
        """
        return _triton.has_compiler()

    @staticmethod
    def raise_if_triton_unavailable(device=None) -> None:
        if not _triton.has_compiler():
            raise RuntimeError(f"no installed Triton compiles for '{_utils.name()}': install the Triton backend of the device's vendor")

    @staticmethod
    def is_gpu() -> bool:
        """Returns False. Inductor reads it once, before a device is started, and then generates code for Triton's
        execution model; the device's scheduling, streams and graphs do not depend on it.
        """
        return False

    @classmethod
    def get_cache_system_info(cls) -> dict[str, object]:
        """Returns what invalidates generated code, for the keys of inductor's caches."""
        return {"torch_backend": _builds.version(), "plugins": [list(plugin) for plugin in plugin_versions()]}

    @staticmethod
    def get_cpp_device_options(aot_mode: bool, compile_only: bool) -> tuple[list[str], ...]:
        """Returns the options that generated C++ needs in addition to those for torch: the headers and the library of the
        HAL, for models that are compiled ahead of time. In order: definitions, include folders, compiler and linker
        options, library folders, libraries, other arguments.
        """
        if not aot_mode:
            return [], [], [], [], [], [], []
        return [], [str(_builds.PACKAGE / "include")], [], [], [str(_builds.PACKAGE / "lib")], [":libtorch_backend_hal.so.0"], []
