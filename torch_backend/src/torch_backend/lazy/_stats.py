"""Statistics of lazy mode in one object, and pictures of deferred work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from .. import _pictures
from .._extension import extension as _c
from . import _recordings

_WARM_UP = 10  # steps in which compilations and reads are normal
_MOST_OPERATORS = 10  # of the printed table
_MOST_COMPILATIONS = 5


class Stats(NamedTuple):
    """Statistics of lazy mode; `print(stats)` writes them as text, with the problems first.

    `problems`: what slows the program down, a line each, with the cure. `counters`: as `metrics()`. `operators`: as
    `operators()`. `measurements`: as `measurements()`. `compilations`: as `compilations()`. `deferred`: the work that
    is deferred now on all devices, as `text()`.
    """

    problems: list[str]
    counters: dict[str, int]
    operators: dict[str, int]
    measurements: dict[str, _recordings.Measurement]
    compilations: list[_recordings.Compilation]
    deferred: str

    def __str__(self) -> str:
        return "\n".join([*_summary(self), *_tables(self), *([self.deferred.rstrip()] if self.deferred else [])])


def _problems(counters, measured, compilations) -> list[str]:
    steps, found = counters["steps"], []
    if steps > _WARM_UP:
        if counters["compiled"] > steps / 2:
            last = f"; the last one: {compilations[-1]}" if compilations else ""
            found.append(f"{counters['compiled']} groups were compiled in {steps} steps: keep shapes of broadcast operands and lists of operators "
                         f"constant{last}")  # fmt: skip
        reads = measured["download_time"].count if "download_time" in measured else 0
        if reads > steps / 2:
            found.append(f"{reads} values were read in {steps} steps: each read flushes and waits; read values every n-th step")
    if counters["limits"]:
        found.append(f"the limit of deferred operators was reached {counters['limits']} times: call mark_step() once per iteration")
    fallen = [f"{op} ({count})" for op, count, *_ in _c().fallback_counts() if count and op != "aten::_local_scalar_dense"]
    if fallen:
        found.append(f"operators fell back to the CPU, which flushes: {', '.join(sorted(fallen))}; torch_backend.fallback.strict() makes it an error with its line")
    return found


def stats() -> Stats:
    """Returns all statistics since the start or `reset_metrics`: problems, counters, deferred operators, measurements,
    compilations, and the work that is deferred now.
    """
    counters, measured, compiled = _recordings.metrics(), _recordings.measurements(), _recordings.compilations()
    opened = [index for index in range(_c().device_count()) if _c().is_initialized(index)]
    deferred = "".join(_recordings.text(index) for index in opened)
    return Stats(_problems(counters, measured, compiled), counters, _recordings.operators(), measured, compiled, deferred)


def _summary(one: Stats) -> list[str]:
    count = one.counters
    lines = [f"lazy mode: {count['steps']} steps, {count['recorded']} operators deferred, {count['queued']} calls of the plugin"]
    lines += [f"problem: {line}" for line in one.problems] or ["no problem was found"]
    lines.append(f"  fused: {count['fused']} operators in {count['groups']} groups, of which {count['compiled']} were compiled and {count['cached']} cached")
    lines.append(f"  eliminated: {count['dropped']} unused results, {count['common']} equal ones")
    lines.append(f"  flushes: {count['flushes']}, of which {count['needed']} for results and {count['limits']} at the limit; {count['pending']} operators pending")
    return lines


def _value(name: str, value: float) -> str:
    return f"{value * 1e6:.1f} us" if name.endswith("_time") else f"{value:.0f} B" if name.endswith("_bytes") else f"{value:.0f}"


def _tables(one: Stats) -> list[str]:
    lines = []
    if one.measurements:
        middle = _recordings.PERCENTS.index(50)
        lines.append(f"{'measurement':<16} {'samples':>8} {'total':>16} {'median':>14} {'largest':>14}")
        lines += [f"{name:<16} {sample.count:>8} {_value(name, sample.total):>16} {_value(name, sample.percentiles[middle]):>14} {_value(name, sample.most):>14}"
                  for name, sample in one.measurements.items()]  # fmt: skip
    if one.operators:
        frequent = sorted(one.operators.items(), key=lambda item: (-item[1], item[0]))
        lines.append(f"{'operator':<40} {'deferred':>9}")
        lines += [f"{name:<40} {count:>9}" for name, count in frequent[:_MOST_OPERATORS]]
        if len(frequent) > _MOST_OPERATORS:
            lines.append(f"and {len(frequent) - _MOST_OPERATORS} other operators")
    lines += [f"compilation: {compilation}" for compilation in one.compilations[-_MOST_COMPILATIONS:]]
    return lines


def plot(path: str | os.PathLike, device=None) -> list[Path]:
    """Writes the work that is deferred on a device (default: the current one) now as a graph, and returns the written
    files. `path` ends with `.svg`, `.png` or `.pdf`, which needs Graphviz, or with `.dot`, which does not.

    Raises ValueError if no work is deferred, and RuntimeError if the program `dot` is missing or fails.
    """
    text = _recordings.text(device, dot=True)
    if not text:
        raise ValueError(f"{path}: no work is deferred; call plot() inside record(), before mark_step()")
    return _pictures.write(text, path)
