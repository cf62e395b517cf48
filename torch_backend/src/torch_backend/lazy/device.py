"""The device type "lazy": tensors that are opaque, always look contiguous, and whose work is put off by itself.

`enable()` makes `torch.ones(2, device="lazy")` work; lazy:N is device N of the loaded plugins. Each tensor wraps one of the device's ordinary
tensors, so views, in-place writes and random numbers are real; between "lazy" and the device's own type data is copied on the device.
"""

from __future__ import annotations

import functools
import types

import torch

from .. import _registry
from .._registry import device_name
from . import _files, _recordings

__all__ = ["enable", "enable_when_active", "is_enabled", "stop"]

_enabled = False
_absent: torch.library.Library | None = None  # answers for the type until there is a plugin


def is_enabled() -> bool:
    """Tells whether tensors of the type "lazy" can be made."""
    return _enabled


def enable(*, lines: bool | None = None) -> None:
    """Makes the device type "lazy" usable for the rest of the process. `lines`: notes the Python line of each operator, as of `torch_backend.lazy.record`, which also tells what is written to files; the first call decides. Raises RuntimeError when no plugin is active, or when another backend has
    taken the type (`torch._lazy.ts_backend.init()`)."""
    global _enabled, _absent
    if _enabled:
        return
    _check_active()
    from torch_backend import _C

    if _absent is not None:
        _absent._destroy()
        _absent = None
    lines = _recordings.wants_lines() if lines is None else lines
    _C.enable_lazy_device(lines, _recordings.debug_level() > 1, _recordings.wants_groups(), *_recordings.text_file())
    _install_opaque()
    _install_autocast()
    _files.install()
    _refuse_other_backend()
    torch._register_device_module("lazy", _Module("torch.lazy", "The device module of torch_backend's devices, for the type lazy: see torch.<name>."))
    _enabled = True


def enable_when_active() -> None:
    """Enables the type, or, when no plugin is active, lets `torch_backend.use` do it; until then an operator of the type raises RuntimeError that says what is missing."""
    global _absent
    if _registry.is_active():
        enable()
    elif _absent is None and not torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", "Lazy"):  # by another backend
        _absent = torch.library.Library("_", "IMPL", "Lazy")
        _absent.fallback(lambda *_, **__: _check_active())
        _registry.when_active(enable)


def _check_active() -> None:
    try:
        device_name()
    except RuntimeError as error:
        raise RuntimeError(f"Lazy tensor backend not registered. Load a plugin (TORCH_BACKEND=<name>, or torch_backend.use(<name>)): {error}") from None


def _refuse_other_backend() -> None:
    """torch's own backend of the type would replace some of the kernels before it finds that it cannot have them all."""

    def _init():
        raise RuntimeError(
            "torch._lazy.ts_backend.init(): the device type 'lazy' is torch_backend's in this process, and can have one backend; use the other one in "
            "another process, which neither imports lazy_tensor_core or torch_backend.xla nor calls torch_backend.lazy.device.enable()"
        )

    torch._C._lazy_ts_backend._init = _init


def stop() -> None:
    """Queues what was put off, and lets the devices' default streams, which eager tensors share, be eager until the next operator of the type."""
    if _enabled:
        from torch_backend import _C

        _recordings.end_kept()
        _C.stop_lazy_device()


def _install_opaque() -> None:
    """What Python asks of a storage, which a lazy tensor does not show: its address is 0, and its values are pickled and copied (copy.copy) as a CPU
    tensor that goes back to the same device."""
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
    """`torch.lazy`: what the devices' own module has, where devices may be said as lazy:N."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(torch.get_device_module(device_name()), name)
        if (isinstance(found, type) and name != "device") or not callable(found):  # `device` is a context of one
            return found

        @functools.wraps(found)
        def function(*args, **keywords):
            return found(*map(_own, args), **{key: _own(value) for key, value in keywords.items()})

        return function


def _own(value):
    """A device of the type lazy as that of the devices' own type; anything else is itself."""
    if not isinstance(value, (str, torch.device)) or str(value).partition(":")[0] != "lazy":
        return value
    return torch.device(device_name(), torch.device(value).index)


def _install_autocast() -> None:
    """`torch.autocast("lazy")` and what it is made of: torch has no such setting for the type, so that of c10's type xla, which has no tensors beside ours, is
    the lazy tensors'."""

    def named(original):
        @functools.wraps(original)
        def function(device_type=None, *args, **keywords):
            if device_type is None:  # old forms, which name none
                return original(*args, **keywords)
            return original("xla" if device_type == "lazy" else device_type, *args, **keywords)

        return function

    for module, name in (
        (torch, "is_autocast_enabled"), (torch, "set_autocast_enabled"), (torch, "get_autocast_dtype"), (torch, "set_autocast_dtype"),
        (torch._C, "_is_autocast_available"),
    ):  # fmt: skip
        setattr(module, name, named(getattr(module, name)))
