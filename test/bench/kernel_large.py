"""Operators on 16 M float32 numbers with out= compared with CPU PyTorch in the same run, both with all cores, in both
modes of the fake device.

Usage: python kernel_large.py [--check] [--quick] [--only NAME ...]. Targets, as ratios to the CPU's time: elementwise
1.15; rows broadcast 1.15; reductions over either axis 1.5; softmax 1.2; uniform random numbers 0.25. The slowest row is
evaluated.

The sides run alternately, with a pause before each and a call that is not timed; a time is the median of the best
calls. With --check the exit code is 1 if a target is missed.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

ROWS, COLUMNS = 4096, 4096
TARGETS = {"elementwise": 1.15, "row broadcast": 1.15, "reduction": 1.5, "softmax": 1.2, "random": 0.25}
# name: (subject, statement over x and y, both ROWS x COLUMNS; r, a row; c, a column; m, a mask; out, row and column,
# results)
STATEMENTS = {
    "x + y": ("elementwise", "torch.add(x, y, out=out)"),
    "x * 2": ("elementwise", "torch.mul(x, 2.0, out=out)"),
    "x / y": ("elementwise", "torch.div(x, y, out=out)"),
    "maximum": ("elementwise", "torch.maximum(x, y, out=out)"),
    "x < y": ("elementwise", "torch.lt(x, y, out=mask)"),
    "where": ("elementwise", "torch.where(m, x, y, out=out)"),
    "addcmul": ("elementwise", "torch.addcmul(x, x, y, out=out)"),
    "clamp": ("elementwise", "torch.clamp(x, 0.5, 1.5, out=out)"),
    "copy": ("elementwise", "out.copy_(x)"),
    "fill": ("elementwise", "out.fill_(1.0)"),
    "relu": ("elementwise", "torch.clamp_min(x, 0.0, out=out)"),
    "sqrt": ("elementwise", "torch.sqrt(x, out=out)"),
    "exp": ("elementwise", "torch.exp(x, out=out)"),
    "log": ("elementwise", "torch.log(x, out=out)"),
    "tanh": ("elementwise", "torch.tanh(x, out=out)"),
    "sigmoid": ("elementwise", "torch.sigmoid(x, out=out)"),
    "erf": ("elementwise", "torch.erf(x, out=out)"),
    "sin": ("elementwise", "torch.sin(x, out=out)"),
    "x + row": ("row broadcast", "torch.add(x, r, out=out)"),
    "x * column": ("row broadcast", "torch.mul(x, c, out=out)"),
    "sum rows": ("reduction", "torch.sum(x, 1, out=column)"),
    "sum columns": ("reduction", "torch.sum(x, 0, out=row)"),
    "sum all": ("reduction", "torch.sum(x, (0, 1), out=one)"),
    "mean rows": ("reduction", "torch.mean(x, 1, out=column)"),
    "amax rows": ("reduction", "torch.amax(x, 1, out=column)"),
    "amax columns": ("reduction", "torch.amax(x, 0, out=row)"),
    "argmax rows": ("reduction", "torch.argmax(x, 1, out=indices)"),
    "var rows": ("reduction", "torch.var(x, 1, out=column)"),
    "var columns": ("reduction", "torch.var(x, 0, out=row)"),
    "norm rows": ("reduction", "torch.linalg.vector_norm(x, dim=1, out=column)"),
    "softmax rows": ("softmax", "torch.softmax(x, 1, out=out)"),
    "softmax columns": ("softmax", "torch.softmax(x, 0, out=out)"),
    "log_softmax rows": ("softmax", "torch.log_softmax(x, 1, out=out)"),
    "uniform": ("random", "out.uniform_()"),
}


def operands(torch, device):
    """The variables of the statements, on one device."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.rand(ROWS, COLUMNS, generator=generator) * 2 + 0.1 for _ in range(2))
    names = {"x": x, "y": y, "r": y[0].clone(), "c": y[:, :1].clone(), "m": x < y, "out": torch.zeros_like(x), "row": torch.zeros(COLUMNS),
             "column": torch.zeros(ROWS), "one": torch.zeros(()), "mask": x < y, "indices": torch.zeros(ROWS, dtype=torch.int64)}  # fmt: skip
    return {name: tensor.to(device) for name, tensor in names.items()}


def best_call(torch, code, scope, synchronize):
    """Seconds of the best of three calls, after one that is not timed."""
    names = {"torch": torch, **scope}
    return min([sides.time_row(lambda: eval(code, names), synchronize, 1) for _ in range(4)][1:])


def child(rounds, only):
    """Measures every row in this process's mode and prints them as JSON."""
    torch = sides.torch_with_device()
    both = [(operands(torch, device), sides.synchronizer(torch, device)) for device in ("fake", "cpu")]
    rows = []
    for what, (subject, statement) in STATEMENTS.items():
        if only and what not in only:
            continue
        code = compile(statement, what, "eval")
        ours, peer = sides.alternate(*(lambda side=side: best_call(torch, code, *side) for side in both), rounds)
        rows.append({"what": what, "subject": subject, "ours": ours, "peer": peer})
    print(json.dumps(rows))


def main() -> int:
    """Prints the rows of both modes; returns the exit code."""
    parser = sides.parser(__doc__)
    parser.add_argument("--only", nargs="*", help="rows to measure", choices=list(STATEMENTS))
    options = parser.parse_args()
    if options.child:
        child(3 if options.quick else 9, options.only)
        return 0
    table = sides.Table(18, 9, 9, 7, 8)
    for mode, title in sides.MODES:
        rows = sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_ASYNC=mode)
        table.head(title, "fake ms", "cpu ms", "ratio", "target")
        for row in rows:
            ratio, target = row["ours"] / row["peer"], TARGETS[row["subject"]]
            table.row(row["what"], f"{row['ours'] * 1e3:.2f}", f"{row['peer'] * 1e3:.2f}", f"{ratio:.2f}", f"{target:.2f}",
                      met=ratio <= target)  # fmt: skip
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
