"""Element-wise operators, rows, copies and random numbers on the device compared with CPU PyTorch in the same run: 16,
1k, 1M and 16M elements in float32 and half precision, and transposed operands.

    python test/bench/kernel_elementwise.py [--threads N] [--only NAME ...] [--sizes N ...] [--dtypes NAME ...]
        [--row N] [--processor-time] [--avx2] [--rounds N]

Both sides write into an existing result (out=) if the operator supports it, and use the same number of threads. They
run alternately; the time of each is the best of its rounds. HAL_FAKE_ASYNC=0 or 1 selects the mode of the fake device.
`--only layout` measures operands with different memory layouts. With --avx2 both sides are restricted to AVX2. The last lines print the median and the worst of all
ratios.
"""
import argparse
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
from sides import AVX2  # noqa: E402  found by the line above

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--threads", type=int, default=1, help="threads of both sides (default 1)")
parser.add_argument("--only", nargs="*", help="operators to measure")
parser.add_argument("--sizes", nargs="*", type=int, default=[16, 1024, 1 << 20, 1 << 24], help="numbers of elements")
parser.add_argument("--dtypes", nargs="*", default=["float32", "float16", "bfloat16"], help="dtypes of the operands")
parser.add_argument("--row", type=int, default=1024, help="elements of a row, for reductions, softmax and layer_norm (default 1024)")
parser.add_argument("--processor-time", action="store_true", help="one thread, inline, and its processor time: for a machine under load")
parser.add_argument("--avx2", action="store_true", help="restrict both sides to AVX2")
parser.add_argument("--rounds", type=int, default=4, help="rounds of each side; more of them where other work slows some (default 4)")
options = parser.parse_args()
if options.avx2:
    os.environ.update(AVX2)
if options.processor_time:
    os.environ["HAL_FAKE_ASYNC"] = "0"
    options.threads = 1
os.environ.setdefault("HAL_FAKE_THREADS", str(options.threads))
clock = time.thread_time if options.processor_time else time.perf_counter

import torch  # noqa: E402  the settings above are read at import
import torch_backend  # noqa: E402

torch_backend.use("fake")
torch.set_num_threads(options.threads)

UNARY = """exp expm1 log log1p log2 tanh sigmoid erf sin cos tan asin acos atan sinh cosh asinh atanh sqrt rsqrt reciprocal neg abs frac floor
sign""".split()
BINARY = ["add", "mul", "div", "pow", "atan2", "fmod", "remainder", "copysign", "maximum", "gt"]
# Without out=, or with numbers.
CALLS = {
    "add number": lambda x: x + 1.5,
    "pow 3": lambda x: x.pow(3),
    "pow 1.7": lambda x: x.pow(1.7),
    "fmod number": lambda x: x.fmod(0.7),
    "clamp": lambda x: x.clamp(0.5, 1.5),
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "hardswish": torch.nn.functional.hardswish,
    "hardshrink": torch.nn.functional.hardshrink,
    "where": lambda x: torch.where(x > 1, x, 0.0),
    "fill": lambda x: x.fill_(1.5),
    "zero": lambda x: x.zero_(),
    "copy": lambda x: x.clone(),
    "to another width": lambda x: x.to(torch.float32 if x.dtype != torch.float32 else torch.bfloat16),
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: lines(x).sum(1),
    "sum of columns": lambda x: lines(x).sum(0),
    "amax of rows": lambda x: lines(x).amax(1),
    "var of rows": lambda x: lines(x).var(1),
    "softmax": lambda x: torch.softmax(lines(x), 1),
    "log_softmax": lambda x: torch.log_softmax(lines(x), 1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(lines(x), lines(x).shape[1:]),
}
RATIOS = {}
RANDOM = ["uniform_", "normal_", "exponential_", "bernoulli_"]


def best(call, synchronize, seconds=0.06):
    """The best time of one call in seconds; each round makes enough calls for 20 us, or 200 us of processor time, whose
    clock is coarser."""
    call(), synchronize()
    start = clock()
    call(), synchronize()
    calls = max(1, int((200e-6 if options.processor_time else 20e-6) / max(1e-7, clock() - start)) * 4)
    fastest, end = float("inf"), clock() + seconds
    while clock() < end:
        start = clock()
        for _ in range(calls):
            call()
        synchronize()
        fastest = min(fastest, (clock() - start) / calls)
    return fastest


def lines(x):
    rows = max(1, x.numel() // options.row)
    return x[: x.numel() // rows * rows].view(rows, -1)


def compare(name, build):
    """Prints the times of build(device)() on both sides."""
    ours, theirs = build("fake"), build("cpu")
    rounds = [(best(ours, torch.fake.synchronize), best(theirs, lambda: None)) for _ in range(options.rounds)]
    mine, cpu = min(r[0] for r in rounds), min(r[1] for r in rounds)
    RATIOS[name] = mine / cpu
    print(f"{name:34s} {mine * 1e6:11.2f} us  CPU {cpu * 1e6:11.2f} us  ratio {mine / cpu:5.2f}", flush=True)


def numbers(device, *shape):
    """Positive numbers in the domain of all operators; the same on both sides."""
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(*shape, generator=generator) * 2 + 0.1).to(device)


def pointwise(name, n, dtype):
    def build(device):
        operation, out = getattr(torch, name), torch.empty(n, device=device, dtype=torch.bool if name == "gt" else dtype)
        operands = [(numbers(device, n) * (0.4 if name in UNARY else 1)).to(dtype) for _ in range(2 if name in BINARY else 1)]
        return lambda: operation(*operands, out=out)
    return build


def random_numbers(name, n, dtype):
    def build(device):
        out = torch.empty(n, device=device, dtype=dtype)
        return getattr(out, name)
    return build


def call(name, n, dtype):
    def build(device):
        operand = numbers(device, n).to(dtype)
        return lambda: CALLS[name](operand)
    return build


def dense():
    """The measured cases of each dtype and size: its name, and its builder."""
    for kind, names in ((pointwise, UNARY + BINARY), (call, CALLS), (random_numbers, RANDOM)):
        for name in names:
            if not options.only or name in options.only:
                yield kind, name


def layouts(rows, columns):
    """Operators whose operands have different layouts."""
    def copy(device):
        a, out = numbers(device, columns, rows), torch.empty(rows, columns, device=device)
        return lambda: out.copy_(a.t())

    def copy_into(device):
        a, out = numbers(device, columns, rows), torch.empty(rows, columns, device=device)
        return lambda: out.t().copy_(a)

    def add_row(device):
        a, row = numbers(device, columns, rows), numbers(device, columns)
        out = torch.empty(rows, columns, device=device)
        return lambda: torch.add(a.t(), row, out=out)

    def add(device):
        a, b = numbers(device, columns, rows), numbers(device, rows, columns)
        out = torch.empty(rows, columns, device=device)
        return lambda: torch.add(a.t(), b, out=out)

    def to_double(device):
        a, out = numbers(device, columns, rows), torch.empty(rows, columns, device=device, dtype=torch.float64)
        return lambda: out.copy_(a.t())

    return {"copy a.t()": copy, "out.t().copy_(a)": copy_into, "a.t() + row": add_row, "a.t() + b": add,
            "copy a.t().double()": to_double}


def main():
    for kind, name in dense():
        for dtype in options.dtypes:
            for n in options.sizes:
                compare(f"{name} {dtype} {n}", kind(name, n, getattr(torch, dtype)))
    for rows, columns in ((64, 64), (512, 512), (1000, 1001), (4096, 4096), (100000, 16)):
        for name, build in layouts(rows, columns).items():
            if options.only and "layout" not in options.only:
                continue
            compare(f"{name} {rows} x {columns}", build)
    if not RATIOS:
        raise SystemExit(f"no row is named {options.only}")
    print(f"{len(RATIOS)} rows, middle {statistics.median(RATIOS.values()):.2f}")
    for name in sorted(RATIOS, key=RATIOS.get)[:-11:-1]:
        print(f"worst: {name:34s} {RATIOS[name]:5.2f}")


if __name__ == "__main__":
    main()
