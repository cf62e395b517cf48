"""What a plugin's own operator costs a call, for each operator of the database that reaches one: with a plugin that accepts all
calls and writes nothing, and one that declines them.

    own_composed.py --plugins FOLDER [--entries relu,layer_norm] [--limit-us 3] [--declined-us 0.2] [--owns alike]

FOLDER has libhal_takes_all.so, libhal_owns_all.so and libhal_five.so (test/hal/plugins). The peer is the CPU's operator on the
same small operands, which also computes. "declined adds" is what a declined call costs for each own operator that declined it, beyond
the same call on a device without own operators: on a device with portable kernels (fake) and on one without (five). --owns alike: the
operators have the flag HAL_OP_DECLINES_ALIKE; once: they do not. Operators whose call in the database seeds the generators are not
measured, because the seed costs more than the operator.
"""
import argparse
import json
import math
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


def run(plugin, names, **settings):
    environment = {**os.environ, "TORCH_BACKEND": str(plugin), "HAL_ALLOW_UNSAFE_PLUGINS": "1", "HAL_FAKE_ASYNC": "0", **settings}
    done = subprocess.run([sys.executable, "-P", __file__, "--child", "--entries", ",".join(names)], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return {row[0]: row[1:] for row in json.loads(done.stdout.splitlines()[-1])}


def declined(folder, base, names, owns):
    """Returns by name the us that a declined call adds to the same operator on a device without own operators."""
    plugin = folder / "libhal_owns_all.so"
    plain, ours = run(plugin, names, OWNS_BASE=str(base)), run(plugin, names, OWNS_BASE=str(base), OWNS=owns)
    return {name: ours[name][1] - plain[name][1] for name in ours if name in plain}


def summary(values, limit):
    values = sorted(values) or [0]
    return f"the middle {values[len(values) // 2]:.2f} us, {sum(value > limit for value in values)} above {limit} us"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plugins", type=Path)
    parser.add_argument("--entries", default="", help="names of the database, separated by commas; all by default")
    parser.add_argument("--limit-us", type=float, default=3, help="lists the operators whose own call costs more")
    parser.add_argument("--declined-us", type=float, default=0.2, help="lists the operators that cost more when they are declined")
    parser.add_argument("--owns", choices=("alike", "once"), default="alike", help="whether a decline is constant by the operators' flag")
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    names = [name for name in arguments.entries.split(",") if name]
    if arguments.child:
        return child(names)
    report(arguments, names)
    return None


def report(arguments, names):
    import torch_backend

    folder, fake = arguments.plugins.resolve(), Path(torch_backend.__file__).parent / "plugins/libhal_fake.so"
    own = run(folder / "libhal_takes_all.so", names)
    with_kernels, without = (declined(folder, base, names, arguments.owns) for base in (fake, folder / "libhal_five.so"))
    rows = sorted(((name, calls, us / calls, cpu, *(side[name] / calls if name in side else math.nan for side in (with_kernels, without)))
                   for name, (calls, us, cpu) in own.items() if calls), key=lambda row: -row[2])  # fmt: skip
    print(f"{'operator':42} own calls  us each  CPU us  declined adds, us each: with kernels  without")
    for name, calls, us, cpu, more, fallback in rows:
        if us > arguments.limit_us or max(more, fallback) > arguments.declined_us or names:
            print(f"{name:42} {calls:9} {us:8.2f} {cpu:7.2f} {more:36.2f} {fallback:8.2f}")
    print(f"{len(rows)} operators; own: {summary([row[2] for row in rows], arguments.limit_us)}")
    for which, column in (("with kernels", 4), ("without kernels", 5)):
        print(f"declined, {which}: {summary([row[column] for row in rows if not math.isnan(row[column])], arguments.declined_us)}")


if __name__ == "__main__":
    main()
