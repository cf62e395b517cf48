"""The OpenCL device compared with CPU PyTorch on the same cores: kernels at sizes dominated by the kernel's time, and
small ones dominated by launches.

    python test/bench/opencl.py [--row NAME ...]

The sides run alternately; a time is the best of several rounds of calls with one synchronization at the end. The last
column is the ratio of the times and the target, which applies to PoCL on an idle machine. HAL_OPENCL_FORM=simt measures
the kernels for many threads. Exit code 1 if a row misses its target.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
from sides import PAUSE, synchronizer, time_row  # noqa: E402  found by the line above


def rows(torch):
    """{name: (function of a device that returns a call, calls in a row, target)}; None = no target."""
    functional = torch.nn.functional

    def make(*shape):
        return lambda device: torch.randn(*shape, device=device)

    def unary(function, *shapes):
        def build(device):
            tensors = [make(*shape)(device) for shape in shapes]
            return lambda: function(*tensors)

        return build

    def gradients(function, *shapes):
        """The backward of a function alone."""

        def build(device):
            tensors = [make(*shape)(device).requires_grad_() for shape in shapes]
            result = function(*tensors)
            grad = torch.randn_like(result)
            return lambda: torch.autograd.grad(result, tensors, grad, retain_graph=True)

        return build

    def out(function, *shape):
        def build(device):
            a, b = make(*shape)(device), torch.empty(*shape, device=device)
            return lambda: function(a, b)

        return build

    def scattered(function, shape, result):
        """Elements, or rows, written to random indices of the first dimension."""

        def build(device):
            places = torch.randint(0, result[0], shape[:1], generator=torch.Generator().manual_seed(1)).to(device)
            out, values = torch.zeros(result, device=device), make(*shape)(device)
            return lambda: function(out, places, values)

        return build

    def cast(how, *shapes):
        """A convolution of operands that are modified first."""

        def build(device):
            tensors = [how(make(*shape)(device)) for shape in shapes]
            return lambda: functional.conv2d(*tensors, padding=1)

        return build

    large = (4096, 4096)
    image, weight = (16, 64, 32, 32), (64, 64, 3, 3)
    heads = (4, 8, 256, 64)
    return {
        "add 16": (unary(lambda a: a + a, (16,)), 200, None),
        "add 16M out=": (out(lambda a, b: torch.add(a, a, out=b), *large), 5, 1.15),
        "sum 16M": (unary(lambda a: a.sum(), large), 5, 1.5),
        "sum 16M rows": (unary(lambda a: a.sum(1), large), 5, 1.5),
        "sum 16M columns": (unary(lambda a: a.sum(0), large), 5, 1.5),
        "softmax 4096": (unary(lambda a: torch.softmax(a, 1), large), 3, 1.2),
        "layer_norm 4096": (unary(lambda a: functional.layer_norm(a, (4096,)), large), 3, 1.2),
        "transposed copy 16M": (out(lambda a, b: b.copy_(a.t()), *large), 3, None),
        "mm 256": (unary(lambda a: a @ a, (256, 256)), 50, None),
        "mm 512": (unary(lambda a: a @ a, (512, 512)), 20, 1.0),
        "mm 1024": (unary(lambda a: a @ a, (1024, 1024)), 5, 1 / 0.85),
        "linear 64x512x512": (unary(functional.linear, (64, 512), (512, 512)), 50, None),
        "conv 3x3 64 channels": (unary(lambda x, w: functional.conv2d(x, w, padding=1), image, weight), 5, 1 / 0.75),
        "conv 3x3 backward": (gradients(lambda x, w: functional.conv2d(x, w, padding=1), image, weight), 5, 1.5),
        "conv 3x3 stride 2 backward": (gradients(lambda x, w: functional.conv2d(x, w, padding=1, stride=2), image, weight), 5, 2.0),
        "attention 4x8x256x64": (unary(lambda q: functional.scaled_dot_product_attention(q, q, q), heads), 5, 1 / 0.7),
        "attention backward": (gradients(functional.scaled_dot_product_attention, heads, heads, heads), 5, 1.5),
        "scatter_add 1M into 1000": (scattered(lambda out, at, x: out.scatter_add_(0, at, x), (1 << 20,), (1000,)), 3, None),
        "scatter 1M into 1M": (scattered(lambda out, at, x: out.scatter_(0, at, x), (1 << 20,), (1 << 20,)), 3, None),
        "index_add 8192 rows of 128": (scattered(lambda out, at, x: out.index_add_(0, at, x), (8192, 128), (50000, 128)), 3, None),
        "conv 3x3 float16": (cast(lambda t: t.half(), image, weight), 3, None),
        "conv 3x3 channels last": (cast(lambda t: t.to(memory_format=torch.channels_last), image, weight), 3, None),
        "uniform 16M": (unary(lambda a: a.uniform_(), large), 3, 0.2),
    }


def measure(torch, device_type, build, calls, rounds=5):
    """Best seconds of a call on a device and on the CPU."""
    import time

    times = []
    for device in (device_type, "cpu"):
        call, wait = build(device), synchronizer(torch, device)
        for _ in range(3):
            call()
        wait()
        time.sleep(PAUSE)
        times.append(min(time_row(call, wait, calls) for _ in range(rounds)))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", help="only this row (may be repeated)")
    options = parser.parse_args()
    import torch

    import torch_backend

    torch_backend.use("opencl")
    if torch.ocl.device_count() == 0:
        sys.exit("no OpenCL device here")
    print(f"{torch.ocl.get_device_properties(0).name}, CPU torch {torch.__version__} with {torch.get_num_threads()} threads")
    print(f"{'':26} {'ocl us':>12} {'cpu us':>12} {'ratio':>7} {'target':>7}")
    missed = 0
    for name, (build, calls, target) in rows(torch).items():
        if options.row and name not in options.row:
            continue
        ours, cpus = measure(torch, "ocl", build, calls)
        ratio = ours / cpus
        missed += target is not None and ratio > target
        print(f"{name:26} {ours * 1e6:12.1f} {cpus * 1e6:12.1f} {ratio:7.2f} {target or 0:7.2f}{'  missed' if target and ratio > target else ''}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
