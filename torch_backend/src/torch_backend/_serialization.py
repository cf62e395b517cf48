"""torch.load of files whose tensors were on a plugin of ours under another name of the device type.

In a process the device type is called after its first plugin. A file may come from a process with other plugins, or with the
same ones in another order: "five:1" is the second device of the plugin five wherever that is here, and a plugin that is not
active here is replaced by the device of the same index.
"""

from __future__ import annotations

import torch

from . import _hal, _registry

_OURS = ("fake", "npu", "nvgpu", "opencl")  # the device types that this project's own plugins make


def _place(location: str) -> int | None:
    """Gives the index of the device that a tag of another name of ours means here; None for tags that are not ours."""
    kind, _, number = location.partition(":")
    plugins = {plugin.name: plugin for plugin in _hal.plugins()}
    if kind == _registry.type_name() or (kind not in plugins and kind not in _OURS):
        return None
    if not (number or "0").isdecimal():
        raise RuntimeError(f"'{location}' is no device: '{number}' is no index. Use torch.load with map_location.")
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
    """Makes torch.load know the tags; after torch's own handler of the device type (23), which tags what is saved."""
    torch.serialization.register_package(27, lambda storage: None, _deserialize)
