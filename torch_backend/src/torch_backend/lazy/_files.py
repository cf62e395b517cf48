"""Files and tensors of the device type "lazy": torch.load with map_location, and torch.distributed.checkpoint.

A lazy tensor has no accessible storage. So a file's storage stays on the host, marked with the device, until torch
has created a tensor from it. Then all tensors of the storage are views of one lazy tensor, as they were views of the
storage.
"""

from __future__ import annotations

import collections
import functools
import sys

import torch

from .._imports import after_import
from .._registry import device_name

_MARK = "_torch_backend_lazy"  # attribute of a storage: its _Target


def _bytes(storage) -> torch.Tensor:
    """Returns the bytes of a storage on the host as a tensor."""
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))


class _Target:
    """The device of a storage's tensors, and the lazy tensor of all its bytes, once it exists."""

    def __init__(self, device: torch.device):
        self.device = device
        self.whole: torch.Tensor | None = None

    def refill(self, storage) -> None:
        """Copies the bytes again after they were read: in files of the format before torch 1.6, the bytes follow the
        tensors.
        """
        if self.whole is not None:
            self.whole.copy_(_bytes(storage))

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the lazy view that corresponds to the host tensor's view of its storage."""
        if self.whole is None:
            self.whole = _bytes(tensor.untyped_storage()).to(self.device)
        size = tensor.dtype.itemsize
        count = self.whole.numel() // size
        elements = self.whole[: count * size].view(tensor.dtype)
        return elements.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _place(location: str) -> torch.device | None:
    """Returns the device of a location tag of the type; None for other types."""
    kind, _, number = location.partition(":")
    if kind != "lazy":
        return None
    count = torch.get_device_module(device_name()).device_count()
    if not (number or "0").isdecimal() or int(number or 0) >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on device '{location}', but this process has the devices lazy:0 to lazy:{count - 1}. "
            "Use torch.load with map_location to map your storages to one of them."
        )
    return torch.device("lazy", int(number or 0))


def _deserialize(storage, location: str):
    device = _place(location)
    if device is None:
        return None
    if storage.device.type != "cpu":
        storage = storage.cpu()
    setattr(storage, _MARK, _Target(device))
    return storage


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor that torch has created from a file's storage, as a lazy tensor if the storage is marked."""
    target = getattr(tensor.untyped_storage(), _MARK, None) if tensor.layout is torch.strided and tensor.device.type == "cpu" else None
    if target is None:
        return tensor
    moved = target.view(tensor.detach())
    if tensor.is_conj():
        moved = moved.conj()
    if tensor.is_neg():
        moved = torch._neg_view(moved)
    moved = moved.detach().requires_grad_(tensor.requires_grad)
    moved._backward_hooks = collections.OrderedDict()
    return moved


def _install_checkpoints() -> None:
    """Extends the writer of torch.distributed.checkpoint, which copies tensors of one type to the host and refuses
    others.
    """
    from torch.distributed.checkpoint import filesystem

    def on_host(resolve):
        @functools.wraps(resolve)
        def resolved(item):
            tensor = resolve(item)
            return tensor.detach().cpu() if isinstance(tensor, torch.Tensor) and tensor.device.type == "lazy" else tensor

        return resolved

    for loader in (filesystem._SerialCpuLoader, filesystem._OverlappingCpuLoader):
        original = loader.__init__

        def __init__(self, resolve_fun, *args, _original=original, **keywords):
            _original(self, on_host(resolve_fun), *args, **keywords)

        loader.__init__ = functools.wraps(original)(__init__)


def _install_staging() -> None:
    """Extends the copies to the host of torch.distributed.checkpoint.async_save."""
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager

    original = StateDictStager._offload_tensor

    @functools.wraps(original)
    def _offload_tensor(self, x, *args, **keywords):
        return x.detach().cpu() if x.device.type == "lazy" else original(self, x, *args, **keywords)

    StateDictStager._offload_tensor = _offload_tensor


def _install_old_tensors() -> None:
    """Patches the function that pickles before torch 0.4 call to create a tensor from a storage. Later pickles call
    functions that call it.
    """
    rebuild, later = torch._utils._rebuild_tensor, torch._utils._rebuild_tensor_v2.__code__

    @functools.wraps(rebuild)
    def _rebuild_tensor(storage, storage_offset, size, stride):
        tensor = rebuild(storage, storage_offset, size, stride)
        return tensor if sys._getframe(1).f_code is later else _moved(tensor)

    torch._utils._rebuild_tensor = _rebuild_tensor
    torch._weights_only_unpickler._get_allowed_globals.cache_clear()


def _install_late_bytes() -> None:
    read = torch.UntypedStorage._set_from_file

    @functools.wraps(read)
    def _set_from_file(self, *args, **keywords):
        result = read(self, *args, **keywords)
        target = getattr(self, _MARK, None)
        if target is not None:
            target.refill(self)
        return result

    torch.UntypedStorage._set_from_file = _set_from_file


def install() -> None:
    """Adds the type to torch.load and torch.distributed.checkpoint. Called once per process."""
    torch.serialization.register_package(28, lambda storage: None, _deserialize)
    last = torch._utils._restore_device_fake_mode  # the last step in the creation of each tensor of a file

    @functools.wraps(last)
    def _restore_device_fake_mode(tensor):
        return last(_moved(tensor))

    torch._utils._restore_device_fake_mode = _restore_device_fake_mode
    _install_old_tensors()
    _install_late_bytes()
    after_import("torch.distributed.checkpoint.filesystem", _install_checkpoints)
    after_import("torch.distributed.checkpoint._state_dict_stager", _install_staging)
