"""The device type "lazy": opaque tensors that always appear contiguous, and whose work is deferred automatically.

`enable()` makes `torch.ones(2, device="lazy")` work; lazy:N is device N of the loaded plugins. Each tensor wraps one
of the device's ordinary tensors, so views, in-place writes and random numbers are real. Copies between "lazy" and
the device's own type run on the device.
"""

from __future__ import annotations

import functools
import types

import torch

from .. import _registry
from .._registry import device_name
from . import _files, _recordings, _settings

__all__ = ["enable", "enable_when_active", "is_enabled", "stop"]

_enabled = False
_absent: torch.library.Library | None = None  # implements operators of the type until a plugin is active


def is_enabled() -> bool:
    """Returns whether tensors of the type "lazy" can be created."""
    return _enabled


def enable(*, lines: bool | None = None) -> None:
    """Enables the device type "lazy" for the rest of the process.

    `lines`: records the Python line of each operator, as in `torch_backend.lazy.record`, which also describes the
    output files. The first call decides.

    Raises:
        RuntimeError: no plugin is active, or another backend uses the type (`torch._lazy.ts_backend.init()`).
    """
    global _enabled, _absent
    if _enabled:
        return
    _check_active()
    from torch_backend import _C

    if _absent is not None:
        _absent._destroy()
        _absent = None
    lines = _settings.wants_lines() if lines is None else lines
    _recordings.note_kept()
    _C.enable_lazy_device(lines, _settings.debug_level() > 1, _settings.wants_groups(), *_settings.text_file())
    _install_opaque()
    _install_autocast()
    _files.install()
    _refuse_other_backend()
    torch._register_device_module("lazy", _Module("torch.lazy", "The device module of torch_backend's devices, for the type lazy: see torch.<name>."))
    _enabled = True


def enable_when_active() -> None:
    """Enables the type. If no plugin is active, `torch_backend.use` enables it; until then operators of the type raise
    RuntimeError with what is missing.
    """
    global _absent
    if _registry.is_active():
        enable()
    # registered by another backend
    elif _absent is None and not torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", "Lazy"):
        _absent = torch.library.Library("_", "IMPL", "Lazy")
        _absent.fallback(lambda *_, **__: _check_active())
        _registry.when_active(enable)


def _check_active() -> None:
    try:
        device_name()
    except RuntimeError as error:
        raise RuntimeError(f"Lazy tensor backend not registered. Load a plugin (TORCH_BACKEND=<name>, or torch_backend.use(<name>)): {error}") from None


def _refuse_other_backend() -> None:
    """Prevents torch's own backend of the type from replacing some of the kernels before it fails."""

    def _init():
        raise RuntimeError(
            "torch._lazy.ts_backend.init(): the device type 'lazy' is used by torch_backend in this process, and can have one backend only; use the other one in "
            "another process, which neither imports lazy_tensor_core or torch_backend.xla nor calls torch_backend.lazy.device.enable()"
        )

    torch._C._lazy_ts_backend._init = _init


def stop() -> None:
    """Queues deferred work, and makes the devices' default streams, which eager tensors share, eager until the next
    operator of the type.
    """
    if _enabled:
        from torch_backend import _C

        _recordings.end_kept()
        _C.stop_lazy_device()


def _install_opaque() -> None:
    """Python's access to the storage of a lazy tensor: its address is 0. Its values are pickled and copied (copy.copy)
    as a CPU tensor that returns to the same device.
    """
    original = torch.Tensor._reduce_ex_internal

    @functools.wraps(original)
    def _reduce_ex_internal(self, proto):
        if type(self) in (torch.Tensor, torch.nn.Parameter) and self.device.type == "lazy":
            torch.utils.hooks.warn_if_has_hooks(self)
            return torch._utils._rebuild_device_tensor_from_cpu_tensor, (self.detach().cpu(), self.dtype, str(self.device), self.requires_grad)
        return original(self, proto)

    address = torch.Tensor.data_ptr

    @functools.wraps(address)
    def data_ptr(self):
        return 0 if self.device.type == "lazy" else address(self)

    torch.Tensor._reduce_ex_internal = _reduce_ex_internal
    torch.Tensor.data_ptr = data_ptr


class _Module(types.ModuleType):
    """`torch.lazy`: the devices' own module, which also accepts devices such as lazy:N."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(torch.get_device_module(device_name()), name)
        # `device` is a context manager that takes a device
        if (isinstance(found, type) and name != "device") or not callable(found):
            return found

        @functools.wraps(found)
        def function(*args, **keywords):
            return found(*map(_own, args), **{key: _own(value) for key, value in keywords.items()})

        return function


def _own(value):
    """Returns a device of the type lazy as one of the devices' own type; returns any other value unchanged."""
    if not isinstance(value, (str, torch.device)) or str(value).partition(":")[0] != "lazy":
        return value
    return torch.device(device_name(), torch.device(value).index)


def _install_autocast() -> None:
    """Implements `torch.autocast("lazy")`. torch has no such setting for the type, so lazy tensors use the setting of
    c10's type xla, which has no other tensors in this process.
    """

    def named(original):
        @functools.wraps(original)
        def function(device_type=None, *args, **keywords):
            if device_type is None:  # deprecated functions that name no device type
                return original(*args, **keywords)
            return original("xla" if device_type == "lazy" else device_type, *args, **keywords)

        return function

    for module, name in (
        (torch, "is_autocast_enabled"), (torch, "set_autocast_enabled"), (torch, "get_autocast_dtype"), (torch, "set_autocast_dtype"),
        (torch._C, "_is_autocast_available"),
    ):  # fmt: skip
        setattr(module, name, named(getattr(module, name)))
