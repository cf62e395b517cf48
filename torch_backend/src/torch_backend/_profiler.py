"""Parts of torch.profiler that handle torch's own devices only: column names, and pausing the events of a device."""

from __future__ import annotations

import contextlib
import functools

import torch
from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg
from torch.profiler import ProfilerActivity

from . import _C

COLUMNS = ("device_time", "device_time_total", "self_device_time_total", "device_memory_usage", "self_device_memory_usage")


def _toggling(toggle):
    """Returns torch's function of `profile.toggle_collection_dynamic`, extended to this device's events."""

    @functools.wraps(toggle, assigned=("__doc__",))
    def toggle_collection(enable, activities):
        others = set(activities) - {ProfilerActivity.PrivateUse1}
        if len(others) < len(set(activities)):
            _C.toggle_profile(bool(enable))
        if others:
            toggle(enable, others)

    return toggle_collection


def _preparing(prepare):
    """Returns the function of torch that every profile calls before it traces, extended by an import of the modules
    that a profile imports.

    In torch 2.13 the first record_function of a process imports a module. Within a profile with stacks, that import
    leaves an event whose name points to freed code.
    """

    @functools.wraps(prepare, assigned=("__doc__",))
    def prepare_profile(*args, **kwargs):
        with contextlib.suppress(ImportError):
            import torch.profiler._cupti_monitor  # noqa: F401
        return prepare(*args, **kwargs)

    return prepare_profile


_INSTEAD = {"_toggle_collection_dynamic": _toggling, "_prepare_profiler": _preparing}


def install(name: str) -> None:
    """Adds the device's columns, for `table(sort_by="self_<name>_time_total")`, and its events to torch's functions."""
    for column in COLUMNS:
        alias = property(lambda event, column=column: getattr(event, column), doc=f"The same as `{column}`.")
        for kind in (FunctionEvent, FunctionEventAvg):
            setattr(kind, column.replace("device", name), alias)
    while _INSTEAD:  # once per process
        function, instead = _INSTEAD.popitem()
        if hasattr(torch.autograd.profiler, function):
            setattr(torch.autograd.profiler, function, instead(getattr(torch.autograd.profiler, function)))
