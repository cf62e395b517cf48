"""Products of matrices of 8-bit elements on the fake device compared with CPU PyTorch in the same run, in both modes of the fake device.

Usage: python low_precision.py [--check] [--quick]. Rows: `_weight_int8pack_mm` as torchao's int8 weight-only linear layers call it, `_int_mm`,
`_scaled_mm` of float8. Targets: 1.0 times the CPU for the weight-only layers; half of the operations a second of the device's own float32
product for the others (column "of float32").

Times are medians; the sides run alternately in one process. With --check the exit code is 1 if a target is missed.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

OF_CPU, OF_FLOAT = 1.0, 0.5


def cases(torch, quick):
    """Yields (name, function of the operands, operands, sizes m, k, n)."""
    size = 1024 if quick else 4096
    for rows in (1, 32):
        weight = torch.randint(-128, 128, (size, size)).to(torch.int8)
        yield f"int8 weight, {rows} x {size} x {size}", torch._weight_int8pack_mm, (torch.randn(rows, size), weight, torch.rand(size)), (rows, size, size)
    size = 256 if quick else 1024
    a, b = (torch.randint(-128, 128, (size, size)).to(torch.int8) for _ in range(2))
    yield f"int8, {size} cubed", torch._int_mm, (a, b), (size, size, size)
    a, b, one = torch.randn(size, size), torch.randn(size, size), torch.tensor(1.0)

    def scaled(a, b, one):
        return torch._scaled_mm(a, b, one, one, out_dtype=torch.float32)

    float8 = torch.float8_e4m3fn
    yield f"float8, {size} cubed", scaled, (a.to(float8), b.to(float8).t(), one), (size, size, size)


def child(quick):
    torch = sides.torch_with_device()
    rows = []
    for name, function, operands, (m, k, n) in cases(torch, quick):
        wait = torch.accelerator.synchronize
        calls, rounds = (3, 3) if quick else (5, 7)

        def timed(device, call, operands):
            moved = [x.to(device) for x in operands]
            return lambda: sides.time_row(lambda: call(*moved), wait, calls)

        both = timed("fake", function, operands), timed("cpu", function, operands)
        product = timed("fake", torch.mm, (torch.randn(m, k), torch.randn(k, n)))
        for run in (*both, product):
            run()
        ours, peer = sides.alternate(*both, rounds)
        float32, _ = sides.alternate(product, both[1], rounds)
        rows.append({"what": name, "ours": ours, "peer": peer, "float32": float32, "weight": m < k})
    print(json.dumps(rows))


def main():
    options = sides.parser(__doc__).parse_args()
    if options.child:
        child(options.quick)
        return 0
    table = sides.Table(48, 11, 11, 8, 12, 8)
    table.head("what", "ours", "CPU torch", "ratio", "of float32", "target")
    for mode, title in sides.MODES:
        for row in sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_ASYNC=mode):
            ratio, of_float = row["ours"] / row["peer"], row["float32"] / row["ours"]
            met = ratio <= OF_CPU if row["weight"] else of_float >= OF_FLOAT
            table.row(f"{row['what']}, {title}", f"{row['ours'] * 1e3:.2f} ms", f"{row['peer'] * 1e3:.2f} ms", f"{ratio:.2f}", f"{of_float:.2f}",
                      f"{OF_CPU if row['weight'] else OF_FLOAT:.1f}", met=met)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
