"""torch.distributed on the device: the backend "torch_backend", registered when a plugin is activated."""

from ._log import dump, first_difference
from ._threads import thread_group
from ._timeline import plot

__all__ = ["dump", "first_difference", "plot", "thread_group"]
