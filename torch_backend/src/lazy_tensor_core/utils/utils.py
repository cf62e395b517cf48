"""Small helpers of training programs: torch_backend.xla.utils.utils."""

from torch_backend.xla.utils.utils import *  # noqa: F403
