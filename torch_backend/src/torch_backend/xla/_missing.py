"""Modules of torch_xla that do not exist here: importing one raises an ImportError with what to use in its place."""

from __future__ import annotations

import importlib.abc
import sys

_ADVICE = {
    "distributed.spmd": "use torch.distributed.tensor (DTensor) with torch_backend's process group",
    "distributed.fsdp": "use torch.distributed.fsdp.fully_shard (FSDP2) with torch_backend's process group",
    "distributed.xla_backend": "call torch.distributed.init_process_group() without a backend name: the device's backend is used",
    "distributed.zero_redundancy_optimizer": "use torch.distributed.optim.ZeroRedundancyOptimizer",
    "experimental": "use the functions of torch and of torch_backend; the page 'Migration from torch_xla' lists them",
    "core.functions": "use torch.distributed.nn.functional, whose collectives have gradients",
    "core.dynamo_bridge": "use torch.compile, whose default backend supports the device",
    "tf_saved_model_integration": "use torch.export and torch_backend.xla.stablehlo",
    "torchax": "use torch_backend.lazy",
    "test": "it is torch_xla's own test package",
}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing. It is the last finder, so that it is called only for modules that no other one has."""

    def __init__(self, package: str):
        self.package = package

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith(self.package + "."):
            return None
        name = fullname[len(self.package) + 1 :]
        for known, advice in _ADVICE.items():
            if name == known or name.startswith(known + "."):
                raise ModuleNotFoundError(f"{fullname} is not part of torch_backend: {advice}", name=fullname)
        return None


def report(package: str) -> None:
    """Makes imports of the missing modules of a package explain themselves."""
    if not any(isinstance(finder, _Finder) and finder.package == package for finder in sys.meta_path):
        sys.meta_path.append(_Finder(package))
