"""What the page of `memory view` shows, computed from a snapshot that `_snapshot.check` accepted.

Blocks in segments have the allocator's sizes, which are rounded; events have the requested sizes. The timeline uses
requested sizes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from ._snapshot import STATES

LARGEST = 40  # blocks that the timeline shows one by one
LISTED = 100  # blocks in a table
PINNED = "pinned host memory"  # listed as a device, after the others

_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


class Stacks:
    """The different stacks, which the page refers to by their index."""

    def __init__(self):
        self.lines: list[list[str]] = []
        self._known: dict[tuple[str, ...], int] = {}
        self._shared: dict[int, tuple[list[dict], int]] = {}  # by id; the stack is part of the value, so that it stays allocated

    def index(self, frames: list[dict]) -> int:
        """Returns the index of a stack, whose innermost frame is the first."""
        if id(frames) in self._shared:
            return self._shared[id(frames)][1]
        lines = tuple(f"{frame['filename']}:{frame['line']}:{frame['name']}" for frame in frames)
        if lines not in self._known:
            self._known[lines] = len(self.lines)
            self.lines.append(list(lines))
        self._shared[id(frames)] = (frames, self._known[lines])
        return self._known[lines]


@dataclass
class Lifetime:
    """The time in which a block was allocated. Position 0 is before the first event, position i after event i - 1.
    `start` and `end` are None if the block was allocated before the first event, or is still allocated.
    """

    address: int
    size: int
    start: int | None
    end: int | None
    frames: list[dict]

    def duration(self, last: int) -> int:
        """Returns the number of positions up to `last` at which the block is allocated."""
        return (last + 1 if self.end is None else self.end) - (self.start or 0)


def lifetimes(trace: list[dict], blocks: dict[int, dict]) -> tuple[list[Lifetime], int]:
    """Returns the lifetimes of all blocks in a trace, and how many have an end that was not recorded.

    A block ends when its release is requested; if no request was recorded, when the release was completed. `blocks` are
    the allocated blocks of the snapshot by address.
    """
    release = "free_requested" if any(event["action"] == "free_requested" for event in trace) else "free_completed"
    found: list[Lifetime] = []
    live: dict[int, Lifetime] = {}
    ends: dict[int, int] = {}  # the last end at an address
    unknown = 0
    for position, event in enumerate(trace, 1):
        if event["action"] == "alloc":
            if event["addr"] in live:
                live[event["addr"]].end = position
                unknown += 1
            found.append(Lifetime(event["addr"], event["size"], position, None, event.get("frames", [])))
            live[event["addr"]] = found[-1]
        elif event["action"] == release:
            lifetime = live.pop(event["addr"], None)
            if lifetime is None:
                lifetime = Lifetime(event["addr"], event["size"], ends.get(event["addr"]), None, [])
                found.append(lifetime)
            lifetime.end = ends[event["addr"]] = position
    for address, lifetime in live.items():
        if address not in blocks:
            lifetime.end = len(trace)
            unknown += 1
    for address, block in blocks.items():
        if address not in live:
            found.append(Lifetime(address, block.get("requested_size", block["size"]), ends.get(address), None, block.get("frames", [])))
    return found, unknown


def _allocated(found: list[Lifetime], count: int) -> list[int]:
    changes = [0] * (count + 1)
    for lifetime in found:
        changes[lifetime.start or 0] += lifetime.size
        if lifetime.end is not None:
            changes[lifetime.end] -= lifetime.size
    return list(accumulate(changes))


def _reserved(trace: list[dict], at_end: int) -> list[int] | None:
    """Returns the bytes of segments at each position; None if the recorded events do not lead to those of the end."""
    changes = [0] + [_RESERVED.get(event["action"], 0) * event["size"] for event in trace]
    values = list(accumulate(changes, initial=at_end - sum(changes)))[1:]
    return values if min(values) >= 0 else None


def _listed(rows: list[dict]) -> dict:
    """Returns the largest rows, with number and bytes of all."""
    rows = sorted(rows, key=lambda row: (-row["size"], row["address"]))
    return {"count": len(rows), "bytes": sum(row["size"] for row in rows), "blocks": rows[:LISTED]}


def _lifetime_row(lifetime: Lifetime, stacks: Stacks) -> dict:
    return {"address": f"{lifetime.address:#x}", "size": lifetime.size, "start": lifetime.start, "end": lifetime.end, "stack": stacks.index(lifetime.frames)}


def timeline(trace: list[dict], blocks: dict[int, dict], reserved: int, stacks: Stacks) -> dict:
    """Returns the requested bytes of allocated blocks at each position where they change, as `points` of (position,
    microseconds, allocated, reserved), their peak, and the largest blocks.
    """
    found, unknown = lifetimes(trace, blocks)
    allocated, segments = _allocated(found, len(trace)), _reserved(trace, reserved)
    times = [event.get("time_us", 0) for event in trace]
    times = [0] + [max(time - times[0], 0) for time in times]
    points: list[list] = []
    for position in range(len(trace) + 1):
        now = [allocated[position], segments[position] if segments else None]
        if not points or points[-1][2:] != now or position == len(trace):
            points.append([position, times[position], *now])
    peak = max(points, key=lambda point: point[2])
    at_peak = [lifetime for lifetime in found if (lifetime.start or 0) <= peak[0] and (lifetime.end is None or lifetime.end > peak[0])]
    largest = sorted(found, key=lambda lifetime: (-lifetime.size, -lifetime.duration(len(trace)), lifetime.start or 0, lifetime.address))[:LARGEST]
    return {
        "events": len(trace),
        "points": points,
        "peak": {"position": peak[0], "time": peak[1], "bytes": peak[2], **_listed([_lifetime_row(lifetime, stacks) for lifetime in at_peak])},
        "largest": [_lifetime_row(lifetime, stacks) for lifetime in largest],
        "unknown_ends": unknown,
        "ooms": [{"position": position, "size": event["size"], "free": event["device_free"], "stack": stacks.index(event.get("frames", []))}
                 for position, event in enumerate(trace, 1) if event["action"] == "oom"],
    }  # fmt: skip


def segment_row(segment: dict) -> dict:
    """Returns a segment with its bytes by state and its blocks."""
    states = {"active": 0, "pending": 0, "inactive": 0}
    blocks = []
    for block in segment["blocks"]:
        state = STATES[block["state"]]
        states[state] += block["size"]
        requested = 0 if state == "inactive" else block.get("requested_size", block["size"])
        blocks.append({"offset": block["address"] - segment["address"], "size": block["size"], "requested": requested, "state": state})
    pool = ".".join(map(str, segment.get("segment_pool_id", (0, 0))))
    return {"address": f"{segment['address']:#x}", "size": segment["total_size"], "stream": segment["stream"], "pool": pool,
            "requested": sum(block["requested"] for block in blocks), **states, "blocks": blocks}  # fmt: skip


def _device(index: int | str, segments: list[dict], trace: list[dict], stacks: Stacks) -> dict:
    rows = sorted((segment_row(segment) for segment in segments), key=lambda row: (-row["size"], row["address"]))
    allocated = {block["address"]: block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"}
    live = [{"address": f"{block['address']:#x}", "size": block.get("requested_size", block["size"]), "stack": stacks.index(block.get("frames", []))}
            for block in allocated.values()]  # fmt: skip
    totals = {key: sum(row[key] for row in rows) for key in ("active", "pending", "inactive", "requested")}
    return {
        "device": index,
        "totals": {"reserved": sum(row["size"] for row in rows), **totals, "segments": len(rows), "blocks": sum(len(row["blocks"]) for row in rows)},
        "timeline": timeline(trace, allocated, sum(row["size"] for row in rows), stacks),
        "live": _listed(live),
        "segments": rows,
    }


def summary(snapshot: dict) -> dict:
    """Returns what the page shows: each device that has segments or events, pinned host memory if it has some (device 0 if
    nothing has), and the stacks.
    """
    stacks = Stacks()
    by_device: dict[int, list[dict]] = {}
    for segment in snapshot["segments"]:
        by_device.setdefault(segment["device"], []).append(segment)
    traces = dict(enumerate(snapshot["device_traces"]))
    used = sorted({*by_device, *(index for index, trace in traces.items() if any(event["action"] != "snapshot" for event in trace))})
    pinned = [(PINNED, snapshot.get("host_segments", []), snapshot.get("host_traces", []))]
    shown = [(index, by_device.get(index, []), traces.get(index, [])) for index in used] + [each for each in pinned if each[1] or each[2]]
    return {"devices": [_device(*each, stacks) for each in shown or [(0, [], traces.get(0, []))]], "stacks": stacks.lines}
