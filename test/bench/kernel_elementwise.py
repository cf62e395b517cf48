"""Element-wise operators and random numbers on the device beside CPU torch, in one run: 16, 1k, 1M and 16M float32 and
transposed operands.

    python test/bench/kernel_elementwise.py [--threads N] [--only NAME ...] [--sizes N ...]

Both sides write into a result that exists (out=) and use the same number of threads. The two take turns; the time of each
is the best of its rounds. HAL_FAKE_ASYNC=0 or 1 selects the mode of the fake device. `--only layout` measures operands
whose dimensions lie in different orders.
"""
import argparse
import os
import time

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--threads", type=int, default=1, help="threads of both sides (default 1)")
parser.add_argument("--only", nargs="*", help="operators to measure")
parser.add_argument("--sizes", nargs="*", type=int, default=[16, 1024, 1 << 20, 1 << 24], help="numbers of elements")
options = parser.parse_args()
os.environ.setdefault("HAL_FAKE_THREADS", str(options.threads))

import torch  # noqa: E402  the settings above are read at import
import torch_backend  # noqa: E402

torch_backend.use("fake")
torch.set_num_threads(options.threads)

UNARY = ["exp", "expm1", "log", "log1p", "log2", "tanh", "sigmoid", "erf", "sin", "cos", "sqrt", "neg"]
BINARY = ["add", "mul", "div", "pow"]
RANDOM = ["uniform_", "normal_", "exponential_", "bernoulli_"]


def best(call, synchronize, seconds=0.15):
    """The best time of one call in seconds; each round makes enough calls to last 20 us."""
    call(), synchronize()
    start = time.perf_counter()
    call(), synchronize()
    calls = max(1, int(20e-6 / max(1e-9, time.perf_counter() - start)) * 4)
    fastest, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        fastest = min(fastest, (time.perf_counter() - start) / calls)
    return fastest


def compare(name, build):
    """Prints the times of build(device)() on both sides."""
    ours, theirs = build("fake"), build("cpu")
    rounds = [(best(ours, torch.fake.synchronize), best(theirs, lambda: None)) for _ in range(2)]
    mine, cpu = min(r[0] for r in rounds), min(r[1] for r in rounds)
    print(f"{name:34s} {mine * 1e6:11.2f} us  CPU {cpu * 1e6:11.2f} us  ratio {mine / cpu:5.2f}", flush=True)


def numbers(device, *shape):
    """Positive numbers that suit all operators; the same on both sides."""
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(*shape, generator=generator) * 2 + 0.1).to(device)


def pointwise(name, n):
    def build(device):
        operation, out = getattr(torch, name), torch.empty(n, device=device)
        operands = [numbers(device, n) for _ in range(2 if name in BINARY else 1)]
        return lambda: operation(*operands, out=out)
    return build


def random_numbers(name, n):
    def build(device):
        out = torch.empty(n, device=device)
        return getattr(out, name)
    return build


def layouts(rows, columns):
    """Operators whose operands lie in different orders."""
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
    for name in UNARY + BINARY + RANDOM:
        if options.only and name not in options.only:
            continue
        for n in options.sizes:
            compare(f"{name} {n}", (random_numbers if name in RANDOM else pointwise)(name, n))
    for rows, columns in ((64, 64), (512, 512), (1000, 1001), (4096, 4096), (100000, 16)):
        for name, build in layouts(rows, columns).items():
            if options.only and "layout" not in options.only:
                continue
            compare(f"{name} {rows} x {columns}", build)


if __name__ == "__main__":
    main()
