"""Counters and measurements of lazy work under torch_xla's names, as values, as a report, and as an analysis of a
program.
"""

from __future__ import annotations

import collections

from torch_backend import fallback, lazy

__all__ = [
    "analysis", "clear_all", "clear_counters", "clear_metrics", "counter_names", "counter_value", "executed_fallback_ops", "metric_data",
    "metric_names", "metrics_report", "short_metrics_report",
]  # fmt: skip

_COUNTERS = {
    "MarkStep": "steps", "UncachedCompile": "compiled", "CachedCompile": "cached", "SecondCompile": "again", "RecordedOps": "recorded",
    "SyncedOps": "queued", "FusedOps": "fused",
    "DroppedOps": "dropped", "Syncs": "flushes", "NeededSyncs": "needed", "LimitSyncs": "limits", "SyncedTensorsWithIR": "held",
    "CreateLtcTensor": "created", "DestroyLtcTensor": "destroyed",
}  # fmt: skip
_METRICS = {
    "CompileTime": "compile_time", "ExecuteTime": "queue_time", "DeviceLockWait": "lock_time", "TransferToDeviceTime": "upload_time",
    "TransferFromDeviceTime": "download_time", "TensorsGraphSize": "commands", "OutboundData": "upload_bytes", "InboundData": "download_bytes",
}  # fmt: skip
_WARM_UP = 10  # steps in which compilations and reads are normal
_PREFIX = "pt-xla-profiler: "


def _recorded() -> collections.Counter:
    """Returns the numbers of deferred operators by lazy::<op>, over all their overloads."""
    found: collections.Counter = collections.Counter()
    for name, count in lazy.operators().items():
        found["lazy::" + name.partition(".")[0]] += count
    return found


def _counters() -> dict[str, int]:
    counts = lazy.metrics()
    found = {name: counts[key] for name, key in _COUNTERS.items()}
    uploads = lazy.measurements().get("upload_time")
    found["DeviceDataCacheMiss"] = uploads.count if uploads else 0  # there is no cache
    # aten::<op>: computed by the CPU
    return {**found, **_recorded(), **{row.op: row.count for row in fallback.report()}}


def counter_names() -> list[str]:
    """Returns the names of the counters that are not zero: those of steps, groups, tensors and operators, `lazy::<op>`
    of deferred operators, and `aten::<op>` of operators that the CPU computed.
    """
    return sorted(name for name, value in _counters().items() if value)


def counter_value(name: str) -> int | None:
    """Returns the value of a counter, or None if it is zero or unknown."""
    return _counters().get(name) or None


def metric_names() -> list[str]:
    """Returns the names of the measurements that have samples."""
    measured = lazy.measurements()
    return sorted(name for name, key in _METRICS.items() if key in measured)


def metric_data(name: str) -> tuple | None:
    """Returns (samples, their sum, ((percentage, percentile), ...)) of a measurement, or None without samples. Times
    are in nanoseconds, sizes in bytes. The percentiles are of the last 1024 samples.
    """
    one = lazy.measurements().get(_METRICS.get(name, ""))
    if one is None:
        return None
    unit = 1e9 if _METRICS[name].endswith("_time") else 1
    return one.count, one.total * unit, tuple((percent, value * unit) for percent, value in zip(lazy.PERCENTS, one.percentiles))


def clear_counters() -> None:
    """Sets counters to zero."""
    lazy.reset_metrics()
    fallback.reset()


def clear_metrics() -> None:
    """Deletes the samples of measurements, and sets counters to zero as `clear_counters`."""
    clear_counters()


def clear_all() -> None:
    """Clears counters and measurements."""
    clear_counters()


def _time(seconds: float) -> str:
    """Returns a time as text from its largest unit that is not zero; 1.5 s is "01s500ms000.000us"."""
    microseconds = round(seconds * 1e6, 3)
    whole = int(microseconds)
    parts = [(whole // 86_400_000_000, "d", 2), (whole // 3_600_000_000 % 24, "h", 2), (whole // 60_000_000 % 60, "m", 2), (whole // 1_000_000 % 60, "s", 2), (whole // 1000 % 1000, "ms", 3)]
    while parts and not parts[0][0]:
        parts.pop(0)
    return "".join(f"{value:0{width}}{unit}" for value, unit, width in parts) + f"{microseconds - whole // 1000 * 1000:07.3f}us"


def _size(value: float) -> str:
    """Returns a size in bytes as text; 1536 is "1.50KB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            return f"{value:.2f}{unit}"
        value /= 1024
    raise AssertionError


def _form(key: str):
    return _time if key.endswith("_time") else _size if key.endswith("_bytes") else lambda value: f"{value:.2f}"


def _lines(counters, metrics) -> list[str]:
    measured, counts = lazy.measurements(), _counters()
    lines = []
    for name in metrics:
        one, form = measured.get(_METRICS.get(name, "")), _form(_METRICS.get(name, ""))
        if one is None:
            continue
        percentiles = "; ".join(f"{percent}%={form(value)}" for percent, value in zip(lazy.PERCENTS, one.percentiles))
        lines += [f"Metric: {name}", f"  TotalSamples: {one.count}", f"  Accumulator: {form(one.total)}", f"  Percentiles: {percentiles}"]
    for name in counters:
        if counts.get(name):
            lines += [f"Counter: {name}", f"  Value: {counts[name]}"]
    return lines


def metrics_report() -> str:
    """Returns all measurements and counters as text, and the causes of the last compilations."""
    lines = _lines(counter_names(), metric_names())
    lines += [f"Compilation: step {one.step}{', ' + one.line if one.line else ''}: {one.cause}" for one in lazy.compilations()[-10:]]
    return "\n".join(lines) + "\n"


def short_metrics_report(counter_names: list | None = None, metric_names: list | None = None) -> str:
    """Returns a part of the report. By default these are compilation, submission, copies, steps, and operators that the
    CPU computed.
    """
    if counter_names is None:
        counter_names = ["CachedCompile", "MarkStep", "UncachedCompile", *executed_fallback_ops()]
    if metric_names is None:
        metric_names = ["CompileTime", "ExecuteTime", "TransferToDeviceTime", "TransferFromDeviceTime"]
    return "\n".join(_lines(counter_names, metric_names)) + "\n"


def executed_fallback_ops() -> list[str]:
    """Returns the operators that the CPU computed, as `aten::<op>`."""
    return [name for name in counter_names() if name.startswith("aten::")]


def _frequent(name: str, steps: int, measured) -> list[str]:
    one = measured.get(_METRICS[name])
    if steps <= _WARM_UP or one is None or one.count / steps <= 0.5:
        return []
    return [f"{name} too frequent: {one.count} counts during {steps} steps"]


def _slow(name: str, limit: float, measured) -> list[str]:
    one = measured.get(_METRICS[name])
    return [f"{name} too slow: longest instance took {_time(one.most)}"] if one is not None and one.most > limit else []


def analysis() -> list[str]:
    """Returns the problems of a program that the measurements show, one a line, each starting with "pt-xla-profiler: ".

    Problems are: compilations or reads of values in more than every second step; slow compilation or submission;
    operators that the CPU computed, with their counts; loops that do not mark steps.
    """
    measured, counts = lazy.measurements(), _counters()
    steps = counts["MarkStep"]
    found = _frequent("CompileTime", steps, measured) + _frequent("TransferFromDeviceTime", steps, measured)
    # In seconds; the limits of torch_xla
    found += _slow("CompileTime", 300, measured) + _slow("ExecuteTime", 30, measured)
    fallen = [f"{name} ({counts[name]})" for name in sorted(counts) if name.startswith("aten::") and name != "aten::_local_scalar_dense"]
    if fallen:
        found.append(f"Op(s) not lowered: {', '.join(fallen)}  computed by the CPU; torch_backend.fallback.strict() makes it an error with its line")
    if counts["LimitSyncs"]:
        found.append(f"steps not marked: the limit of operators was reached {counts['LimitSyncs']} times; call mark_step() in the loop")
    if any(line.startswith("CompileTime") for line in found):
        found += [f"compiled in {one}" for one in lazy.compilations()[-3:]]
    return [_PREFIX + line for line in found]
