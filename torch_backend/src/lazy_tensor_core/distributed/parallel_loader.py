"""torch_backend.xla.distributed.parallel_loader."""

from torch_backend.xla.distributed.parallel_loader import *  # noqa: F403
