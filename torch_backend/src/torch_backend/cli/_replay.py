"""Replays a recorded trace of allocations with several allocators: this one, with ordinary and with expandable segments,
and a simulation of PyTorch's.

This allocator runs in a process of its own, on the device `fake`, whose memory is never accessed and so uses no memory of
the host.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from ._caching_policy import TorchPolicy
from ._snapshot import shown

POLICIES = ("PyTorch (simulated)", "this allocator", "expandable segments")
_SETTINGS = {"this allocator": "expandable_segments:False", "expandable segments": "expandable_segments:True"}
_FREED = ("segment_free", "segment_unmap")


class Operation(NamedTuple):
    """One step of a trace: "allocate", "free" or "empty" (the cache). `pool` is a number, None for the stream's pool."""

    kind: str
    key: int = 0
    size: int = 0
    stream: int = 0
    pool: int | None = None


class Result(NamedTuple):
    """Bytes of a replay: the peak of the segments, and their mean over the steps."""

    peak: int
    mean: float


def _numbers(event: dict, where: str) -> tuple[int, tuple]:
    stream, pool = event.get("stream", 0), event.get("pool_id", event.get("segment_pool_id", (0, 0)))
    parts = [stream, *pool] if isinstance(pool, (tuple, list)) else [None]
    if not all(isinstance(part, int) and abs(part) < 1 << 64 for part in parts):
        raise ValueError(f"invalid 'stream' {shown(stream)} or 'pool_id' {shown(pool)}: expected an integer, and a tuple of integers, in {where}")
    return stream, tuple(pool)


class _Builder:
    def __init__(self):
        self.steps: list[Operation] = []
        self.live: dict[int, int] = {}
        self._pools: dict[tuple, int] = {}
        self._next = 0

    def allocate(self, address: int, size: int, stream: int, pool: tuple) -> Operation:
        self._next += 1
        self.live[address] = self._next
        number = None if pool == (0, 0) else self._pools.setdefault(pool, len(self._pools))
        return Operation("allocate", self._next, size, stream, number)


def _known_before(trace: list[dict], segments: list[dict], release: str) -> dict[int, dict]:
    """Returns the blocks, by address, that were allocated before the first event."""
    before: dict[int, dict] = {}
    seen: set[int] = set()
    for event in trace:
        if event["action"] == "alloc":
            seen.add(event["addr"])
        elif event["action"] == release and event["addr"] not in seen:
            seen.add(event["addr"])
            before[event["addr"]] = event
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["address"] not in seen:
                before[block["address"]] = {**segment, "size": block.get("requested_size") or block["size"]}
    return before


def operations(trace: list[dict], segments: list[dict]) -> list[Operation]:
    """Returns the steps of a trace of one device, whose blocks at the end are in `segments`."""
    release = "free_completed" if any(event["action"] == "free_completed" for event in trace) else "free_requested"
    builder = _Builder()
    steps = builder.steps
    for address, block in sorted(_known_before(trace, segments, release).items()):
        steps.append(builder.allocate(address, block["size"], *_numbers(block, "a block")))
    previous = ""
    for index, event in enumerate(trace):
        action = event["action"]
        if action == "alloc" and event["size"]:
            if event["addr"] in builder.live:  # its release was not recorded
                steps.append(Operation("free", builder.live.pop(event["addr"])))
            steps.append(builder.allocate(event["addr"], event["size"], *_numbers(event, f"event {index}")))
        elif action == release and event["addr"] in builder.live:
            steps.append(Operation("free", builder.live.pop(event["addr"])))
        elif action in _FREED and previous not in _FREED:
            steps.append(Operation("empty"))
        previous = action
    return steps


def requested(steps: list[Operation]) -> int:
    """Returns the peak of the requested bytes."""
    now = peak = 0
    sizes = {}
    for step in steps:
        if step.kind == "allocate":
            sizes[step.key] = step.size
            now += step.size
            peak = max(peak, now)
        elif step.kind == "free":
            now -= sizes.pop(step.key)
    return peak


def _drive(allocator, steps: list[Operation]) -> Result:
    peak = total = 0
    for step in steps:
        if step.kind == "allocate":
            allocator.allocate(step.key, step.size, step.stream, step.pool)
        elif step.kind == "free":
            allocator.free(step.key)
        else:
            allocator.empty_cache()
        total += allocator.reserved
        peak = max(peak, allocator.reserved)
    return Result(peak, total / max(len(steps), 1))


class _OwnAllocator:
    """The HAL's allocator on the first device."""

    def __init__(self, hal: ctypes.CDLL):
        self._hal = hal
        self._blocks: dict[int, ctypes.c_void_p] = {}
        self._streams: dict[int, ctypes.c_void_p] = {}
        self._pools: dict[int, ctypes.c_void_p] = {}
        self._stats = (ctypes.c_int64 * 512)()

    def _call(self, function: str, *arguments) -> None:
        if getattr(self._hal, function)(*arguments):
            raise RuntimeError(self._hal.hal_error_message().decode(errors="replace"))

    def _stream(self, number: int) -> ctypes.c_void_p:
        if number not in self._streams:
            stream = ctypes.c_void_p()
            if self._streams:
                self._call("hal_stream_acquire", 0, 0, ctypes.byref(stream))
            else:
                self._call("hal_stream_default", 0, ctypes.byref(stream))
            self._streams[number] = stream
        return self._streams[number]

    def _pool(self, number: int) -> ctypes.c_void_p:
        if number not in self._pools:
            self._pools[number] = ctypes.c_void_p()
            self._call("hal_memory_pool_create", 0, ctypes.byref(self._pools[number]))
        return self._pools[number]

    def allocate(self, key: int, size: int, stream: int, pool: int | None) -> None:
        where, block = self._stream(stream), ctypes.c_void_p()
        if pool is not None:
            self._call("hal_memory_pool_begin", self._pool(pool), where)
        self._call("hal_memory_allocate", 0, where, ctypes.c_size_t(size), ctypes.byref(block))
        if pool is not None:
            self._call("hal_memory_pool_end", self._pool(pool), where)
        self._blocks[key] = block

    def free(self, key: int) -> None:
        self._hal.hal_memory_release(self._blocks.pop(key))

    def empty_cache(self) -> None:
        self._call("hal_memory_empty_cache", 0)

    @property
    def reserved(self) -> int:
        self._stats[0] = ctypes.sizeof(self._stats)
        self._call("hal_memory_stats", 0, self._stats)
        # struct_size, then statistics of 4 numbers: allocation, segment, active, inactive_split, allocated_bytes,
        # reserved_bytes, each for 3 pools
        return self._stats[1 + 5 * 3 * 4]


def run_own(steps: list[Operation]) -> Result:
    """Replays steps in this process, with the settings of its environment."""
    from torch_backend import _hal

    hal = _hal.library()
    _hal.open_plugins("fake", [Path(_hal.PACKAGE) / "plugins"])
    hal.hal_memory_release.restype = None
    return _drive(_OwnAllocator(hal), steps)


def _run_child(policy: str, steps: list[Operation]) -> Result:
    environment = {**os.environ, "PYTORCH_ALLOC_CONF": _SETTINGS[policy], "HAL_FAKE_MEMORY": "4096G", "HAL_FAKE_ASYNC": "0",
                   "HAL_FAKE_DEVICES": "1"}  # fmt: skip
    for variable in ("HAL_FAKE_PROTECT", "HAL_FAKE_SANITIZE", "HAL_VISIBLE_DEVICES", "FAKE_VISIBLE_DEVICES", "HAL_LAYERS", "HAL_FAULT"):
        environment.pop(variable, None)
    code = "import json, sys; from torch_backend.cli import _replay; print(json.dumps(_replay.run_own([_replay.Operation(*s) for s in json.load(sys.stdin)])))"
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    done = subprocess.run([sys.executable, "-P", "-c", code], input=json.dumps(steps), env=environment, capture_output=True, text=True, check=False)
    if done.returncode or "is ignored" in done.stderr:  # the second is the allocator's warning about a setting
        raise ValueError(f"the replay with {policy} failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return Result(*json.loads(done.stdout))


def replay(steps: list[Operation]) -> dict[str, Result]:
    """Returns the results of all policies. Raises ValueError if this allocator could not run."""
    results = {POLICIES[0]: _drive(TorchPolicy(), steps)}
    for policy in POLICIES[1:]:
        results[policy] = _run_child(policy, steps)
    return results


def table(steps: list[Operation], results: dict[str, Result]) -> list[str]:
    """Returns the lines of a table of results."""
    top = requested(steps)
    lines = [f"{len(steps)} steps, peak of the requested memory {top / (1 << 20):.1f} MiB",
             f"{'allocator':<22}{'peak reserved':>16}{'/ requested':>13}{'mean reserved':>16}"]  # fmt: skip
    for policy, result in results.items():
        lines.append(f"{policy:<22}{result.peak / (1 << 20):>12.1f} MiB{result.peak / max(top, 1):>13.3f}{result.mean / (1 << 20):>12.1f} MiB")
    return lines
