"""What a plugin's own operator costs a call, for each operator of the database that reaches one: with a plugin that accepts all
calls and writes nothing, one that declines them, and one that has no own operator.

    own_composed.py --plugins FOLDER [--entries relu,layer_norm] [--limit-us 3] [--declined-us 0.2]

FOLDER has libhal_takes_all.so, libhal_declines_all.so and libhal_five.so (test/hal/plugins). The peer is the CPU's operator on the
same small operands, which also computes. "declined adds" is what a declined call costs for each own operator that declined it, beyond
the same call on a device without own operators. Operators whose call in the database seeds the generators are not measured, because
the seed costs more than the operator.
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


def seeds(op):
    """Returns whether the database's call sets the seed of the generators."""
    return "wrapper_set_seed" in getattr(getattr(op.op, "__code__", None), "co_names", ())


def measure(names):
    """Yields (name, calls of own operators in a call, us of a call, us of the CPU's)."""
    import torch
    import torch_backend
    from torch.testing._internal.common_methods_invocations import op_db

    device = torch_backend.device_name()
    for op in op_db:
        if (names and op.name not in names) or op.variant_test_name or torch.float32 not in op.dtypes or seeds(op):
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


def added(name, calls, declined, plain):
    """Returns the us that each declined call adds to the same operator on a device without own operators."""
    if name not in declined or name not in plain:
        return float("nan")
    return (declined[name][1] - plain[name][1]) / calls


def summary(values, limit):
    values = sorted(values) or [0]
    return f"the middle {values[len(values) // 2]:.2f} us, {sum(value > limit for value in values)} above {limit} us"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plugins", type=Path)
    parser.add_argument("--entries", default="", help="names of the database, separated by commas; all by default")
    parser.add_argument("--limit-us", type=float, default=3, help="lists the operators whose own call costs more")
    parser.add_argument("--declined-us", type=float, default=0.2, help="lists the operators that cost more when they are declined")
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    names = [name for name in arguments.entries.split(",") if name]
    if arguments.child:
        return child(names)
    own, declined, plain = (run(arguments.plugins.resolve() / f"libhal_{name}.so", names) for name in ("takes_all", "declines_all", "five"))
    rows = sorted(((name, calls, us / calls, cpu, added(name, calls, declined, plain)) for name, (calls, us, cpu) in own.items() if calls),
                  key=lambda row: -row[2])  # fmt: skip
    print(f"{'operator':42} own calls  us each  CPU us  declined adds, us each")
    for name, calls, us, cpu, more in rows:
        if us > arguments.limit_us or more > arguments.declined_us or names:
            print(f"{name:42} {calls:9} {us:8.2f} {cpu:7.2f} {more:23.2f}")
    print(f"{len(rows)} operators; own: {summary([row[2] for row in rows], arguments.limit_us)}; "
          f"declined: {summary([row[4] for row in rows if row[4] == row[4]], arguments.declined_us)}")  # fmt: skip


if __name__ == "__main__":
    main()
