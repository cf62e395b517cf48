"""Scaled dot product attention on the fake device compared with CPU PyTorch in the same run, forward only and with
gradients, in both modes.

Usage: python attention.py [--check] [--quick]. Target: at most 1.3 times the time of the CPU's own fused kernel in each
row. float32; operands are (batch, heads, length, numbers) in the layout of a projection, with the heads of a row
adjacent.

Times are medians; the sides run alternately in one process, with a pause before each and calls that are not timed.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

TARGET = 1.3
# (batch, heads, queries, keys, numbers of a head), causal, calls in a row
SHAPES = [
    ((16, 4, 32, 32, 16), True, 20),  # a layer of the small transformer of model_step.py
    ((8, 12, 128, 128, 64), False, 3),
    ((4, 8, 512, 512, 64), False, 1),
    ((4, 8, 512, 512, 64), True, 1),
    ((1, 2, 2048, 2048, 64), True, 1),
]


class Side:
    """The operands of one shape on one device."""

    def __init__(self, torch, device, shape, causal, calls):
        batch, heads, queries, keys, size = shape
        torch.manual_seed(0)
        rows = [torch.randn(batch, n, heads, size, device=device).transpose(1, 2) for n in (queries, keys, keys, queries)]
        self.operands, self.direction = [row.requires_grad_() for row in rows[:3]], rows[3]
        self.torch, self.causal, self.calls = torch, causal, calls
        self.synchronize = sides.synchronizer(torch, device)

    def attend(self):
        return self.torch.nn.functional.scaled_dot_product_attention(*self.operands, is_causal=self.causal)

    def forward(self):
        with self.torch.no_grad():
            self.attend()

    def both(self):
        self.torch.autograd.grad(self.attend(), self.operands, self.direction)

    def timer(self, call):
        """Returns a function that measures the seconds of a call."""

        def measure():
            call()
            self.synchronize()
            return sides.time_row(call, self.synchronize, self.calls)

        return measure


def child(rounds):
    """Measures every row in this process's mode and prints the rows as JSON."""
    torch = sides.torch_with_device()
    rows = []
    for shape, causal, calls in SHAPES:
        ours, peer = (Side(torch, device, shape, causal, calls) for device in ("fake", "cpu"))
        for what in ("forward", "both"):
            times = sides.alternate(ours.timer(getattr(ours, what)), peer.timer(getattr(peer, what)), rounds)
            name = f"{what} {' x '.join(map(str, shape))}{' causal' if causal else ''}"
            rows.append({"what": name, "ours": times[0], "peer": times[1]})
    print(json.dumps(rows))


def main() -> int:
    """Prints the rows of both modes; returns the exit code."""
    options = sides.parser(__doc__).parse_args()
    if options.child:
        child(3 if options.quick else 11)
        return 0
    table = sides.Table(42, 9, 9, 7, 8)
    for mode, title in sides.MODES:
        rows = sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_ASYNC=mode)
        table.head(title, "fake ms", "cpu ms", "ratio", "target")
        for row in rows:
            ratio = row["ours"] / row["peer"]
            table.row(row["what"], f"{row['ours'] * 1e3:.3f}", f"{row['peer'] * 1e3:.3f}", f"{ratio:.2f}", TARGET, met=ratio <= TARGET)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
