"""Kernels of Triton that a program calls in compiled code. Inductor's own kernels for the device are not Triton's."""

from __future__ import annotations

from torch._inductor import async_compile
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
