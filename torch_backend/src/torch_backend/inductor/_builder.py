"""The compiler's options for packages of AOTInductor: where the headers and libraries of torch_backend are.

torch 2.15 queries them from the device's interface (dynamo/interface.py). Earlier versions know the options of their
own devices only.
"""

from __future__ import annotations

import functools

from torch._dynamo.device_interface import DeviceInterface
from torch._inductor import codecache, cpp_builder

from torch_backend.backend import _utils

from ..dynamo.interface import Interface
from ._package import HEADER


def install() -> None:
    """Called once, when inductor first uses the device."""
    _name_header()
    if not hasattr(DeviceInterface, "get_cpp_device_options"):
        _add_options()


def _name_header() -> None:
    """torch precompiles a header that it derives from the device's name."""
    original = getattr(codecache, "_get_cpp_wrapper_header", None)
    if original is None:
        return

    @functools.wraps(original)
    def header(device: str, aot_mode: bool = False) -> str:
        return HEADER if aot_mode and device.partition(":")[0] == _utils.name() else original(device, aot_mode)

    codecache._get_cpp_wrapper_header = header


def _add_options() -> None:
    original = cpp_builder.get_cpp_torch_device_options

    @functools.wraps(original)
    def options(device_type: str, aot_mode: bool = False, compile_only: bool = False):
        known = original(device_type, aot_mode, compile_only)
        if device_type != _utils.name():
            return known
        return tuple([*ours, *theirs] for ours, theirs in zip(Interface.get_cpp_device_options(aot_mode, compile_only), known))

    cpp_builder.get_cpp_torch_device_options = options
