"""Reading a number from the fake device compared with CPU PyTorch in the same run, in both modes of the fake device.

Usage: python item.py [--check] [--quick]. Rows: `x.item()` of a tensor with no queued work, `(x + 1).item()`, and `(x *
y).sum().item()`, each in a row of calls (worker awake) and one call after a sleep (worker asleep). Target: 1.3 times
the CPU in the slowest row.

Times are medians; the sides run alternately in one process. With --check the exit code is 1 if a target is missed.
"""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

TARGET = 1.3
READS = {
    "x.item()": lambda x, y: x[0].item(),
    "(x + 1).item()": lambda x, y: (x[0] + 1).item(),
    "(x * y).sum().item()": lambda x, y: (x * y).sum().item(),
}
PAUSES = {"in a row": 0.0, "after 0.2 ms": 2e-4, "after 5 ms": 5e-3, "after 150 ms": 0.15}


def time_reads(read, pause, calls):
    """The median seconds of a read, each after a pause."""
    samples = []
    for _ in range(calls):
        if pause:
            time.sleep(pause)
        begin = time.perf_counter()
        read()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


def child(quick):
    torch = sides.torch_with_device()
    operands = {device: (torch.ones(16).to(device), torch.ones(16).to(device)) for device in ("fake", "cpu")}
    rows = []
    for name, read in READS.items():
        for title, pause in PAUSES.items():
            calls = 2000 if not pause else max(5, min(200, int(1 / pause)))
            both = [lambda device=device: time_reads(lambda: read(*operands[device]), pause, calls) for device in ("fake", "cpu")]
            for run in both:
                run()
            ours, peer = sides.alternate(*both, 3 if quick else 7, pause=0.0)
            rows.append({"what": f"{name} {title}", "ours": ours, "peer": peer})
    print(json.dumps(rows))


def main():
    options = sides.parser(__doc__).parse_args()
    if options.child:
        child(options.quick)
        return 0
    table = sides.Table(48, 10, 12, 8, 8)
    table.head("what", "ours", "CPU torch", "ratio", "target")
    for mode, title in sides.MODES:
        for row in sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_ASYNC=mode):
            ratio = row["ours"] / row["peer"]
            table.row(f"{row['what']}, {title}", f"{row['ours'] * 1e6:.2f} us", f"{row['peer'] * 1e6:.2f} us", f"{ratio:.2f}",
                      f"{TARGET:.2f}", met=ratio <= TARGET)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
