"""The fallback of a small view of a large storage compared with that of a small storage, if the host cannot access the
device's memory.

Usage: python fallback_views.py [--check] [--quick]. Rows: `torch.linalg.lu_factor` of a 4x4 view of storages of several
sizes, with HAL_FAKE_PROTECT=1. Times are the minimum of many calls. Target: 3 times the time of a storage of 64 bytes:
host memory of the storage's size is mapped and unmapped, and few of its pages are accessed. With --check the exit code
is 1 if a target is missed.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

TARGET = 3
SIZES = (64, 64 * 1024, 8 << 20, 200_000_000)  # bytes


def seconds(torch, nbytes, calls):
    view = torch.empty(nbytes // 4, device="fake")[-16:].view(4, 4).copy_(torch.eye(4) + 0.5)
    samples = []
    for _ in range(calls):
        begin = time.perf_counter()
        torch.linalg.lu_factor(view)
        samples.append(time.perf_counter() - begin)
    return min(samples)


def child(quick):
    torch = sides.torch_with_device()
    print(json.dumps([seconds(torch, nbytes, 50 if quick else 500) for nbytes in SIZES]))


def main():
    options = sides.parser(__doc__).parse_args()
    if options.child:
        child(options.quick)
        return 0
    table = sides.Table(20, 10, 8, 8)
    table.head("storage, bytes", "time", "ratio", "target")
    times = sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_PROTECT="1")
    for nbytes, taken in zip(SIZES, times):
        ratio = taken / times[0]
        table.row(str(nbytes), f"{taken * 1e6:.1f} us", f"{ratio:.2f}", str(TARGET), met=ratio <= TARGET)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
