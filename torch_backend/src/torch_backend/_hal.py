"""The HAL's registry by ctypes. Choosing a plugin needs neither torch nor the extension, and a failure leaves torch
unchanged.

The extension links the same library by its soname, so the process has one HAL.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).absolute().parent
LIBRARY = PACKAGE / "lib" / "libtorch_backend_hal.so.0"


class Plugin(NamedTuple):
    """An opened plugin. It implements `provided` of the ABI's `slots` functions; the others are defaults."""

    name: str
    vendor: str
    version: str
    path: str
    first_device: int
    device_count: int
    abi: str
    provided: int
    slots: int


class _Entry(ctypes.Structure):  # hal_registry_entry_t
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("vendor", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("path", ctypes.c_char_p),
        ("first_device", ctypes.c_int32),
        ("device_count", ctypes.c_int32),
        ("abi_major", ctypes.c_uint32),
        ("abi_minor", ctypes.c_uint32),
        ("provided_count", ctypes.c_uint32),
        ("slot_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Loads libtorch_backend_hal and declares the functions used here."""
    if not LIBRARY.exists():
        raise RuntimeError(f"torch_backend is not installed completely: {LIBRARY} is missing. Reinstall it with `pip install .`")
    hal = ctypes.CDLL(str(LIBRARY))
    for name, result, arguments in (
        ("hal_error_message", ctypes.c_char_p, []),
        ("hal_registry_add_path", ctypes.c_int32, [ctypes.c_char_p]),
        ("hal_registry_open", ctypes.c_int32, [ctypes.c_char_p]),
        ("hal_registry_is_open", ctypes.c_int32, []),
        ("hal_registry_plugin_count", ctypes.c_int32, []),
        ("hal_registry_plugin", ctypes.c_int32, [ctypes.c_int32, ctypes.POINTER(_Entry)]),
        ("hal_registry_provides", ctypes.c_int32, [ctypes.c_int32, ctypes.c_uint32]),
        ("hal_registry_slot_name", ctypes.c_char_p, [ctypes.c_uint32]),
        ("hal_registry_report", ctypes.c_char_p, []),
        ("hal_registry_check_library", ctypes.c_int32, [ctypes.c_char_p]),
        ("hal_registry_problems", ctypes.c_char_p, []),
        ("hal_device_count", ctypes.c_int32, []),
    ):
        function = getattr(hal, name)
        function.restype, function.argtypes = result, arguments
    return hal


def _check(status: int, error: type[Exception] = RuntimeError) -> None:
    if status != 0:
        raise error(library().hal_error_message().decode(errors="replace"))


def check_library(path: str) -> None:
    """Checks that a file is a complete shared object before it is loaded: a truncated one would end the process.

    Raises:
        OSError: it is not, with the cause.
    """
    _check(library().hal_registry_check_library(os.fsencode(path)), OSError)


_AT_SECURE = 23  # <elf.h>


def is_privileged() -> bool:
    """Returns whether this process has more privileges than the user that started it, and so must not trust the
    environment.
    """
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return getauxval(_AT_SECURE) != 0


_added: list[str] = []


def open_plugins(names: str | None, folders) -> None:
    """Opens a comma-separated list of plugins; with None, the first hardware plugin that finds its hardware. `folders`
    are searched first.
    """
    hal = library()
    for folder in map(str, folders):
        if folder not in _added:
            _check(hal.hal_registry_add_path(folder.encode()))
            _added.append(folder)
    _check(hal.hal_registry_open(None if names is None else names.encode()))


def plugins() -> list[Plugin]:
    """Returns the opened plugins in the order of their devices."""
    hal = library()
    result = []
    for index in range(hal.hal_registry_plugin_count()):
        entry = _Entry(struct_size=ctypes.sizeof(_Entry))
        _check(hal.hal_registry_plugin(index, ctypes.byref(entry)))
        text = [(getattr(entry, field) or b"").decode(errors="replace") for field in ("name", "vendor", "version", "path")]
        abi = f"{entry.abi_major}.{entry.abi_minor}"
        numbers = (entry.first_device, entry.device_count, abi, entry.provided_count, entry.slot_count)
        result.append(Plugin(*text, *numbers))
    return result


def slots(plugin: int) -> dict[str, bool]:
    """Returns for each function of the ABI whether the plugin implements it (True) or uses the default (False)."""
    hal = library()
    result, slot = {}, 0
    while name := hal.hal_registry_slot_name(slot):
        result[name.decode()] = bool(hal.hal_registry_provides(plugin, slot))
        slot += 1
    return result


def report() -> str:
    """Returns why plugins were skipped, one plugin per line."""
    return library().hal_registry_report().decode(errors="replace")


def problems() -> list[str]:
    """Returns the reasons that are errors, without those of plugins that were not requested."""
    return [line for line in library().hal_registry_problems().decode(errors="replace").splitlines() if line]


def device_count() -> int:
    """Returns the number of devices of the opened plugins; starts no driver."""
    return library().hal_device_count()
