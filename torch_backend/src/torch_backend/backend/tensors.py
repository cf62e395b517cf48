"""Typed tensors and storages, torch.<name>.FloatTensor and the like, and `torch.set_default_tensor_type` with them."""

from __future__ import annotations

import functools

import torch

from ._utils import name

TENSORS = {
    "BFloat16Tensor": torch.bfloat16, "BoolTensor": torch.bool, "ByteTensor": torch.uint8, "CharTensor": torch.int8, "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32, "HalfTensor": torch.float16, "IntTensor": torch.int32, "LongTensor": torch.int64, "ShortTensor": torch.int16,
}  # fmt: skip
STORAGES = {key.replace("Tensor", "Storage"): dtype for key, dtype in TENSORS.items()} | {
    "ComplexDoubleStorage": torch.complex128, "ComplexFloatStorage": torch.complex64,
}  # fmt: skip


class _Type(type):
    """The type of the classes: `isinstance` works with them, but their instances have torch's own classes."""

    def __repr__(cls) -> str:
        return f"<class '{cls.__name__}'>"

    def __instancecheck__(cls, instance) -> bool:
        if not isinstance(instance, cls._base) or instance.dtype != cls.dtype:
            return False
        # avoids torch's warning
        holder = instance._untyped_storage if isinstance(instance, torch.TypedStorage) else instance
        return holder.device.type == name() and cls._is_laid_out(instance)


def _create(kind: str, base: type, module: str, **attributes) -> type:
    """Creates a class. Its name is the whole name, as in `tensor.type(torch.fake.FloatTensor)`, because torch reads it."""
    made = _Type(f"{module}.{kind}", (), {"_base": base, "__module__": module, **attributes})
    made.__qualname__ = kind
    return made


def _new_dense(cls, *args, device: torch.device | None = None) -> torch.Tensor:
    """As torch.FloatTensor: from sizes, from data, from a storage, or another reference to a tensor of the type."""
    where = torch.device(name() if device is None else device)
    if where.type != name():
        raise RuntimeError(f"legacy constructor expects device type: {name()} but device type: {where.type} was passed")
    if not args or all(isinstance(size, int) for size in args) or (len(args) == 1 and isinstance(args[0], torch.Size)):
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args or (0,)
        return torch.empty(sizes, dtype=cls.dtype, device=where)
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        if not isinstance(args[0], cls):
            raise TypeError(f"expected {cls.__name__} (got {args[0].type()})")
        return args[0].detach()
    if len(args) == 1 and isinstance(args[0], (torch.TypedStorage, torch.UntypedStorage)):
        return torch.empty(0, dtype=cls.dtype, device=args[0].device).set_(args[0])
    return getattr(torch, cls.__qualname__)(*args).to(where)


def _new_sparse(cls, *args, device: torch.device | None = None) -> torch.Tensor:
    """As torch.sparse.FloatTensor: from indices, values and sizes."""
    where = torch.device(name() if device is None else device)
    if not args:
        return torch.sparse_coo_tensor((0,), dtype=cls.dtype, device=where)
    return torch.sparse_coo_tensor(*args, dtype=cls.dtype, device=where)


def _new_storage(cls, *args, **options) -> torch.TypedStorage:
    """As torch.FloatStorage: from a size, or from data."""
    return torch.TypedStorage(*args, dtype=cls.dtype, device=torch.device(name(), torch.accelerator.current_device_index()), **options)


def tensor_types(module: str) -> dict[str, type]:
    """Returns the classes of dense tensors and storages by their names in the device module."""
    dense = {"layout": torch.strided, "is_sparse": False, "_is_laid_out": staticmethod(lambda tensor: tensor.layout == torch.strided)}
    tensors = {kind: _create(kind, torch.Tensor, module, dtype=dtype, __new__=_new_dense, **dense) for kind, dtype in TENSORS.items()}
    storages = {
        kind: _create(kind, torch.TypedStorage, module, dtype=dtype, __new__=_new_storage, _is_laid_out=staticmethod(lambda storage: True))
        for kind, dtype in STORAGES.items()
    }
    return tensors | storages


def sparse_types(module: str) -> dict[str, type]:
    """Returns the classes of sparse tensors by their names in the module torch.<name>.sparse."""
    sparse = {"layout": torch.sparse_coo, "is_sparse": True, "_is_laid_out": staticmethod(lambda tensor: tensor.layout == torch.sparse_coo)}
    kinds = {kind: dtype for kind, dtype in TENSORS.items() if kind != "BoolTensor"}
    return {kind: _create(kind, torch.Tensor, module, dtype=dtype, __new__=_new_sparse, **sparse) for kind, dtype in kinds.items()}


def install(types: dict[str, type]) -> None:
    """Makes `torch.set_default_tensor_type` accept the classes or their names: it sets the default dtype and the
    default device.

    The legacy constructor torch.Tensor(...) still creates CPU tensors, as with torch.set_default_device.
    """
    original = torch.set_default_tensor_type
    known = {kind.__name__: kind for kind in types.values()}
    is_set = False

    @functools.wraps(original)
    def set_default_tensor_type(t, /):
        nonlocal is_set
        kind = known.get(t) if isinstance(t, str) else t if t in known.values() else None
        if kind is None:
            original(t)
            if is_set:
                torch.set_default_device(None)
            is_set = False
            return
        if kind._base is not torch.Tensor or not kind.dtype.is_floating_point:
            raise TypeError("only floating-point types are supported as the default type")
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device(name())
        is_set = True

    torch.set_default_tensor_type = set_default_tensor_type
