"""Triton kernels of many kinds, each launched through torch_backend and then by Triton's own launcher for CUDA, on the
mock CUDA driver, which records both launches.

    triton_kernels.py RECORD   prints a line of JSON for each kernel

The two launches have the same grid, block, shared memory, attributes and argument bytes if torch_backend's launcher is
right: Triton's launcher is C code that Triton compiles here against the mock driver."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import torch_backend

DEVICE = torch_backend.device_name()
LAUNCHES = {}


class Launch(NamedTuple):
    """A kernel, its grid, its arguments in the order of its parameters, and Triton's options."""

    kernel: object
    grid: object
    args: tuple
    options: dict = {}


def launch(function):
    """Registers a function that returns a Launch, under the function's name."""
    LAUNCHES[function.__name__] = function
    return function


def tensor(*size, dtype=torch.float32):
    return torch.zeros(size, dtype=dtype, device=DEVICE)


# ---- the kernels ----


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def numbers_kernel(out, a, b, c, d, e, flag, missing, also_missing, KIND: tl.constexpr):
    value = a + b * 2.0 + c.to(tl.float32) + d.to(tl.float32) + e.to(tl.float32) + flag.to(tl.float32)
    if missing is not None:
        value += tl.load(missing)
    if also_missing is not None:
        value += tl.load(also_missing)
    if KIND == "negative":
        value = -value
    tl.store(out, value)


@triton.jit
def typed_kernel(out, a: tl.float16, b: tl.bfloat16, c: tl.float64, d: tl.int8, e: tl.uint16, f: tl.int64, g: tl.uint32):
    tl.store(out, a.to(tl.float64) + b.to(tl.float64) + c + d + e + f + g)


@triton.jit
def scale_kernel(out, n, m, k):
    i = tl.arange(0, 64)
    tl.store(out + i * k, i + n + m, mask=i < n)


@triton.jit(do_not_specialize=["n"])
def general_kernel(out, n):
    tl.store(out + tl.arange(0, 16), n)


@triton.jit
def softmax_kernel(out, x, row, columns, BLOCK: tl.constexpr):
    at, i = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + at * row + i, mask=i < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + at * row + i, values / tl.sum(values, axis=0), mask=i < columns)


@triton.jit
def dot_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (at + k)[None, :])
        total = tl.dot(left, tl.load(b + (at + k)[:, None] * N + n[None, :]), total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16))


@triton.jit
def count_kernel(counts, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def tuple_kernel(pair, sizes, nested):
    i = tl.arange(0, 32)
    tl.store(pair[1] + i, tl.load(pair[0] + i) + nested[1][0], mask=(i < sizes[0]) & (i < sizes[1]))
    tl.store(nested[0], nested[1][1])


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 256}, num_warps=4)], key=["n"])
@triton.jit
def tuned_kernel(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 1.0, mask=i < n)


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def even_kernel(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + i, 1.0)
    else:
        tl.store(x + i, 1.0, mask=i < n)


@triton.jit
def places_kernel(out, wide, high):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out + x + wide * (y + high * z), x + y + z)


@triton.jit
def square(x):
    return x * x


@triton.jit
def apply_kernel(x, FUNCTION: tl.constexpr):
    i = tl.arange(0, 32)
    tl.store(x + i, FUNCTION(tl.load(x + i)))


@triton.jit
def described_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK, BLOCK])
    at = tl.program_id(0) * BLOCK
    target.store([at, 0], source.load([at, 0]) * 2)


@triton.jit
def host_described_kernel(source, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i[:, None] * BLOCK + i[None, :], source.load([0, 0]))


@triton.jit
def many_kernel(out, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t):  # noqa: E741
    tl.store(out, a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r + s + t)


@triton.jit
def bytes_kernel(a, b, c, d, n):
    i = tl.arange(0, 64)
    value = tl.load(a + i, mask=i < n).to(tl.int32) + tl.load(b + i, mask=i < n).to(tl.int32) + tl.load(c + i, mask=i < n)
    tl.store(d + i, value.to(tl.bfloat16), mask=i < n)


@triton.jit
def scan_kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.cumsum(tl.sort(tl.load(x + i, mask=i < n, other=0.0)), axis=0), mask=i < n)


# ---- the launches ----


@launch
def elementwise():
    return Launch(add_kernel, (4,), (tensor(1000), tensor(1000), tensor(1000), 1000, 256))


@launch
def numbers():
    return Launch(numbers_kernel, (1,), (tensor(1), 2.5, -1e-3, -7, 1 << 40, (1 << 63) + 5, True, None, None, "negative"))


@launch
def numbers_with_a_pointer_for_none():
    return Launch(numbers_kernel, (1,), (tensor(1), float("inf"), 1e300, 3, -(1 << 50), 12, False, tensor(1), None, "positive"))


@launch
def annotated_numbers():
    return Launch(typed_kernel, (1,), (tensor(1, dtype=torch.float64), 1.1, 3.14159, 2.0 / 3, -3, 65535, -(1 << 62), 4000000000))


@launch
def sizes_that_are_divisible():
    return Launch(scale_kernel, (1,), (tensor(1024, dtype=torch.int32), 16, 32, 16))


@launch
def sizes_that_are_1_or_odd():
    return Launch(scale_kernel, (1,), (tensor(1024, dtype=torch.int32), 1, 17, 1))


@launch
def a_size_that_is_not_specialized():
    return Launch(general_kernel, (1,), (tensor(16, dtype=torch.int32), 1))


@launch
def an_unaligned_part_of_a_tensor():
    base = tensor(5000)
    return Launch(add_kernel, (2,), (base[3:], base[1001:], base.view(50, 100)[7], 100, 64))


@launch
def reduction():
    return Launch(softmax_kernel, (128,), (tensor(128, 781), tensor(128, 781), 781, 781, 1024), {"num_warps": 8})


@launch
def sort_and_scan():
    return Launch(scan_kernel, (1,), (tensor(500), 500, 512), {"num_warps": 1})


@launch
def dot():
    a, b, c = (tensor(256, 256, dtype=torch.float16) for _ in range(3))
    return Launch(dot_kernel, (4, 4), (a, b, c, 256, 256, 256, 64, 64, 32), {"num_warps": 4, "num_stages": 2})


@launch
def dot_with_more_shared_memory_than_the_default():
    a, b, c = (tensor(512, 512, dtype=torch.float16) for _ in range(3))
    return Launch(dot_kernel, (4, 4), (a, b, c, 512, 512, 512, 128, 128, 64), {"num_warps": 8, "num_stages": 3})


@launch
def atomic():
    return Launch(count_kernel, (3,), (tensor(10, dtype=torch.int32), tensor(300, dtype=torch.int64), 300, 128), {"num_warps": 2})


@launch
def tuples():
    return Launch(tuple_kernel, (1,), ((tensor(32), tensor(32)), (32, 1), (tensor(1), (2.5, 7))))


@launch
def tuned():
    return Launch(tuned_kernel, lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), (tensor(1000), 1000))


@launch
def heuristics():
    return Launch(even_kernel, lambda meta: (meta["n"] // meta["BLOCK"],), (tensor(1024), 1024, 128))


@launch
def two_dimensions():
    return Launch(places_kernel, (5, 3), (tensor(15, dtype=torch.int32), 5, 3))


@launch
def three_dimensions():
    return Launch(places_kernel, (5, 3, 7), (tensor(105, dtype=torch.int32), 5, 3))


@launch
def a_grid_that_depends_on_the_arguments():
    return Launch(places_kernel, lambda meta: (meta["wide"], meta["high"]), (tensor(12, dtype=torch.int32), 4, 3))


@launch
def a_function_as_a_constant():
    return Launch(apply_kernel, (1,), (tensor(32), square), {"num_warps": 16})


@launch
def blocks_of_a_cluster():
    return Launch(add_kernel, (4,), (tensor(4096), tensor(4096), tensor(4096), 4096, 1024), {"num_ctas": 2})


@launch
def cooperative_and_overlapping():
    options = {"launch_cooperative_grid": True, "launch_pdl": True}
    return Launch(add_kernel, (4,), (tensor(1000), tensor(1000), tensor(1000), 1000, 256), options)


@launch
def scratch_memory():
    return Launch(described_kernel, (2,), (tensor(64, 32), tensor(64, 32), 64, 32, 32))


@launch
def many_arguments():
    return Launch(many_kernel, (1,), (tensor(1), *[index + 0.5 for index in range(20)]))


@launch
def small_dtypes():
    dtypes = (torch.int8, torch.uint8, torch.int16, torch.bfloat16)
    return Launch(bytes_kernel, (1,), (*(tensor(64, dtype=dtype) for dtype in dtypes), 60))


@launch
def a_tensor_seen_as_another_dtype():
    return Launch(add_kernel, (1,), (triton.reinterpret(tensor(64, dtype=torch.int32), tl.float32), tensor(64), tensor(64), 64, 64))


@launch
def a_parameter():
    weight = torch.nn.Parameter(tensor(64))
    return Launch(add_kernel, (1,), (weight, weight.detach(), tensor(64), 64, 64))


@launch
def addresses_and_numpy_numbers():
    import numpy

    return Launch(scale_kernel, (1,), (tensor(1024, dtype=torch.int32), int(numpy.int32(40)), int(numpy.int64(3)), 5))


@launch
def page_locked_memory():
    out = torch.zeros(1024, dtype=torch.float32).pin_memory()
    return Launch(add_kernel, (1,), (tensor(64), tensor(64), out, 64, 64))


def host_descriptor():
    from triton.tools.tensor_descriptor import TensorDescriptor

    return Launch(host_described_kernel, (1,), (TensorDescriptor.from_tensor(tensor(32, 32), [32, 32]), tensor(32, 32), 32))


# ---- comparing ----


class Record:
    """The file to which the mock driver appends."""

    def __init__(self, path: str):
        self._path, self._seen = Path(path), 0

    def new_lines(self) -> list[str]:
        torch.accelerator.synchronize()
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        new, self._seen = lines[self._seen :], len(lines)
        return new


def launch_by_triton(compiled, grid: tuple, args: tuple) -> None:
    """Launches a compiled kernel by Triton's driver for CUDA, which loads its cubin again."""
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime import driver

    ours = driver.active
    theirs = CudaDriver()
    driver.set_active(theirs)  # the launcher's constructor reads it
    try:
        run = theirs.launcher_cls(compiled.src, compiled.metadata)
        function = theirs.utils.load_binary(compiled.name, compiled.kernel, compiled.metadata.shared, 0)[1]
        run(*grid, *(1,) * (3 - len(grid)), 0, function, compiled.packed_metadata, None, None, None, *args)
    finally:
        driver.set_active(ours)


def compare(name: str, record: Record) -> dict:
    kernel, grid, args, options = LAUNCHES.get(name, host_descriptor)()
    record.new_lines()
    compiled = kernel[grid](*args, **options)
    ours = record.new_lines()
    jit = kernel
    while not isinstance(jit, triton.JITFunction):
        jit = jit.fn
    bound = dict(zip(jit.arg_names, args))
    if name == "tuned":
        bound.update(kernel.best_config.kwargs)
    if name == "heuristics":
        bound["EVEN"] = True
    args = tuple(bound.values())
    launch_by_triton(compiled, grid if isinstance(grid, tuple) else grid(bound), args)
    theirs = record.new_lines()
    return {"name": name, "kernel": compiled.name, "ours": ours, "theirs": theirs, "ptx": compiled.asm["ptx"], "cubin": compiled.kernel.hex(),
            "threads": compiled.metadata.num_warps * 32, "shared": compiled.metadata.shared, "grid": grid if isinstance(grid, tuple) else None,
            "addresses": [a.data_ptr() for a in args if isinstance(a, torch.Tensor)]}  # fmt: skip


def set_allocator() -> None:
    """Triton's programs provide scratch memory themselves. The same memory for both launches."""
    memory = tensor(1 << 16, dtype=torch.int8)
    triton.set_allocator(lambda size, alignment, stream: memory[:size])


if __name__ == "__main__":
    set_allocator()
    for name in sys.argv[2:] or LAUNCHES:
        print(json.dumps(compare(name, Record(sys.argv[1]))), flush=True)
