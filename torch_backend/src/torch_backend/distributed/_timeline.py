"""Writes the logs of collectives (`dump`) as a timeline in SVG: a row for each rank, a bar for each collective."""

from __future__ import annotations

import os
import pathlib
from xml.sax.saxutils import escape

from . import _log

_LEFT, _WIDTH, _ROW, _TOP = 70, 900, 34, 46
_RUNNING, _UNFINISHED = "#7fb2d1", "#ef8a8a"
_WAITING = "#d5e5ef"  # from the call to the start


def _ends(entry: dict, last: int) -> tuple[int, int, int]:
    """Returns when a collective was called, started and completed; what has not happened yet ends with the log."""
    created = entry["time_created_ns"]
    started = entry["time_discovered_started_ns"] or last
    return created, started, entry["time_discovered_completed_ns"] or last


def _last(logs: dict) -> int:
    """Returns the end of the time axis: the last moment of the logs, and some space if a collective has no end."""
    moments = [entry[key] or 0 for log in logs.values() for entry in log["entries"]
               for key in ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")]  # fmt: skip
    open_ended = any(not entry["time_discovered_completed_ns"] for log in logs.values() for entry in log["entries"])
    first = min(entry["time_created_ns"] for log in logs.values() for entry in log["entries"])
    return max(moments) + (max(moments) - first) // 10 * open_ended


def _bars(entry: dict, y: int, x, last: int) -> list[str]:
    created, started, ended = _ends(entry, last)
    name, place = _log.described(entry), f"group '{entry['process_group'][0]}', number {entry['p2p_seq_id'] if entry['is_p2p'] else entry['collective_seq_id']}"
    took = f"{(ended - created) / 1e6:.3f} ms from the call" if entry["state"] == "completed" else "not completed"
    title = f"<title>{escape(f'{name}; {place}; {took}')}</title>"
    color = _RUNNING if entry["state"] == "completed" else _UNFINISHED
    parts = [(created, started, _WAITING), (started, ended, color)]
    bars = ['<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" fill="{}">{}</rect>'.format(x(begin), y, max(x(end) - x(begin), 0.8), _ROW - 12, fill, title)
            for begin, end, fill in parts if end > begin]  # fmt: skip
    short = name.partition("(")[0].lstrip("_")
    if x(ended) - x(created) > 7 * len(short):
        bars.append(f'<text x="{x(created) + 4:.1f}" y="{y + 15}" font-size="11" pointer-events="none">{escape(short)}</text>')
    return bars


def _axis(first: int, last: int, x, height: int) -> list[str]:
    lines = []
    for part in range(5):
        moment = first + (last - first) * part / 4
        lines.append(f'<line x1="{x(moment):.1f}" y1="{_TOP - 6}" x2="{x(moment):.1f}" y2="{height - 8}" stroke="#dddddd"/>')
        lines.append(f'<text x="{x(moment):.1f}" y="{_TOP - 12}" text-anchor="middle">{(moment - first) / 1e6:.3f} ms</text>')
    return lines


def timeline(logs: dict[int, dict]) -> str:
    """Returns the picture of logs by rank. Raises ValueError if they have no collective."""
    if not any(log["entries"] for log in logs.values()):
        raise ValueError("the logs have no collective; TORCH_FR_BUFFER_SIZE=0 disables them")
    first = min(entry["time_created_ns"] for log in logs.values() for entry in log["entries"])
    last = max(_last(logs), first + 1)
    height = _TOP + _ROW * len(logs) + 10

    def x(moment: float) -> float:
        return _LEFT + (moment - first) / (last - first) * _WIDTH

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 40}" height="{height}" font-family="Helvetica, sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{_LEFT}" y="16">collectives: light: from the call to the start, dark: running, red: not completed; point at a bar for its call</text>']  # fmt: skip
    lines += _axis(first, last, x, height)
    for row, (rank, log) in enumerate(sorted(logs.items())):
        y = _TOP + row * _ROW
        lines.append(f'<text x="8" y="{y + 16}">rank {rank}</text>')
        for entry in log["entries"]:
            lines += _bars(entry, y, x, last)
    return "\n".join([*lines, "</svg>"]) + "\n"


def plot(folder: str | os.PathLike, path: str | os.PathLike) -> pathlib.Path:
    """Writes a timeline of the collectives of all ranks as SVG: a row for each rank, a bar for each collective, red if it
    was not completed. `folder` has the files of `dump`. Ranks on several hosts have the clocks of their hosts.

    Raises FileNotFoundError if the folder has no log, and ValueError if `path` does not end with `.svg`, or the logs
    have no collective.
    """
    path = pathlib.Path(path)
    if path.suffix != ".svg":
        raise ValueError(f"{path}: invalid suffix {path.suffix!r}: expected '.svg'")
    path.write_text(timeline(_log.read_all(folder)), encoding="utf-8")
    return path
