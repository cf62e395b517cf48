"""The history of the caching allocator, and snapshots in the format of torch.cuda.memory, which PyTorch's viewers read."""

from __future__ import annotations

import atexit
import heapq
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch

from torch_backend import _C

from ._utils import Device, device_count, existing_index, name

_STACKS = {None: 0, "state": 1, "alloc": 2, "all": 3}  # HAL_MEMORY_STACKS_* of hal/memory.h
_ACTIONS = (  # HAL_MEMORY_EVENT_*
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "snapshot", "oom", "segment_map", "segment_unmap",
)  # fmt: skip
_KEPT = (1 << 63) - 1
_LEGACY = ("record_context", "trace_alloc_max_entries", "trace_alloc_record_context", "record_context_cpp")

_recorded: set[bool] = set()  # what is recorded: False for the memory of devices, True for pinned host memory


def _stop(pinned: bool) -> None:
    _recorded.discard(pinned)
    for device in range(device_count()):
        _C.stop_memory_history(device, pinned)


def _start(
    context: str | None, stacks: str, max_entries: int, clear: bool, skip: Sequence[str], pinned: bool, device: bool,
) -> None:  # fmt: skip
    """Records `pinned` host memory and memory of a `device`; ends the recording of what is False, as torch does."""
    if isinstance(skip, str) or not isinstance(skip, Iterable):
        raise TypeError(f"invalid skip_actions {skip!r:.60}: expected a list of actions, such as ['free_requested']")
    skip = list(skip)
    unknown = [action for action in skip if action not in _ACTIONS]
    if unknown:
        raise ValueError(f"invalid skip_actions {unknown!r}: expected some of {', '.join(map(repr, _ACTIONS))}")
    if isinstance(max_entries, bool) or not isinstance(max_entries, int) or max_entries < 0:
        raise ValueError(f"invalid max_entries {max_entries!r}: expected a number of events, 0 or more")
    mask = sum(1 << _ACTIONS.index(action) for action in set(skip))
    for kind, wanted in ((False, device), (True, pinned)):
        if not wanted:
            _stop(kind)
            continue
        for index in range(device_count()):
            _C.start_memory_history(index, _STACKS[context], stacks == "all", min(max_entries, _KEPT), mask, bool(clear), kind)
        _recorded.add(kind)


def _end(pinned: bool) -> None:
    """Ends all recordings, at a call whose `record_pinned_host_memory` is `pinned`."""
    if pinned:
        raise RuntimeError("_record_memory_history(enabled=None, record_pinned_host_memory=True): pinned memory is recorded only while "
                           "the history is enabled; leave record_pinned_host_memory out, or pass enabled='all'")  # fmt: skip
    _stop(False)
    _stop(True)


@atexit.register
def _at_exit() -> None:
    if _recorded and not _C.in_bad_fork():
        _end(False)  # the stacks refer to objects of Python


def _check_option(what: str, value, valid: tuple) -> None:
    if value not in valid:
        raise RuntimeError(f"invalid {what} {value!r}: expected one of {', '.join(map(repr, valid))}")


def _legacy(
    enabled: bool, record_context: bool = True, trace_alloc_max_entries: int = 1, trace_alloc_record_context: bool = False,
    device: Device = None, record_context_cpp: bool = False, clear_history: bool = False,
    record_pinned_host_memory: bool = False, record_cuda: bool = True,
) -> None:  # fmt: skip
    """The older form of torch.cuda.memory._record_memory_history."""
    if not enabled:
        _end(record_pinned_host_memory)
        return
    context = "alloc" if trace_alloc_record_context else "state" if record_context else None
    _start(context, "all" if record_context_cpp else "python", trace_alloc_max_entries, clear_history, (), record_pinned_host_memory, record_cuda)


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all", context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all", max_entries: int = sys.maxsize, device: Device = None, clear_history: bool = False,
    compile_context: bool = False, global_record_annotations: bool = False, skip_actions: Sequence[str] | None = None,
    record_pinned_host_memory: bool = False, record_cuda: bool = True, **legacy,
) -> None:  # fmt: skip
    """Records the allocations of all devices, as torch.cuda.memory._record_memory_history.

    Args:
        enabled: "state" records blocks in use, "all" also the last `max_entries` events; None ends the recording and
            removes what was recorded. A bool selects the older form of the function.
        context: stacks that are recorded: None for none, "state" of blocks in use, "alloc" also of allocations, "all"
            also of releases.
        stacks: "python", or "all" with the frames of C++. Symbols of C++ frames are looked up by `_snapshot`.
        max_entries: number of events of each device.
        device: has no effect, as in torch: all devices are recorded.
        clear_history: removes the events recorded so far.
        skip_actions: actions that are not recorded, such as "free_requested".
        record_pinned_host_memory: records pinned host memory; `_snapshot` lists it as "host_segments" and "host_traces".
            Available with every torch, as in torch 2.15.
        record_cuda: False does not record the memory of devices, under torch 2.15's name of the argument.
    """
    if isinstance(enabled, bool):
        names = ("record_context", "trace_alloc_max_entries", "trace_alloc_record_context")
        given = {key: value for key, value, default in zip(names, (context, stacks, max_entries), ("all", "all", sys.maxsize)) if value != default}
        unknown = [key for key in legacy if key not in _LEGACY]
        if unknown:
            raise TypeError(f"_record_memory_history() got an unexpected keyword argument {unknown[0]!r}")
        _legacy(enabled, **given, clear_history=clear_history, record_pinned_host_memory=record_pinned_host_memory, record_cuda=record_cuda, **legacy)
        return
    if legacy:
        raise TypeError(f"_record_memory_history() got an unexpected keyword argument {next(iter(legacy))!r}")
    for what, value in {"compile_context": compile_context, "global_record_annotations": global_record_annotations}.items():
        if value:
            raise NotImplementedError(f"_record_memory_history({what}=True): '{name()}' does not record it; leave it out")
    _check_option("enabled", enabled, ("state", "all", None))
    _check_option("context", context, tuple(_STACKS))
    _check_option("stacks", stacks, ("python", "all"))
    if enabled is None:
        _end(record_pinned_host_memory)
    else:
        _start(context, stacks, max_entries if enabled == "all" else 1, clear_history, skip_actions or (), record_pinned_host_memory, record_cuda)


def _is_history_enabled() -> bool:
    """Returns whether allocations of device memory, or of pinned host memory, are recorded."""
    return bool(_recorded)


# ---- allocator_settings ----


def _conf(text: str) -> dict[str, str]:
    """Splits PYTORCH_ALLOC_CONF; commas within brackets belong to a value."""
    options, depth, entry = {}, 0, ""
    for character in text + ",":
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth <= 0:
            key, _, value = entry.partition(":")
            if key.strip():
                options[key.strip()] = value.strip()
            entry = ""
        else:
            entry += character
    return options


def _options() -> dict[str, str]:
    """Returns the settings of the allocator that are not the defaults."""
    return _conf(_C.memory_settings())


def default_fraction() -> float:
    """Returns the share of a device's memory that PYTORCH_ALLOC_CONF allows the process."""
    return float(_options().get("per_process_memory_fraction", 1.0))


def _set_allocator_settings(env: str) -> None:
    """Changes settings of the allocator at run time, as torch.cuda.memory._set_allocator_settings: those that are named, for
    later allocations of all devices.

    Args:
        env: text in the format of PYTORCH_ALLOC_CONF, such as "max_split_size_mb:200". `expandable_segments` is possible
            until a device is used.
    """
    torch._C._accelerator_setAllocatorSettings(env)


def _settings() -> dict[str, Any]:
    try:
        text = torch._C._accelerator_getAllocatorSettings()  # the last ones, or the variable
    except (IndexError, RuntimeError, ValueError):  # torch refuses the variable; IndexError: a number out of range
        text = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    options = _options()
    divisions = (part.partition(":") for part in options.get("roundup_power2_divisions", "").strip("[]").split(",") if part)
    return {
        "PYTORCH_CUDA_ALLOC_CONF": text,
        "PYTORCH_ALLOC_CONF": text,
        "max_split_size": int(options["max_split_size_mb"]) << 20 if "max_split_size_mb" in options else -1,
        "garbage_collection_threshold": float(options.get("garbage_collection_threshold", 0.0)),
        "expandable_segments": "expandable_segments" in options,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << step): 0 for step in range(16)} | {size: int(value) for size, _, value in divisions},
        "max_round_threshold": -1,  # sizes of pinned memory are rounded to classes
        "max_cached_size": int(options["pinned_max_cached_size_mb"]) << 20 if "pinned_max_cached_size_mb" in options else -1,
    }


# ---- snapshots ----


def _read(mempool_id: tuple[int, int] | None = None, pinned: bool = False) -> tuple[list[dict], list[list[dict]]]:
    segments: list[dict] = []
    traces: list[list[dict]] = []
    for device in range(device_count()):
        own, trace, lost = _C.memory_history(device, pinned)
        segments += [segment for segment in own if mempool_id is None or segment["segment_pool_id"] == tuple(mempool_id)]
        traces.append(trace)
        if lost:
            what = f"pinned host memory of '{name()}:{device}'" if pinned else f"'{name()}:{device}'"
            warnings.warn(f"{lost} events of {what} are missing in the snapshot: the host had no memory for them", stacklevel=4)
    return segments, traces


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict]:
    """Returns the segments of all devices, or of one private pool, with their blocks, in the format of
    torch.cuda.memory_snapshot.

    `frames` has the stacks that `memory._record_memory_history` recorded. `include_traces` has no effect.
    """
    return _read(mempool_id)[0]


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Returns the segments, recorded events and settings of the allocator, as torch.cuda.memory._snapshot.

    "host_segments" has the blocks of pinned host memory of all devices, and memory of `host_register`, each as a segment;
    "host_traces" has their events, in the order of their times. In torch these are keys since 2.15.

    Args:
        device: has no effect, as in torch: the events are listed by device.
        augment_with_fx_traces: adds the source of the model to frames of generated FX code.
    """
    segments, traces = _read()
    host_segments, host_traces = _read(pinned=True)
    result = {"segments": segments, "device_traces": traces, "allocator_settings": _settings(), "external_annotations": [],
              "host_segments": host_segments, "host_traces": list(heapq.merge(*host_traces, key=lambda event: event["time_us"]))}  # fmt: skip
    if augment_with_fx_traces:
        from torch.cuda.memory import _augment_memory_snapshot_stack_traces

        result = _augment_memory_snapshot_stack_traces(result)
    return result


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Returns the recorded stack of the allocation that begins at an address, as torch.cuda.memory._allocation_traceback of
    torch 2.15; None if there is none.
    """
    for segment in memory_snapshot():
        for block in segment["blocks"]:
            if block["address"] == data_ptr and block["state"] == "active_allocated":
                return block.get("frames") or None
    return None


def _save_segment_usage(filename: str = "output.svg", snapshot: dict | None = None) -> None:
    """Writes the use of segments as a picture, as torch.cuda.memory._save_segment_usage. It needs flamegraph.pl."""
    from torch.cuda._memory_viz import segments

    _save(filename, segments, snapshot)


def _save_memory_usage(filename: str = "output.svg", snapshot: dict | None = None) -> None:
    """Writes the use of memory as a picture, as torch.cuda.memory._save_memory_usage. It needs flamegraph.pl."""
    from torch.cuda._memory_viz import memory

    _save(filename, memory, snapshot)


def _save(filename: str, picture: Callable[[dict], str], snapshot: dict | None) -> None:
    text = picture(_snapshot() if snapshot is None else snapshot)  # before the file is opened: it may fail
    with open(filename, "w", encoding="utf-8") as file:
        file.write(text)


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes `_snapshot()` to a file for `torch-backend memory view`, torch.cuda._memory_viz, and
    pytorch.org/memory_viz.
    """
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _attach_out_of_memory_observer(observer: Callable[[int, int, int, int], None], device: Device = None) -> None:
    """Calls `observer(device, size, total, free)` for each later out-of-memory error, before it is raised, for the rest of
    the process.

    An exception of the observer is reported as unraisable.

    Args:
        observer: receives the device index, the size of the request, the device's limit or total memory, and its free
            memory, in bytes.
        device: default: all devices.
    """
    for index in range(device_count()) if device is None else [existing_index(device)]:
        _C.attach_oom_observer(index, observer)
