"""Triton's driver for a device: target, current device and stream, load of binaries, launcher."""

from __future__ import annotations

import abc
import functools
import os
from typing import Callable

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from torch_backend import _C, _hal, _registry, backend

from . import _launcher, _modules
from ._launcher import Plan

_GUIDE = "See 'Triton' in the documentation of torch_backend."
_UNKNOWN = (1 << 31) - 1  # a limit that the plugin does not report
_CACHE_BYTES = 256 << 20  # written between measurements, as Triton's drivers do, if the size of the cache is unknown


class Driver(DriverBase):
    """The base class of Triton's drivers for devices of torch_backend. A vendor's Triton backend (entry point group
    `triton.backends`) has a subclass with these attributes and methods, in its module `driver`:

    Attributes:
        plugin: the name that the plugin reports (`plugin_info`), whose devices it drives.
        dialect: the dialect in which the plugin's `module_load` takes the compiler's binaries.
    """

    plugin = ""
    dialect = "binary"
    compiles = True

    def __init__(self) -> None:
        self.utils = Utils(self)
        self.get_current_device = _C.current_device
        self.get_current_stream = _current_stream
        self.set_current_device = backend.set_device

    @abc.abstractmethod
    def target(self, properties) -> GPUTarget:
        """Returns the compiler's target for a device with these properties (`torch.<name>.get_device_properties`)."""

    def plan(self, metadata) -> Plan:
        """Returns how a kernel with this metadata of the compiler is launched. By default a block has `num_warps` times
        `target.warp_size` threads, and the compiler appends no pointers to the kernel's parameters.
        """
        return Plan((metadata.num_warps * metadata.target.warp_size, 1, 1), metadata.shared)

    # ---- what Triton calls ----
    @classmethod
    def is_active(cls) -> bool:
        """Returns whether the first plugin of this process is the driver's."""
        return _first_plugin() == cls.plugin != ""

    def get_current_target(self) -> GPUTarget:
        """Returns the compiler's target for the current device.

        Raises:
            RuntimeError: the device belongs to another plugin.
        """
        return _target(self, _C.current_device())

    def launcher_cls(self, src, metadata) -> Callable:
        """Returns the launcher of a compiled kernel on the current device."""
        return _launcher.build(metadata.name, _C.current_device(), list(src.signature.values()), self.plan(metadata))

    def get_active_torch_device(self) -> torch.device:
        """Returns the current device."""
        return torch.device(_registry.type_name(), _C.current_device())

    def get_device_interface(self):
        """Returns the device module, torch.<name>."""
        return backend

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Returns the device's compute capability; (0, 0) for a device that has none."""
        properties = backend.get_device_properties(device)
        return properties.major, properties.minor

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Returns the C++ type of an argument in Triton's notation."""
        if ty[0] == "*":
            return "void*"
        kind, bits = ty[0], ty[1:]
        return {"i": f"int{bits if bits != '1' else '8'}_t", "u": f"uint{bits if bits != '1' else '8'}_t"}.get(kind, "double" if ty == "fp64" else "float")

    def get_benchmarker(self) -> Callable:
        """Returns Triton's function that measures kernels by the device's events."""
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Returns memory that is larger than the device's last cache."""
        cache = 4 * backend.get_device_properties().L2_cache_size or _CACHE_BYTES
        return torch.empty(cache // 4, dtype=torch.int, device=self.get_active_torch_device())

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Writes that memory, so that the next kernel finds none of its data in the cache."""
        cache.zero_()


class Utils:
    """The functions of a driver that load binaries and report properties, in the form in which Triton calls them."""

    def __init__(self, driver: Driver):
        self._driver = driver

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Loads a kernel; returns the HAL's module and kernel, the kernel's registers, the 32-bit words of memory that
        each thread has beyond registers, and the most threads of a block.

        Raises:
            OutOfResources: a block has less shared memory than the kernel needs. The autotuner tries other
            configurations then.
            NotImplementedError: the plugin does not take the driver's dialect.
        """
        from triton.runtime.errors import OutOfResources

        kernel = _modules.load(device, self._driver.dialect, name, binary, 1, 0)
        if shared > (kernel.max_shared or _UNKNOWN):
            _modules.unload(kernel.module)
            raise OutOfResources(shared, kernel.max_shared, "shared memory")
        return kernel.module, kernel.handle, kernel.registers, kernel.local_bytes // 4, kernel.max_threads or _UNKNOWN

    def unload_module(self, module: int) -> None:
        """Waits for the module's device, then unloads the module."""
        _modules.unload(module)

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Returns the properties that Triton reads, under its names."""
        known = backend.get_device_properties(device)
        return {"max_shared_mem": _most_shared(self._driver, device), "multiprocessor_count": known.multi_processor_count,
                "max_num_regs": known.regs_per_multiprocessor, "warpSize": known.warp_size, "sm_clock_rate": known.clock_rate,
                "mem_clock_rate": known.memory_clock_rate, "mem_bus_width": known.memory_bus_width, "arch": known.architecture}  # fmt: skip


class CudaDriver(Driver):
    """Drives the plugin cuda with stock Triton, whose compiler for NVIDIA needs no GPU."""

    plugin = "nvgpu"  # the name that the plugin cuda reports
    dialect = "cubin"

    def target(self, properties) -> GPUTarget:
        return GPUTarget("cuda", properties.major * 10 + properties.minor, 32)

    def plan(self, metadata) -> Plan:
        from triton.runtime import _allocation

        scratch = [(getattr(metadata, f"{kind}_scratch_size"), getattr(metadata, f"{kind}_scratch_align"), getattr(_allocation, allocator))
                   for kind, allocator in (("global", "_allocator"), ("profile", "_profile_allocator")) if hasattr(metadata, f"{kind}_scratch_size")]  # fmt: skip
        ordinary = super().plan(metadata)
        return ordinary._replace(scratch=tuple(scratch), ctas=metadata.num_ctas, cooperative=metadata.launch_cooperative_grid,
                                 overlap=getattr(metadata, "launch_pdl", False))  # fmt: skip

    def launcher_cls(self, src, metadata) -> Callable:
        from . import _descriptors

        return _descriptors.launcher(super().launcher_cls, src, metadata)


class NoCompiler(Driver):
    """The driver of a device for which no installed Triton compiles: each kernel is an error with the cure."""

    compiles = False

    def target(self, properties) -> GPUTarget:
        raise AssertionError("get_current_target raises")

    def get_current_target(self) -> GPUTarget:
        raise RuntimeError(_no_compiler(_C.current_device()))


def _current_stream(device: int) -> int:
    """Returns the id of the calling thread's current stream of a device."""
    return torch._C._accelerator_getStream(device).stream_id


def _plugin_of(device: int) -> str:
    """Returns the name of the plugin that a device belongs to."""
    return next((p.name for p in _hal.plugins() if p.first_device <= device < p.first_device + p.device_count), "")


def _first_plugin() -> str:
    plugins = _hal.plugins()  # not whether a device is registered: Triton may be imported while it is being registered
    return plugins[0].name if plugins else ""


@functools.lru_cache(maxsize=None)
def _target(driver: Driver, device: int) -> GPUTarget:
    if _plugin_of(device) != driver.plugin:
        raise RuntimeError(_no_compiler(device))
    return driver.target(backend.get_device_properties(device))


def _no_compiler(device: int) -> str:
    from triton.backends import backends

    plugin, name = _plugin_of(device), _registry.type_name()
    return (f"Triton cannot compile for '{name}:{device}': none of its installed backends ({', '.join(backends) or 'none'}) drives the plugin "
            f"'{plugin}', which takes modules in '{backend.get_device_properties(device).dialects}'. Install the Triton backend of the device's vendor, "
            f"or run the kernel on a device of the plugin cuda. {_GUIDE}")  # fmt: skip


@functools.lru_cache(maxsize=None)
def _most_shared(driver: Driver, device: int) -> int:
    """Returns the shared memory that a block may request. The plugin reports it for a kernel, so this loads an empty one.
    """
    from triton.compiler import ASTSource, compile

    from ._empty import empty

    compiled = compile(ASTSource(empty, {}), target=_target(driver, device))
    kernel = _modules.load(device, driver.dialect, compiled.metadata.name, compiled.kernel, 1, 0)
    _modules.unload(kernel.module)
    return kernel.max_shared or _UNKNOWN


def choose() -> None:
    """Sets Triton's driver for the device, unless the program or Triton has another choice: the variable
    TRITON_DEFAULT_BACKEND, or a driver of another accelerator of torch.
    """
    from triton.backends import backends

    active = [one.driver for one in backends.values() if one.driver.is_active()]
    if not os.environ.get("TRITON_DEFAULT_BACKEND") and all(issubclass(one, Driver) for one in active):
        activate()


def target_of(device: int) -> GPUTarget:
    """Returns the target of the active driver, which compiles for the device. Starts the device."""
    found = active()
    if found is None or not found.compiles:
        raise RuntimeError(_no_compiler(device))
    return _target(found, device)


def activate() -> None:
    """Sets Triton's driver to that of the device, in place of another accelerator's. Triton has one driver at a time."""
    from triton.backends import Backend, backends
    from triton.runtime.driver import driver

    from . import _compiler

    of_vendors = [one for one in backends.values() if issubclass(one.driver, Driver) and one.driver.is_active()]
    if of_vendors:
        # Triton finds the vendor's driver by its own entry, so that of the device type is not active.
        vendor = of_vendors[0]
        hidden = type(vendor.driver.__name__, (vendor.driver,), {"is_active": classmethod(lambda cls: False)})
        _compiler.register(_registry.type_name(), Backend(vendor.compiler, hidden))
        driver.set_active(vendor.driver())
    elif CudaDriver.is_active() and "nvidia" in backends:
        _compiler.register(_registry.type_name(), Backend(backends["nvidia"].compiler, CudaDriver))
        driver.set_active(CudaDriver())
    else:
        driver.set_active(NoCompiler())


def active() -> Driver | None:
    """Returns Triton's driver if it is one for the device, else None. Starts no device."""
    from triton.runtime.driver import driver

    try:
        found = driver.active
    except RuntimeError:  # several drivers are active, or none
        return None
    return found if isinstance(found, Driver) else None
