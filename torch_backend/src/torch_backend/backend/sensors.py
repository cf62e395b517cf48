"""Measurements of a device, with torch.cuda's names and units. They cover the whole device and all its users.

These functions start no device. They raise NotImplementedError for a value that a device does not measure, and
RuntimeError if a library of the vendor is missing, with what to install.
"""

from __future__ import annotations

import functools

from torch_backend import _C

from ._utils import Device, existing_index


@functools.lru_cache(maxsize=None)
def _numbers() -> dict:
    return {name: number for number, name, _ in _C.sensors()}


def _read(sensor: str, device: Device) -> int:
    return _C.device_sensor(existing_index(device), _numbers()[sensor])


def utilization(device: Device = None) -> int:
    """Returns the percentage of the last sampling period in which the device computed."""
    return _read("utilization", device)


def memory_usage(device: Device = None) -> int:
    """Returns the percentage of the last sampling period in which the device's memory was read or written."""
    return _read("memory_utilization", device)


def temperature(device: Device = None) -> int:
    """Returns the chip's temperature in degrees Celsius."""
    return round(_read("temperature", device) / 1000)


def power_draw(device: Device = None) -> int:
    """Returns the power consumption in milliwatts."""
    return _read("power", device)


def clock_rate(device: Device = None) -> int:
    """Returns the clock of the compute units in megahertz."""
    return _read("clock", device)


def device_memory_used(device: Device = None) -> int:
    """Returns the bytes of the device's memory that are in use by all processes."""
    return _read("memory_used", device)


def list_gpu_processes(device: Device = None) -> str:
    """Returns a text that lists the processes that use the device, and the memory that each uses."""
    index = existing_index(device)
    lines = [f"GPU:{index}"]
    for process, used in _C.device_processes(index):
        words = "an unknown amount of" if used is None else f"{used / (1024 * 1024):>12.3f} MB"
        lines.append(f"process {process:>10d} uses {words} GPU memory")
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])
