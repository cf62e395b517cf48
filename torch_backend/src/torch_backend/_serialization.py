"""torch.load of files whose tensors were on a plugin of this package under another device type name.

The device type of a process is named after its first plugin. A file may come from a process with other plugins, or
with the same plugins in another order. "five:1" is the second device of the plugin five, at any index in this
process. A plugin that is not active here is replaced by the device with the same index.
"""

from __future__ import annotations

import torch

from . import _hal, _registry

_OURS = ("fake", "npu", "nvgpu", "ocl", "opencl", "pjrt", "vk")  # device types that this project's own plugins register


def _place(location: str) -> int | None:
    """Returns the device index that a location tag with another name of a plugin means here; None for tags of other
    backends.
    """
    kind, _, number = location.partition(":")
    plugins = {plugin.name: plugin for plugin in _hal.plugins()}
    if kind == _registry.type_name() or (kind not in plugins and kind not in _OURS):
        return None
    if not (number or "0").isdecimal():
        raise RuntimeError(f"invalid device '{location}': '{number}' is not a device index. Use torch.load with map_location.")
    index, plugin = int(number or 0), plugins.get(kind)
    count = plugin.device_count if plugin else _hal.device_count()
    if index >= count:
        there = f"the plugin {kind} has {count}" if plugin else f"this process has {count} of type '{_registry.type_name()}'"
        raise RuntimeError(
            f"Attempting to deserialize object on device '{location}', but {there}. Use torch.load with map_location to map "
            "your storages to an existing device."
        )
    return plugin.first_device + index if plugin else index


def _deserialize(storage, location: str):
    index = _place(location)
    return None if index is None else storage.to(device=torch.device(_registry.type_name(), index))


def install() -> None:
    """Registers the tags with torch.load; after torch's own handler of the device type (23), which tags what is saved.
    """
    torch.serialization.register_package(27, lambda storage: None, _deserialize)
