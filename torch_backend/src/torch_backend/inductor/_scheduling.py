"""Which way inductor goes on the devices that there are."""

from __future__ import annotations

from torch._inductor.scheduler import BaseScheduling

from torch_backend import backend

from ._codegen import HostScheduling, host_visible
from ._launch import takes_source
from ._source import SourceScheduling

HOST, SOURCE, EAGER = "C++ on the host", "kernels from source", "operators"


def way_of_device(index: int) -> str:
    """What a graph on a device becomes; starts the device. Kernels on the device itself come first: beside a GPU that shares its memory
    the host is the slower one."""
    return SOURCE if takes_source(index) else HOST if host_visible(index) else EAGER


def way() -> str:
    """The way of all devices together: inductor has one for a type of devices."""
    ways = {way_of_device(index) for index in range(backend.device_count())}
    return ways.pop() if len(ways) == 1 else EAGER


class Scheduling(BaseScheduling):
    """The scheduling of the device; inductor wants a class. Where there are no kernels, `_extern` leaves nothing to schedule."""

    def __new__(cls, scheduler):
        return HostScheduling(scheduler) if way() == HOST else SourceScheduling(scheduler)
