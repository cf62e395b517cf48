"""torch_backend.xla.distributed.data_parallel."""

from torch_backend.xla.distributed.data_parallel import *  # noqa: F403
