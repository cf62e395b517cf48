"""Triton's driver for Acme's devices. Device, stream, load and launch are those of the base class."""

from torch_backend import triton as base
from triton.backends.compiler import GPUTarget


class AcmeDriver(base.Driver):
    plugin = "fake"  # plugin_info reports this name
    dialect = "c"  # in which module_load takes what the compiler writes

    def target(self, properties):
        return GPUTarget("acme", properties.name, 1)  # a block runs on one thread of the processor

    def plan(self, metadata):
        return base.Plan((1, 1, 1))
