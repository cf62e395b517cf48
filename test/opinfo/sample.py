"""A sample of the operator database, moved to a device: same values, strides, aliasing, conjugate bits and gradient
flags.

Both sides of a comparison are created here from one sample, so that neither run can observe changes of the other to its
operands.
"""

import torch
from torch.utils._pytree import tree_leaves, tree_map

WIDER = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
         torch.complex32: torch.complex128, torch.complex64: torch.complex128}  # fmt: skip


class Placement:
    """Maps tensors, devices and (for the double-precision reference) dtypes of one sample to their counterparts."""

    def __init__(self, device, wide=False):
        self.device, self.wide = device, wide
        self._tensors, self._storages, self._kept = {}, {}, []

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) not in self._tensors:
                self._kept.append(value)  # an id is unique only while its object exists
                self._tensors[id(value)] = self._tensor(value).requires_grad_(value.requires_grad)
            return self._tensors[id(value)]
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self.device)
        if isinstance(value, str) and value == "cpu":
            return self.device
        if self.wide and isinstance(value, torch.dtype):
            return WIDER.get(value, value)
        return value

    def _tensor(self, tensor):
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            return self._convert(tensor)
        if tensor.is_conj():
            return self._tensor(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(self._tensor(torch._neg_view(tensor)))
        storage = tensor.untyped_storage()
        if storage.nbytes() % tensor.itemsize:
            return self._convert(tensor)
        return self._base(storage, tensor.dtype).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).detach()  # fmt: skip

    def _base(self, storage, dtype):
        """The whole storage as a vector: tensors that share it share its counterpart."""
        key = storage._cdata, dtype
        if key not in self._storages:
            self._kept.append(storage)
            self._storages[key] = self._convert(torch.empty(0, dtype=dtype).set_(storage))
        return self._storages[key]

    def _convert(self, tensor):
        if self.wide:
            tensor = tensor.to(WIDER.get(tensor.dtype, tensor.dtype))
        return tensor.to(self.device, copy=True) if tensor.layout == torch.strided else tensor.clone().to(self.device)


class Placed:
    """The operands of one sample on one device; `host`: only the first operand, the others stay on the host."""

    def __init__(self, sample, device, wide=False, host=False):
        place = Placement(device, wide)
        self.input = tree_map(place, sample.input)
        if host:
            place = Placement("cpu", wide)
        self.args, self.kwargs = tree_map(place, (tuple(sample.args), dict(sample.kwargs)))

    def call(self, op):
        return op(self.input, *self.args, **self.kwargs)

    def tensors(self):
        """The distinct tensors among the operands."""
        found = {id(t): t for t in tree_leaves((self.input, self.args, self.kwargs)) if isinstance(t, torch.Tensor)}
        return list(found.values())

    def differentiable(self):
        return [t for t in self.tensors() if t.requires_grad]
