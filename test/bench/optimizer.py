"""Fused optimizers on the fake device compared with CPU PyTorch's fused ones in the same run: one parameter of 2.4 M
elements, worker awake.

Usage: python optimizer.py [--check] [--quick]. Rows: each algorithm with its options, in three dtypes, with and without
GradScaler's numbers. Target: 1.3 times the CPU; 3 times for SGD in bfloat16, whose step takes 0.1 ms on the CPU.

Times are medians; the sides run alternately in one process. With --check the exit code is 1 if a target is missed.
"""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

ELEMENTS = 2_359_296  # a convolution of 512 channels in the last stage of a ResNet
ALGORITHMS = {
    "AdamW": ("AdamW", {}),
    "AdamW, amsgrad": ("AdamW", {"amsgrad": True}),
    "Adam, weight decay": ("Adam", {"weight_decay": 0.1}),
    "SGD": ("SGD", {}),
    "SGD, nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "Adagrad": ("Adagrad", {}),
}
DTYPES = ("float32", "float64", "bfloat16")


def stepper(torch, device, algorithm, dtype, scaled):
    """Returns a function that returns the median seconds of a step."""
    name, options = ALGORITHMS[algorithm]
    parameter = torch.nn.Parameter(torch.randn(ELEMENTS, device=device).to(getattr(torch, dtype)) * 0.1)
    parameter.grad = torch.randn_like(parameter)
    optimizer = getattr(torch.optim, name)([parameter], lr=1e-3, fused=True, **options)
    if scaled:
        optimizer.grad_scale, optimizer.found_inf = torch.ones((), device=device), torch.zeros((), device=device)

    def run(steps=10):
        samples = []
        for _ in range(steps):
            begin = time.perf_counter()
            optimizer.step()
            torch.accelerator.synchronize()
            samples.append(time.perf_counter() - begin)
        return statistics.median(samples)

    return run


def child(quick):
    torch = sides.torch_with_device()
    rows = []
    for dtype in DTYPES[:1] if quick else DTYPES:
        for algorithm in ALGORITHMS:
            for scaled in (False, True):
                both = [stepper(torch, device, algorithm, dtype, scaled) for device in ("fake", "cpu")]
                for run in both:
                    run()
                ours, peer = sides.alternate(*both, 3 if quick else 7, pause=0.0)
                rows.append({"what": f"{dtype} {algorithm}{', scaled' if scaled else ''}", "ours": ours, "peer": peer,
                             "target": 3.0 if dtype == "bfloat16" and "SGD" in algorithm else 1.3})
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
            table.row(f"{row['what']}, {title}", f"{row['ours'] * 1e3:.2f} ms", f"{row['peer'] * 1e3:.2f} ms", f"{ratio:.2f}",
                      f"{row['target']:.2f}", met=ratio <= row["target"])
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
