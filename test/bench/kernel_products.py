"""Products of matrices compared with CPU PyTorch in the same run, both with all cores: GFLOP/s of each side.

Usage: python kernel_products.py [--check] [--quick] [--one-thread] [--rows NAME ...] [--dtypes NAME ...] [--avx2]
    [--best] [--rounds N].
Targets, as ratios to the CPU's GFLOP/s: float32 and float64 0.95, bfloat16 0.5. The first line prints the instruction
sets that both sides use for bfloat16 products.

--rows selects groups of shapes: layers (default), sizes (squares of 64 to 4096), batched, skinny. --dtypes selects from
bfloat16 and float32 (both by default) and float64. With --avx2 both sides are restricted to AVX2, the device by
HAL_HOST_ISA, the CPU by the settings of ATen, oneDNN and MKL; HAL_HOST_ISA=avx2 alone restricts the device.

With --one-thread each side has one thread, inline, and its processor time is measured: for a machine under load.

The sides run alternately, with a pause before each and a call that is not timed; a time is the median of the best
calls; under load, --best takes the best of all rounds. With --check the exit code is 1 if a target is missed.
"""

import json
import math
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

TARGETS = {"bfloat16": 0.5, "float32": 0.95, "float64": 0.95}
# m, n, k of the result m x n, and the number of products of a batch; in three layouts each: those of a layer's output,
# of its weight in torch.nn.Linear, and of its gradient.
SHAPES = {
    "layers": ((256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 512), (64, 1024, 1024), (1000, 500, 700)),
    "sizes": tuple((n, n, n) for n in (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)),
    "batched": ((32, 32, 32, 256), (64, 64, 64, 64), (128, 64, 128, 32), (197, 197, 64, 24), (256, 256, 256, 16)),
    "skinny": ((8, 1024, 1024), (16, 1024, 1024), (1024, 8, 1024), (1024, 16, 1024), (1024, 1024, 8), (1024, 1024, 16),
               (32, 4096, 64), (128, 10, 512), (13, 777, 301), (4096, 64, 64)),
}  # fmt: skip
WAYS = ("a @ b", "a @ w.t()", "g.t() @ x")


def operands(torch, device, shape, way, dtype):
    """Both factors, one of them transposed as `way` selects, and the result."""
    m, n, k, *batch = shape
    generator = torch.Generator().manual_seed(1)
    a = torch.rand((*batch, k, m) if way == "g.t() @ x" else (*batch, m, k), generator=generator) - 0.5
    b = torch.rand((*batch, n, k) if way == "a @ w.t()" else (*batch, k, n), generator=generator) - 0.5
    a, b = (x.to(dtype).to(device) for x in (a, b))
    out = torch.empty(*batch, m, n, dtype=dtype, device=device)
    return a.mT if way == "g.t() @ x" else a, b.mT if way == "a @ w.t()" else b, out


def child(options):
    """Measures every row in this process's mode and prints them as JSON."""
    torch = sides.torch_with_device()
    clock = time.thread_time if options.one_thread else time.perf_counter
    if options.one_thread:
        torch.set_num_threads(1)
    rows = []
    for dtype in options.dtypes:
        for shape in (shape for name in options.rows for shape in SHAPES[name]):
            flops = 2e-9 * math.prod(shape)
            calls = max(1, round((0.1 if options.best else 0.4) / flops))
            for way in WAYS:
                both = [(operands(torch, device, shape, way, getattr(torch, dtype)), sides.synchronizer(torch, device)) for device in ("fake", "cpu")]
                function = torch.mm if len(shape) == 3 else torch.bmm
                times = [lambda x=x, wait=wait: min([sides.time_row(lambda: function(x[0], x[1], out=x[2]), wait, calls, clock) for _ in range(4)][1:])
                         for x, wait in both]  # fmt: skip
                ours, peer = sides.alternate(*times, options.rounds or (3 if options.quick else 7), choose=min if options.best else statistics.median)
                rows.append({"what": f"{way} {'x'.join(map(str, shape))}", "dtype": dtype, "ours": flops / ours, "peer": flops / peer})
    print(json.dumps(rows))


# One product, for which the device logs its instruction set, and the processor that CPU PyTorch's library of products
# detects.
_FORM = """
import torch, torch_backend
torch_backend.use("fake")
x = torch.ones(8, 8, dtype=torch.bfloat16)
(x.to("fake") @ x.to("fake")).cpu()
print("CPU torch:", torch.backends.cpu.get_cpu_capability(), "with AMX" if torch.cpu.get_capabilities().get("amx_bf16") else "without AMX")
"""


def form() -> str:
    """The instruction sets that both sides use, as they report them."""
    done = sides.run_python("-c", _FORM, stderr=subprocess.STDOUT, HAL_LOG="info")
    ours = re.search(r"bfloat16 products of the host.*", done)
    return f"{ours[0] if ours else 'fake does not report its instruction set'}; {done.splitlines()[-1]}"


def main() -> int:
    """Prints the rows of both modes; returns the exit code."""
    parser = sides.parser(__doc__)
    parser.add_argument("--one-thread", action="store_true", help="measure the processor time of one thread each, inline")
    parser.add_argument("--rows", nargs="+", choices=SHAPES, default=["layers"], help="groups of shapes (layers)")
    parser.add_argument("--dtypes", nargs="+", choices=TARGETS, default=["bfloat16", "float32"], help="bfloat16 float32")
    parser.add_argument("--avx2", action="store_true", help="restrict both sides to AVX2")
    parser.add_argument("--best", action="store_true", help="take the best round of each side, not the median")
    parser.add_argument("--rounds", type=int, help="rounds of each side (7; 3 with --quick)")
    options = parser.parse_args()
    if options.child:
        child(options)
        return 0
    print(form())
    table = sides.Table(28, 10, 10, 10, 8, 8)
    settings = {"HAL_FAKE_THREADS": "1"} if options.one_thread else {}
    if options.avx2:
        settings |= sides.AVX2
    for mode, title in sides.MODES[: 1 if options.one_thread else 2]:
        table.head(title, "dtype", "fake", "cpu", "of it", "target")
        for row in sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_ASYNC=mode, **settings):
            ratio, target = row["ours"] / row["peer"], TARGETS[row["dtype"]]
            table.row(row["what"], row["dtype"], f"{row['ours']:.0f}", f"{row['peer']:.0f}", f"{ratio:.2f}", f"{target:.2f}", met=ratio >= target)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
