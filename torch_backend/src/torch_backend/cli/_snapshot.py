"""Reads the allocator's snapshots, pickles that come from other machines: nothing in the file is executed.

This file is also the program of the process that reads them: a corrupt pickle may request any amount of memory, or end
the process.
"""

from __future__ import annotations

import marshal
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

CURE = "write the file with torch.<name>.memory._dump_snapshot or torch.cuda.memory._dump_snapshot"
STATES = {"active_allocated": "active", "active_pending_free": "pending", "active_awaiting_free": "pending", "inactive": "inactive"}

_LIMIT = 1 << 53  # numbers of JSON are exact up to here
_ADDRESSES = 1 << 64
_PARTS = ("segments", "device_traces", "host_segments", "host_traces")
_MEMORY_BASE, _MEMORY_PER_BYTE = 1 << 30, 64  # bytes that the reading process may allocate: of Python, and for each of the file


class SnapshotError(ValueError):
    """A file that is not a snapshot: the message has the file, what is wrong, and what to do."""


class Forbidden(ValueError):
    """A pickle with a global: a class or function, which would be executed."""


class _Unpickler(pickle.Unpickler):
    """Reads only the types that a pickle has opcodes for: containers, numbers, strings and bytes."""

    def find_class(self, module: str, name: str) -> Any:
        found = f"{module}.{name}"
        raise Forbidden(f"it contains the global {found!r:.100}, which is forbidden: a snapshot has only built-in types")


def shown(value) -> str:
    """Returns the beginning of a value's text, or its type if the value is too large or too deep for a text."""
    try:
        return f"{value!r:.60}"
    except (RecursionError, ValueError):
        return f"of type '{type(value).__name__}'"


def _whole(value, where: str, limit: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise ValueError(f"invalid {where} {shown(value)}: expected an integer from 0 to {limit - 1}")


def _item(parent: dict, key: str, kind: type, where: str) -> Any:
    if key not in parent:
        raise ValueError(f"key '{key}' of {where} is missing")
    value = parent[key]
    place = f"'{key}'" if where == "the snapshot" else f"{where}['{key}']"
    if kind is int:
        _whole(value, place, _ADDRESSES if key in ("address", "addr") else _LIMIT)
    elif not isinstance(value, kind):
        raise ValueError(f"invalid {place} of type '{type(value).__name__}': expected '{kind.__name__}'")
    return value


def _each(values: list, kind: type, where: str):
    for index, value in enumerate(values):
        if not isinstance(value, kind):
            raise ValueError(f"invalid {where}[{index}] of type '{type(value).__name__}': expected '{kind.__name__}'")
        yield value, f"{where}[{index}]"


def _check_frames(owner: dict, where: str, seen: set[int]) -> None:
    """Checks a stack, which is optional and may be shared; `seen` has the ids of stacks that were checked."""
    if "frames" in owner and id(owner["frames"]) not in seen:
        seen.add(id(owner["frames"]))
        for frame, place in _each(_item(owner, "frames", list, where), dict, f"{where}['frames']"):
            _item(frame, "name", str, place)
            _item(frame, "filename", str, place)
            _item(frame, "line", int, place)


def _check_segment(segment: dict, where: str, seen: set[int]) -> None:
    for key in ("address", "total_size", "stream"):
        _item(segment, key, int, where)
    if "segment_pool_id" in segment:
        pool = _item(segment, "segment_pool_id", tuple, where)
        if len(pool) != 2:
            raise ValueError(f"invalid {where}['segment_pool_id'] {shown(pool)}: expected two integers")
        for value in pool:
            _whole(value, f"{where}['segment_pool_id']", _LIMIT)
    total = 0
    for block, place in _each(_item(segment, "blocks", list, where), dict, f"{where}['blocks']"):
        total += _item(block, "size", int, place)
        _item(block, "address", int, place)
        if "requested_size" in block:
            _item(block, "requested_size", int, place)
        if _item(block, "state", str, place) not in STATES:
            raise ValueError(f"invalid {place}['state'] {shown(block['state'])}: expected one of {', '.join(map(repr, STATES))}")
        _check_frames(block, place, seen)
    if total > segment["total_size"]:
        raise ValueError(f"the blocks of {where} have {total} bytes, but the segment has {segment['total_size']}")
    _check_addresses(segment, where)


def _check_addresses(segment: dict, where: str) -> None:
    """Checks that the blocks are in the segment, in the order of their addresses."""
    at, end = segment["address"], segment["address"] + segment["total_size"]
    for index, block in enumerate(segment["blocks"]):
        if not at <= block["address"] <= end - block["size"]:
            raise ValueError(f"invalid {where}['blocks'][{index}]['address'] {block['address']:#x} of a block of {block['size']} bytes: "
                             f"expected one from {at:#x} on, so that the block ends at {end:#x} or before")  # fmt: skip
        at = block["address"] + block["size"]


def _check_event(event: dict, where: str, seen: set[int]) -> None:
    action = _item(event, "action", str, where)
    _item(event, "size", int, where)
    if action == "oom":
        _item(event, "device_free", int, where)
    else:
        _item(event, "addr", int, where)
    if "time_us" in event:
        _item(event, "time_us", int, where)
    _check_frames(event, where, seen)


def check(snapshot: Any) -> dict:
    """Returns the snapshot. Raises ValueError, with the place, if a value that the page shows is missing or invalid."""
    if not isinstance(snapshot, dict):
        raise ValueError(f"it contains an object of type '{type(snapshot).__name__}': expected the dict of a snapshot")
    seen: set[int] = set()
    for segment, where in _each(_item(snapshot, "segments", list, "the snapshot"), dict, "segments"):
        if _item(segment, "device", int, where) >= 4096:
            raise ValueError(f"invalid {where}['device'] {segment['device']}: expected an index below 4096")
        _check_segment(segment, where, seen)
    for trace, where in _each(_item(snapshot, "device_traces", list, "the snapshot"), list, "device_traces"):
        for event, place in _each(trace, dict, where):
            _check_event(event, place, seen)
    if "host_segments" in snapshot or "host_traces" in snapshot:  # pinned memory, since torch 2.15; its device is -1
        for segment, where in _each(_item(snapshot, "host_segments", list, "the snapshot"), dict, "host_segments"):
            _check_segment(segment, where, seen)
        for event, where in _each(_item(snapshot, "host_traces", list, "the snapshot"), dict, "host_traces"):
            _check_event(event, where, seen)
    return snapshot


def load(file) -> dict:
    """Returns the snapshot in an open file. Raises ValueError with the problem."""
    try:
        snapshot = _Unpickler(file).load()
    except EOFError:
        raise ValueError("the pickle is truncated" if os.fstat(file.fileno()).st_size else "the file is empty") from None
    except MemoryError:
        raise ValueError("it is no pickle, or a corrupt one (it needs more memory than a snapshot of its size)") from None
    except Forbidden:
        raise
    except (pickle.UnpicklingError, AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise ValueError("the pickle is truncated" if "truncated" in text else f"it is no pickle, or a corrupt one ({text})") from None
    return check(snapshot)


def _reading_process() -> None:
    """Reads the snapshot on standard input. Writes its parts to standard output, after "+", or the problem, after "-"."""
    try:
        import resource

        limit = _MEMORY_BASE + _MEMORY_PER_BYTE * os.fstat(0).st_size
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except ImportError:  # not on this system
        pass
    try:
        snapshot = load(sys.stdin.buffer)
        result = b"+" + marshal.dumps({key: snapshot[key] for key in _PARTS if key in snapshot})
    except OSError as error:
        result = b"-" + (error.strerror or str(error)).encode()
    except (ValueError, MemoryError) as error:
        result = b"-" + (str(error) or "out of memory").encode(errors="backslashreplace")
    sys.stdout.buffer.write(result)


def read(path: Path) -> dict:
    """Returns the snapshot in a file. Raises SnapshotError, with the cure, if the file cannot be read or has no snapshot."""
    try:
        with path.open("rb") as file:
            done = subprocess.run([sys.executable, "-I", __file__], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise SnapshotError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}; {CURE}") from None
    if done.stdout.startswith(b"+") and not done.returncode:
        return marshal.loads(done.stdout[1:])
    problem = done.stdout[1:].decode(errors="replace") or f"it is no pickle, or a corrupt one (reading it ended with exit code {done.returncode})"
    raise SnapshotError(f"{path}: not a snapshot of the allocator: {problem}; {CURE}")


if __name__ == "__main__":
    _reading_process()
