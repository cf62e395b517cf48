"""torch_backend.xla.distributed.xla_multiprocessing."""

from torch_backend.xla.distributed.xla_multiprocessing import MpModelWrapper, MpSerialExecutor, spawn

__all__ = ["MpModelWrapper", "MpSerialExecutor", "spawn"]
