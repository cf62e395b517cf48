"""`graph(check_input_liveness=True)`: a replay raises if a tensor that the capture used, but did not create, has been
freed.
"""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ._utils import name


class InputTracker(TorchDispatchMode):
    """Records the storages that operators use while the mode is active, except those that operators have created
    meanwhile.
    """

    def __init__(self):
        super().__init__()
        self._inputs: dict[int, tuple[StorageWeakRef, str]] = {}
        self._created: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for tensor in self._tensors((args, kwargs)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._created and storage._cdata not in self._inputs:
                what = f"a tensor of size {list(tensor.shape)} and dtype {tensor.dtype}, which {func} used"
                self._inputs[storage._cdata] = (StorageWeakRef(storage), what)
        result = func(*args, **(kwargs or {}))
        self._created.update(
            tensor.untyped_storage()._cdata for tensor in self._tensors(result) if tensor.untyped_storage()._cdata not in self._inputs
        )
        return result

    @staticmethod
    def _tensors(values) -> list[torch.Tensor]:
        leaves = _pytree.tree_leaves(values)
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.device.type == name() and leaf.layout == torch.strided]

    def check(self) -> None:
        """Raises RuntimeError when an input has been freed."""
        freed = [what for reference, what in self._inputs.values() if reference.expired()]
        if freed:
            raise RuntimeError(
                f"replay of a graph whose inputs have been freed: {'; '.join(freed)}. Keep the tensors that a capture uses as long as the graph, "
                "or write new values into them."
            )
