"""Fused optimizers on the fake device compared with CPU PyTorch's fused ones in the same run: one parameter of 2.4 M
elements.

Usage: python optimizer.py [--check] [--quick] [--only ALGORITHM ...] [--one-thread] [--avx2]. Rows: each algorithm with
its options, in three dtypes, with and without GradScaler's numbers. Target: 1.3 times the CPU.

SGD in bfloat16 is compared with the CPU's foreach SGD, without GradScaler's numbers: the CPU's fused SGD of torch 2.13
computes a step of bfloat16 and float16, but writes only the last elements of the parameter.

With --one-thread each side has one thread, inline, and its processor time is measured: for a machine under load. With
--avx2 both sides are restricted to AVX2.

Times are medians; the sides run alternately in one process, each after a pause in which the other one's threads stop
spinning. With --check the exit code is 1 if a target is missed.
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


def is_unwritten(algorithm, dtype):
    """Returns whether the CPU's fused optimizer does not write the parameter."""
    return dtype == "bfloat16" and "SGD" in algorithm


def stepper(torch, device, algorithm, dtype, scaled, clock):
    """Returns a function that returns the median seconds of a step by a clock."""
    name, options = ALGORITHMS[algorithm]
    parameter = torch.nn.Parameter(torch.randn(ELEMENTS, device=device).to(getattr(torch, dtype)) * 0.1)
    parameter.grad = torch.randn_like(parameter)
    how = {"foreach": True} if device == "cpu" and is_unwritten(algorithm, dtype) else {"fused": True}
    optimizer = getattr(torch.optim, name)([parameter], lr=1e-3, **how, **options)
    if scaled:
        optimizer.grad_scale, optimizer.found_inf = torch.ones((), device=device), torch.zeros((), device=device)

    def run(steps=10):
        samples = []
        for _ in range(steps):
            begin = clock()
            optimizer.step()
            torch.accelerator.synchronize()
            samples.append(clock() - begin)
        return statistics.median(samples)

    return run


def child(options):
    torch = sides.torch_with_device()
    clock = time.thread_time if options.one_thread else time.perf_counter
    if options.one_thread:
        torch.set_num_threads(1)
    rows = []
    for dtype in DTYPES[:1] if options.quick else DTYPES:
        for algorithm in options.only:
            for scaled in (False,) if is_unwritten(algorithm, dtype) else (False, True):
                both = [stepper(torch, device, algorithm, dtype, scaled, clock) for device in ("fake", "cpu")]
                for run in both:
                    run()
                ours, peer = sides.alternate(*both, 3 if options.quick else 7)
                rows.append({"what": f"{dtype} {algorithm}{', scaled' if scaled else ''}", "ours": ours, "peer": peer, "target": 1.3})
    print(json.dumps(rows))


def main():
    parser = sides.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS), metavar="ALGORITHM", help="algorithms to measure")
    parser.add_argument("--one-thread", action="store_true", help="measure the processor time of one thread each, inline")
    parser.add_argument("--avx2", action="store_true", help="restrict both sides to AVX2")
    options = parser.parse_args()
    if options.child:
        child(options)
        return 0
    settings = {"HAL_FAKE_THREADS": "1"} if options.one_thread else {}
    if options.avx2:
        settings |= sides.AVX2
    table = sides.Table(48, 10, 12, 8, 8)
    table.head("what", "ours", "CPU torch", "ratio", "target")
    for mode, title in sides.MODES[: 1 if options.one_thread else 2]:
        for row in sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_ASYNC=mode, **settings):
            ratio = row["ours"] / row["peer"]
            table.row(f"{row['what']}, {title}", f"{row['ours'] * 1e3:.2f} ms", f"{row['peer'] * 1e3:.2f} ms", f"{ratio:.2f}",
                      f"{row['target']:.2f}", met=ratio <= row["target"])
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
