"""Kernels of Triton in compiled code: those that a program calls and, on request (TORCH_BACKEND_INDUCTOR_TRITON=1), those
that inductor generates.
"""

from __future__ import annotations

import functools
import os

from torch._inductor import async_compile, config
from torch._inductor.runtime import benchmarking
from torch._inductor.virtualized import V

from torch_backend.backend import _utils
from torch_backend.triton import _registration


class AsyncCompile(async_compile.AsyncCompile):
    """Compiles in this process: inductor's worker processes do not know plugins that a program chose by
    `torch_backend.use`.
    """

    @classmethod
    def use_process_pool(cls) -> bool:
        return False


@functools.lru_cache(maxsize=1)
def generates() -> bool:
    """Returns whether inductor generates kernels of Triton for the device.

    Raises:
        ValueError: the variable of the environment is neither 0 nor 1.
    """
    value = os.environ.get("TORCH_BACKEND_INDUCTOR_TRITON", "0")
    if value not in ("0", "1"):
        raise ValueError(f"TORCH_BACKEND_INDUCTOR_TRITON is {value!r}; use 0 or 1")
    return value == "1"


def install() -> None:
    """Called once, when inductor first uses the device. Inductor measures configurations of an autotuned kernel."""
    benchmarking.register_benchmarker(_utils.name(), _measure, override=True)


def _measure(benchmarker, call, **options):
    return benchmarker.benchmark_gpu(call, device_type=_utils.name(), **options)


def name_of(kernel) -> str:
    """Returns the name of a kernel's function; an autotuned kernel contains the kernel."""
    while not isinstance(name := getattr(kernel, "__name__", None), str):
        kernel = kernel.fn
    return name


def check_generated(index: int) -> None:
    """Raises RuntimeError if no installed Triton compiles for a device, and NotImplementedError if kernels of Triton
    cannot be called: C++ has no launcher for them.
    """
    try:
        _registration.check(index)
    except RuntimeError as error:
        raise RuntimeError(f"TORCH_BACKEND_INDUCTOR_TRITON=1: {error}") from None
    if config.cpp_wrapper or V.aot_compilation:
        raise NotImplementedError("cpp_wrapper and packages of AOTInductor cannot contain kernels of Triton, because these are launched from Python: "
                                  "unset TORCH_BACKEND_INDUCTOR_TRITON")  # fmt: skip


def check(kernel) -> None:
    """Raises RuntimeError if the graph calls a kernel of Triton on the device, and no compiler is installed for it."""
    current = V.graph.get_current_device_or_throw()
    if current.type == _utils.name():
        try:
            _registration.check(current.index or 0)
        except RuntimeError as error:
            raise RuntimeError(f"the Triton kernel '{name_of(kernel)}' in compiled code: {error}") from None


def refuse(kernel, where: str) -> None:
    """Raises NotImplementedError: C++ has no launcher for kernels of Triton on the device."""
    raise NotImplementedError(f"{where} cannot contain the Triton kernel '{name_of(kernel)}' on '{_utils.name()}', because kernels of Triton are launched "
                              "from Python: use torch.compile without cpp_wrapper and without AOTInductor")  # fmt: skip
