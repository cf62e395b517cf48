"""What a plugin's own operator costs a call, for each operator of the database that reaches one: with a plugin that accepts all
calls and writes nothing, and one that declines them.

    own_composed.py --plugins FOLDER [--entries relu,layer_norm] [--limit-us 3]

FOLDER has libhal_takes_all.so and libhal_declines_all.so (test/hal/plugins). The peer is the CPU's operator on the same small
operands, which also computes. A declined call includes the portable kernels or the CPU that run instead.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

CALLS, ROUNDS = 40, 5


def best_us(call):
    """Returns the time of a call: the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def to(value, device):
    import torch

    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(to(each, device) for each in value)
    return value


def measure(names):
    """Yields (name, calls of own operators in a call, us of a call, us of the CPU's)."""
    import torch
    import torch_backend
    from torch.testing._internal.common_methods_invocations import op_db

    device = torch_backend.device_name()
    for op in op_db:
        if (names and op.name not in names) or op.variant_test_name or torch.float32 not in op.dtypes:
            continue
        try:
            sample = next(iter(op.sample_inputs("cpu", torch.float32)))
            with torch.no_grad():
                own = [to(each, device) for each in (sample.input, sample.args, sample.kwargs)]
                own[2] = {name: to(each, device) for name, each in sample.kwargs.items()}
                op(own[0], *own[1], **own[2])
                torch_backend.ops.reset()
                op(own[0], *own[1], **own[2])
                calls = sum(row.plugin for row in torch_backend.ops.report())
                ours = best_us(lambda: op(own[0], *own[1], **own[2]))
                theirs = best_us(lambda: op(sample.input, *sample.args, **sample.kwargs))
        except Exception:  # noqa: BLE001, the results are not computed, so operators that read them may fail
            continue
        yield op.name, calls, ours, theirs


def child(names):
    print(json.dumps(list(measure(names))))


def run(plugin, names):
    environment = {**os.environ, "TORCH_BACKEND": str(plugin), "HAL_ALLOW_UNSAFE_PLUGINS": "1"}
    done = subprocess.run([sys.executable, "-P", __file__, "--child", "--entries", ",".join(names)], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return {row[0]: row[1:] for row in json.loads(done.stdout.splitlines()[-1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plugins", type=Path)
    parser.add_argument("--entries", default="", help="names of the database, separated by commas; all by default")
    parser.add_argument("--limit-us", type=float, default=3, help="lists the operators whose own call costs more")
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    names = [name for name in arguments.entries.split(",") if name]
    if arguments.child:
        return child(names)
    own, declined = (run(arguments.plugins.resolve() / f"libhal_{name}.so", names) for name in ("takes_all", "declines_all"))
    rows = sorted(((name, calls, us / calls, cpu, declined.get(name, (0, 0, 0))[1]) for name, (calls, us, cpu) in own.items() if calls),
                  key=lambda row: -row[2])  # fmt: skip
    print(f"{'operator':36} own calls  us each  CPU us  declined us")
    for name, calls, us, cpu, other in rows:
        if us > arguments.limit_us or names:
            print(f"{name:36} {calls:9} {us:8.2f} {cpu:7.2f} {other:12.2f}")
    middle = rows[len(rows) // 2][2] if rows else 0
    print(f"{len(rows)} operators, the middle {middle:.2f} us, {sum(row[2] > arguments.limit_us for row in rows)} above {arguments.limit_us} us")


if __name__ == "__main__":
    main()
