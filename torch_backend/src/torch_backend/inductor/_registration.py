"""Registers the device with TorchDynamo and inductor, with the data for the keys of their disk cache."""

from __future__ import annotations

import functools
import json

from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from torch_backend import _builds, backend
from torch_backend.backend import _utils

from ..dynamo.graphs.installation import install_in_inductor
from ..dynamo.interface import plugin_versions
from . import _builder, _constants, _cpu_choices, _failures, _flex, _layout, _triton
from ._codegen import PythonWrapperCodegen
from ._package import CppWrapperCodegen
from ._overrides import Overrides
from ._ways import Scheduling, calls_operators, computes_on_host, way, way_of_device


class DevicePass(CustomGraphModulePass):
    """Marks the operators of a graph that are called, not fused. Inductor includes the `uuid` of a device's pass in the
    keys of its disk cache.
    """

    def __call__(self, gm) -> None:
        _flex.inline(gm)
        way().mark(gm)

    def uuid(self) -> str:
        """Returns the plugins and the kind of kernels of the devices: code for one kind does not run on another."""
        # A graph without tensors of the device must not start a device; its code does not depend on one.
        ways = [way_of_device(index).name for index in range(backend.device_count())] if backend.is_initialized() else "not started"
        return json.dumps([_builds.version(), _utils.name(), plugin_versions(), ways])


def register() -> None:
    """Called when inductor starts, until the device is registered."""
    name = _utils.name()
    _install()
    register_device_op_overrides(name, Overrides())
    # Inductor recognizes kernels of Triton by the class, so `Scheduling` cannot select it.
    scheduling = TritonScheduling if _triton.generates() else Scheduling
    register_backend_for_device(name, scheduling, PythonWrapperCodegen, CppWrapperCodegen, WrapperFxCodegen, DevicePass())


@functools.lru_cache(maxsize=1)
def _install() -> None:
    install_in_inductor()
    _builder.install()
    _layout.install()
    _constants.install(calls_operators)
    _cpu_choices.install(computes_on_host)
    _failures.install()
    _triton.install()
