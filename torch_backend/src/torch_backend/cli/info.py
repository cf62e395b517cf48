"""The command `info`: versions, plugins and devices of this installation."""

from __future__ import annotations

import platform

from ._output import print_json


def collect() -> dict:
    """Returns versions, plugins and devices; starts the devices to query them."""
    import torch

    import torch_backend
    from torch_backend import _activation, _builds, _hal

    result = {
        "torch_backend": torch_backend.__version__,
        "torch": str(torch.__version__),
        "built_for_torch": _builds.minors(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "active": torch_backend.is_active(),
        "errors": torch_backend.errors(),
        "problems": list(dict.fromkeys((*torch_backend.errors(), *_hal.problems()))),
        "skipped": [line for line in _hal.report().splitlines() if line and line not in _hal.problems()],
        "search_path": _activation.folders(),
        "plugins": [],
        "devices": [],
    }
    if not torch_backend.is_active():
        return result
    from torch_backend import _C

    module = torch.get_device_module(torch_backend.device_name())
    for index, plugin in enumerate(torch_backend.plugins()):
        slots = _hal.slots(index)
        result["plugins"].append({**plugin._asdict(), "own": [slot for slot, own in slots.items() if own],
                                  "default": [slot for slot, own in slots.items() if not own]})  # fmt: skip
    for index in range(module.device_count()):
        properties = module.get_device_properties(index)
        free, total = module.mem_get_info(index)
        result["devices"].append({"device": f"{torch_backend.device_name()}:{index}", "name": properties.name,
                                  "free_memory": free, "total_memory": total, "architecture": properties.architecture,
                                  "dialects": properties.dialects, "driver_version": properties.driver_version, "firmware_version": properties.firmware_version,
                                  "numa_node": properties.numa_node, "partition_index": properties.partition_index,
                                  "kernels": _C.kernel_stats(index)})  # fmt: skip
    return result


def _facts(device: dict) -> str:
    """Returns the properties that a device reports, without unknown ones."""
    facts = [f"{name.replace('_', ' ')} {device[name]}" for name in ("driver_version", "firmware_version", "architecture") if device[name]]
    return ", ".join(facts + [f"{name.replace('_', ' ')} {device[name]}" for name in ("numa_node", "partition_index") if device[name] >= 0])


def _without_kernels(dialects: str) -> str:
    """Returns the reason why a device has no portable kernels."""
    if dialects:
        return f"none, no pack next to the plugin has modules in {' or '.join(dialects.split(','))}; create one with torch-backend pack"
    return "none, the device loads no modules"


def _kernels(stats: dict, dialects: str) -> str:
    """Returns the source of a device's portable kernels as text."""
    packed = f"{stats['packed']} in this process from the pack {stats['pack']}" if stats["pack"] else ""
    if stats["dialect"] in ("", "native"):
        return "portable kernels: " + (packed or ("compiled into the plugin" if stats["dialect"] else _without_kernels(dialects)))
    kept = f"cached in {stats['cache']}" if stats["cache"] else "not cached (HAL_CACHE_DIR is empty)"
    return (f"portable kernels: {packed and packed + '; others '}compiled from {stats['dialect']} at first use, {kept}; in this process {stats['compiled']} compiled in "
            f"{stats['compile_seconds']:.1f} s, {stats['loaded']} loaded from the cache, {stats['refused']} refused")


def show(info: dict) -> None:
    """Prints the result of `collect` as text."""
    from torch_backend import _builds

    print(f"torch_backend {info['torch_backend']} (built for torch {_builds.listed(info['built_for_torch'])}), torch {info['torch']}, "
          f"Python {info['python']}, {info['platform']}")  # fmt: skip
    for plugin in info["plugins"]:
        print(f"plugin {plugin['name']} {plugin['version']} by {plugin['vendor']}, ABI {plugin['abi']}: {plugin['path']}")
        print(f"  {plugin['provided']} of {plugin['slots']} functions are implemented by the plugin, the others are defaults")
        print(f"  default: {', '.join(plugin['default']) or 'none'}")
    for device in info["devices"]:
        print(f"device {device['device']}: {device['name']}, {device['free_memory']} of {device['total_memory']} bytes free")
        if _facts(device):
            print(f"  {_facts(device)}")
        print(f"  {_kernels(device['kernels'], device['dialects'])}")
    for line in info["problems"]:
        print(f"problem: {line}")
    for line in info["skipped"]:
        print(f"not used: {line}")
    if not info["active"]:
        print("No plugin is active. Set TORCH_BACKEND=fake, or call torch_backend.use('fake').")
        print(f"Plugins are looked for in: {', '.join(info['search_path']) or 'no folder'} and HAL_PLUGIN_PATH.")


def add_arguments(parser) -> None:
    """Declares the command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments) -> int:
    """Prints the installation. Returns 1 if a requested plugin is missing, or a plugin is broken."""
    collected = collect()
    print_json(collected) if arguments.json else show(collected)
    return 1 if collected["problems"] else 0
