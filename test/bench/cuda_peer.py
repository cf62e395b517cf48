"""Times of operators on an NVIDIA GPU: this device ("nvgpu") or torch.cuda, one process each, to be compared.

    TORCH_BACKEND=cuda python test/bench/cuda_peer.py nvgpu --json ours.json
    python test/bench/cuda_peer.py cuda --json theirs.json
    python test/bench/cuda_peer.py --compare ours.json theirs.json

Times are wall times of many queued calls between two synchronizations: with small operands they show the host's cost of
a call, with large ones the device's time. Prints microseconds per call, and the rate.
"""

import argparse
import json
import pathlib
import time

import torch

SECONDS = 0.4  # minimum duration of a measurement
ROUNDS = 5


def timed(module, call):
    """Returns seconds per call, the best of some rounds."""
    for _ in range(5):
        call()
    module.synchronize()
    count, best = 1, None
    while True:
        began = time.perf_counter()
        for _ in range(count):
            call()
        module.synchronize()
        took = time.perf_counter() - began
        if took > SECONDS / ROUNDS:
            break
        count *= 4
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(count):
            call()
        module.synchronize()
        took = (time.perf_counter() - began) / count
        best = took if best is None else min(best, took)
    return best


def small_step(device):
    """Returns a training step whose time is the host's."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 784, device=device), torch.randint(0, 10, (64,)).to(device)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def cases(device):
    """Yields (name, unit, work of a call in that unit, function)."""
    big = 1 << 26
    one, half = torch.ones(1, device=device), torch.bfloat16
    x, y = torch.rand(big, device=device), torch.rand(big, device=device)
    yield "x + y, 1 element", None, 0, lambda: one + one
    yield "training step of an MLP, batch 64", None, 0, small_step(device)
    yield "x + y, 64 Mi float32", "GB/s", 12 * big / 1e9, lambda: x + y
    yield "exp, 64 Mi float32", "GB/s", 8 * big / 1e9, lambda: torch.exp(x)
    yield "sum, 64 Mi float32", "GB/s", 4 * big / 1e9, lambda: x.sum()
    matrix = x.view(8192, 8192)
    yield "sum of rows, 8192 x 8192 float32", "GB/s", 4 * big / 1e9, lambda: matrix.sum(1)
    yield "softmax, 8192 x 8192 float32", "GB/s", 8 * big / 1e9, lambda: matrix.softmax(1)
    yield "layer_norm, 8192 x 8192 float32", "GB/s", 8 * big / 1e9, lambda: torch.nn.functional.layer_norm(matrix, (8192,))
    yield "transposed copy, 8192 x 8192 float32", "GB/s", 8 * big / 1e9, lambda: matrix.t().contiguous()
    index = torch.randperm(8192).to(device)
    yield "index_select, 8192 x 8192 float32", "GB/s", 8 * big / 1e9, lambda: matrix.index_select(0, index)
    a, b = (torch.rand(8192, 8192).to(half).to(device) for _ in range(2))
    yield "mm, 8192 bfloat16", "TFLOP/s", 2 * 8192**3 / 1e12, lambda: a @ b
    c, d = (torch.rand(4096, 4096).to(device) for _ in range(2))
    yield "mm, 4096 float32", "TFLOP/s", 2 * 4096**3 / 1e12, lambda: c @ d
    image, weight = torch.rand(64, 128, 56, 56).to(half).to(device), torch.rand(128, 128, 3, 3).to(half).to(device)
    flops = 2 * 64 * 128 * 128 * 9 * 56 * 56 / 1e12
    yield "conv2d, 64 x 128 x 56 x 56, 3 x 3, bfloat16", "TFLOP/s", flops, lambda: torch.nn.functional.conv2d(image, weight, padding=1)
    q, k, v = (torch.rand(8, 16, 2048, 64).to(half).to(device) for _ in range(3))
    flops = 4 * 8 * 16 * 2048 * 2048 * 64 / 1e12
    yield "attention, 8 x 16 x 2048 x 64 bfloat16", "TFLOP/s", flops, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)
    pinned = torch.empty(1 << 26, dtype=torch.uint8, pin_memory=True) if device == "cuda" else torch.empty(1 << 26, dtype=torch.uint8).pin_memory()
    there = torch.empty(1 << 26, dtype=torch.uint8, device=device)
    yield "copy to the device, 64 MiB page-locked", "GB/s", (1 << 26) / 1e9, lambda: there.copy_(pinned, non_blocking=True)
    yield "copy to the host, 64 MiB page-locked", "GB/s", (1 << 26) / 1e9, lambda: pinned.copy_(there, non_blocking=True)


def measure(device, file):
    """Measures all cases of a device."""
    if device != "cuda":
        import torch_backend  # noqa: F401
    module = torch.get_device_module(device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows = {}
    for name, unit, work, call in cases(device):
        try:
            seconds = timed(module, call)
        except Exception as error:  # noqa: BLE001: an error of one case must not end the others
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        rows[name] = {"us": seconds * 1e6, "unit": unit, "rate": work / seconds if unit else None}
        print(f"{name}: {seconds * 1e6:.1f} us" + (f", {work / seconds:.0f} {unit}" if unit else ""), flush=True)
    if file:
        pathlib.Path(file).write_text(json.dumps(rows))


def compare(ours, theirs):
    """Prints both files and the ratio of the times."""
    ours, theirs = (json.loads(pathlib.Path(file).read_text()) for file in (ours, theirs))
    print(f"{'':46}{'ours us':>10}{'cuda us':>10}{'ratio':>7}  ours, theirs")
    for name, row in ours.items():
        if name in theirs:
            peer = theirs[name]
            rates = f"  {row['rate']:.0f}, {peer['rate']:.0f} {row['unit']}" if row["unit"] else ""
            print(f"{name:46}{row['us']:10.1f}{peer['us']:10.1f}{row['us'] / peer['us']:7.2f}{rates}")


def main():
    """Measures, or compares two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", choices=("nvgpu", "cuda"))
    parser.add_argument("--json", help="where the numbers go")
    parser.add_argument("--compare", nargs=2, metavar=("OURS", "THEIRS"))
    options = parser.parse_args()
    if options.compare:
        compare(*options.compare)
    elif options.device:
        measure(options.device, options.json)
    else:
        parser.error("name a device, or two files to compare")


if __name__ == "__main__":
    main()
