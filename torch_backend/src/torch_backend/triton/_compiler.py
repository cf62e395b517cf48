"""The compiler under the name of the device type. Inductor passes the device type as the target's backend, and Triton
looks for a compiler that supports it."""

from __future__ import annotations

from triton.backends import Backend, backends
from triton.backends.compiler import GPUTarget


def register(name: str, backend: Backend) -> None:
    """Adds a backend of this name to Triton's table, with the same compiler, unless the compiler supports the name."""
    if name in backends or backend.compiler.supports_target(GPUTarget(name, 0, 1)):
        return

    class Compiler(backend.compiler):
        @staticmethod
        def supports_target(target: GPUTarget) -> bool:
            return target.backend == name

    backends[name] = Backend(Compiler, backend.driver)
