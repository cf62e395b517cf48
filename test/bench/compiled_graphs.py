"""torch.compile with graphs on a plugin's device, compared with eager mode on the device in the same run, in both modes
of the fake device.

Usage: python compiled_graphs.py [--check] [--quick] [--plugin NAME]. Rows: the forward pass without gradients and a
training step with SGD of small models (an MLP 64-64-64-64-10 of batch 16, an encoder layer of width 64 over 4 x 16
tokens), with `mode="reduce-overhead"` and `backend="cudagraphs"`. CPU PyTorch's eager time is printed as well. Target:
reduce-overhead takes at most 0.6 of eager mode's time.

Times are medians of blocks of calls with one synchronization each; the sides alternate. With --check the exit code is
1 if a target is missed.
"""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

TARGET = 0.6
WAYS = {"reduce-overhead": {"mode": "reduce-overhead"}, "cudagraphs": {"backend": "cudagraphs"}}


def models(torch):
    """Returns for each model a function that creates it, and its input."""
    linear = torch.nn.Linear
    return {
        "mlp": (lambda: torch.nn.Sequential(linear(64, 64), torch.nn.ReLU(), linear(64, 64), torch.nn.ReLU(), linear(64, 64), torch.nn.ReLU(),
                                            linear(64, 10)), torch.randn(16, 64)),
        "encoder": (lambda: torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), torch.randn(4, 16, 64)),
    }  # fmt: skip


class Side:
    """A model on a device, called in one way."""

    def __init__(self, torch, make, x, device, trains, options):
        torch.manual_seed(0)
        self.torch, self.trains, self.x = torch, trains, x.to(device)
        model = make().to(device).train(trains)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        self.run = torch.compile(model, **options) if options else model
        self.synchronize = sides.synchronizer(torch, device)

    def step(self):
        if not self.trains:
            with self.torch.no_grad():
                return self.run(self.x).sum()
        self.optimizer.zero_grad()
        loss = self.run(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def child(quick, plugin):
    torch = sides.torch_with_device(plugin)
    torch.set_num_threads(1)
    device, cpu = sides.pair()
    rows = []
    for name, (make, x) in models(torch).items():
        for trains in (False, True):
            all_sides = {"eager": Side(torch, make, x, device, trains, None), "CPU": Side(torch, make, x, cpu, trains, None)}
            all_sides |= {way: Side(torch, make, x, device, trains, options) for way, options in WAYS.items()}
            for _ in range(6):
                values = [side.step().item() for side in all_sides.values()]
            assert max(values) - min(values) <= 1e-4 * max(1.0, abs(values[0])), (name, trains, values)
            times = {way: [] for way in all_sides}
            for _ in range(5 if quick else 15):
                for way, side in all_sides.items():
                    times[way].append(sides.time_row(side.step, side.synchronize, 20))
            rows.append({"model": name, "trains": trains} | {way: statistics.median(one) for way, one in times.items()})
    print(json.dumps(rows))


def main():
    options = sides.parser(__doc__, with_plugin=True).parse_args()
    if options.child:
        child(options.quick, options.plugin)
        return 0
    table = sides.Table(52, 10, 12, 10, 8, 8)
    table.head("what", "graphs", "CPU torch", "eager", "ratio", "target")
    for settings, title, _ in sides.modes(options.plugin):
        for row in sides.run_child(__file__, *sys.argv[1:], **settings):
            for way in WAYS:
                ratio = row[way] / row["eager"]
                what = f"{row['model']}, {'training' if row['trains'] else 'forward'}, {way}, {title}"
                micros = (f"{row[key] * 1e6:.0f} us" for key in (way, "CPU", "eager"))
                table.row(what, *micros, f"{ratio:.2f}", f"{TARGET:.2f}" if way == "reduce-overhead" else "",
                          met=ratio <= TARGET if way == "reduce-overhead" else None)  # fmt: skip
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
