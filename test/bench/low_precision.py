"""Products of matrices of 4 and 8-bit elements on the fake device compared with CPU PyTorch in the same run, in both modes of the fake device.

Usage: python low_precision.py [--check] [--quick]. Rows: `_weight_int8pack_mm` and `_weight_int4pack_mm` as torchao's weight-only linear layers
call them, with activations of float32 and bfloat16 and groups of 32 and 128 weights; those layers themselves, if torchao is installed; `_int_mm`, `_scaled_mm` of float8 and of float4 (nvfp4, mxfp4).
The CPU has its own packed weights of 4 bits, its int8 product of float32 has no fast kernel, and it has no product of float4: there its
side is the product in float32. Targets: 1.0 times the CPU's int8 product of bfloat16 for the
weight-only products, 1.0 times the same layer on the CPU for layers; half of the operations a second of the device's own float32 product for the others (column "of float32").

Times are medians; the sides run alternately in one process. With --check the exit code is 1 if a target is missed.
"""

import importlib.util
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

OF_CPU, OF_FLOAT = 1.0, 0.5


def packed(weights, first_is_high):
    first, second = (weights[:, ::2], weights[:, 1::2]) if first_is_high else (weights[:, 1::2], weights[:, ::2])
    return first << 4 | second


def weight_cases(torch, quick):
    """Yields the weight-only products: (name, ours, its operands, the CPU's, its operands, sizes)."""
    size = 1024 if quick else 4096
    weight, pairs = torch.randint(-128, 128, (size, size)).to(torch.int8), torch.randint(0, 16, (size, size), dtype=torch.int32)
    for rows in (1, 32):
        x, scales = torch.randn(rows, size), torch.rand(size)
        for dtype, name in ((torch.float32, "float32"), (torch.bfloat16, "bfloat16")):
            operands = x.to(dtype), weight, scales.to(dtype)
            yield f"int8 weight, {name}, {rows} x {size} squared", torch._weight_int8pack_mm, operands, torch._weight_int8pack_mm, operands, (rows, size, size)
        for group in (32, 128):
            numbers, x16 = torch.rand(size // group, size, 2).bfloat16(), x.bfloat16()
            ours = torch._convert_weight_to_int4pack(packed(pairs, True).to(torch.uint8).to("fake"), 2)
            peer = torch._convert_weight_to_int4pack_for_cpu(pairs, 2)
            yield (f"int4 weight, group {group}, {rows} x {size} squared", torch._weight_int4pack_mm, (x16, ours, group, numbers),
                   torch._weight_int4pack_mm_for_cpu, (x16, peer, group, numbers), (rows, size, size))  # fmt: skip


def layer_cases(torch, quick):
    """Yields linear layers that torchao has quantized to weights of 8 bits; nothing without torchao."""
    if not importlib.util.find_spec("torchao"):
        return
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    from torch_backend import integrations

    integrations.enable("torchao")

    @torch.no_grad()
    def linear(x, weight):
        return torch.nn.functional.linear(x, weight)

    size = 1024 if quick else 4096
    for rows in (1, 32):
        for dtype, name in ((torch.float32, "float32"), (torch.bfloat16, "bfloat16")):
            layer = torch.nn.Linear(size, size, bias=False, dtype=dtype)
            quantize_(layer, Int8WeightOnlyConfig())
            operands = torch.randn(rows, size, dtype=dtype), layer.weight
            yield f"torchao's int8 layer, {name}, {rows} x {size} squared", linear, operands, linear, operands, (rows, size, size)


def cases(torch, quick):
    """Yields the same of all products and layers."""
    yield from weight_cases(torch, quick)
    yield from layer_cases(torch, quick)
    for name, function, operands, sizes in square_cases(torch, quick):
        yield name, function, operands, function, operands, sizes
    yield from float4_cases(torch, quick)


def square_cases(torch, quick):
    size = 256 if quick else 1024
    a, b = (torch.randint(-128, 128, (size, size)).to(torch.int8) for _ in range(2))
    yield f"int8, {size} cubed", torch._int_mm, (a, b), (size, size, size)
    a, b, one = torch.randn(size, size), torch.randn(size, size), torch.tensor(1.0)

    def scaled(a, b, one):
        return torch._scaled_mm(a, b, one, one, out_dtype=torch.float32)

    float8 = torch.float8_e4m3fn
    yield f"float8, {size} cubed", scaled, (a.to(float8), b.to(float8).t(), one), (size, size, size)


def float4_cases(torch, quick):
    """Yields products of float4 with scales of blocks of 16 and 32. The CPU has none; its side is the product in float32."""
    size = 256 if quick else 1024
    for name, scale, block in (("nvfp4", torch.float8_e4m3fn, 16), ("mxfp4", torch.float8_e8m0fnu, 32)):
        a, b = (torch.randint(0, 256, (size, size // 2), dtype=torch.uint8).view(torch.float4_e2m1fn_x2) for _ in range(2))
        scales = torch.ones(size * size // block).to(scale)

        def product(a, b, of_a, of_b):
            return torch._scaled_mm(a, b, of_a, of_b, out_dtype=torch.float32)

        floats = torch.randn(size, size), torch.randn(size, size)
        yield f"{name}, {size} cubed", product, (a, b.t(), scales, scales), torch.mm, floats, (size, size, size)


def child(quick):
    torch = sides.torch_with_device()
    rows, int8 = [], {}
    for name, ours, operands, peer, of_peer, (m, k, n) in cases(torch, quick):
        wait = torch.accelerator.synchronize
        calls, rounds = (3, 3) if quick else (5, 7)

        def timed(device, call, operands):
            moved = [x.to(device) if isinstance(x, torch.Tensor) else x for x in operands]
            return lambda: sides.time_row(lambda: call(*moved), wait, calls)

        both = timed("fake", ours, operands), timed("cpu", peer, of_peer)
        product = timed("fake", torch.mm, (torch.randn(m, k), torch.randn(k, n)))
        for run in (*both, product):
            run()
        seconds, of_cpu = sides.alternate(*both, rounds)
        float32 = sides.alternate(product, lambda: 0.0, rounds)[0]
        if "int8 weight, bfloat16" in name:
            int8[m] = of_cpu
        is_layer = "layer" in name
        rows.append({"what": name, "ours": seconds, "peer": of_cpu, "float32": float32, "weight": is_layer or "weight" in name,
                     "int8": of_cpu if is_layer else None, "m": m})  # fmt: skip
    print(json.dumps([{**row, "int8": row["int8"] or int8.get(row["m"])} for row in rows]))


def main():
    options = sides.parser(__doc__).parse_args()
    if options.child:
        child(options.quick)
        return 0
    table = sides.Table(58, 11, 11, 8, 9, 12, 8)
    table.head("what", "ours", "CPU torch", "ratio", "of int8", "of float32", "target")
    for mode, title in sides.MODES:
        for row in sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_ASYNC=mode):
            ratio, of_float = row["ours"] / row["peer"], row["float32"] / row["ours"]
            of_int8 = row["ours"] / row["int8"] if row["weight"] else None
            met = of_int8 <= OF_CPU if row["weight"] else of_float >= OF_FLOAT
            table.row(f"{row['what']}, {title}", f"{row['ours'] * 1e3:.2f} ms", f"{row['peer'] * 1e3:.2f} ms", f"{ratio:.2f}",
                      f"{of_int8:.2f}" if of_int8 else "", f"{of_float:.2f}",
                      f"{OF_CPU if row['weight'] else OF_FLOAT:.1f}", met=met)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
