"""The columns of torch.profiler's tables by the device's name: torch knows them as `device` and, for its own devices, `cuda`, `xpu`."""

from __future__ import annotations

from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg

COLUMNS = ("device_time", "device_time_total", "self_device_time_total", "device_memory_usage", "self_device_memory_usage")


def install(name: str) -> None:
    """Lets `table(sort_by="self_<name>_time_total")` and the like find the device's columns."""
    for column in COLUMNS:
        alias = property(lambda event, column=column: getattr(event, column), doc=f"The same as `{column}`.")
        for kind in (FunctionEvent, FunctionEventAvg):
            setattr(kind, column.replace("device", name), alias)
