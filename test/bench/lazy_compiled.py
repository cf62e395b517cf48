"""Lazy mode: groups compiled to one kernel by the host's compiler, compared with the same groups interpreted block by
block (fake device).

Usage: python lazy_compiled.py [--check] [--quick] [--only NAME ...]. One process has two fake devices: on the first
HAL_LAZY_COMPILE is 0, on the second groups are compiled from their 32nd run on. Rows, inline and asynchronous, each a
repeated command list, with one synchronization:
  chain, chain64        20 element-wise operators in float32 and float64
  momentum              SGD's update with momentum: mul, add, add in place
  residual              add, relu
  half                  four operators in float16, which remain interpreted: the ratio shows the noise
  resnet, transformer   training steps (models.py)
Times are medians; the sides run alternately. If both sides interpret inline, they differed by up to 1.7 times on 4 M
elements and by 0.05 on 262,144, so use the latter. The target of compiled rows of 262,144 elements and more is 0.9 of
the interpreter's time; that of all other rows is 1.1. With --check the exit code is 1 if a target is missed.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "shared"), str(Path(__file__).parents[1] / "python"), str(Path(__file__).parent)]
import lazy_step  # noqa: E402  found by the line above
import models  # noqa: E402
import sides  # noqa: E402

ELEMENTS = (16_384, 262_144, 4_000_000)
NAMES = ("chain", "chain64", "momentum", "residual", "half", "resnet", "transformer")
SAMPLES, HOT = 16, 40  # of a model's batch; number of runs after which all groups are compiled


def momentum(p, g, m):
    m.mul_(0.9).add_(g)
    return p.add_(m, alpha=-1e-9)


def residual(x, y):
    return (x + y).relu()


def half(x, y):
    return ((x * y) + y).relu() * 0.9


FUNCTIONS = {"chain": (lazy_step.chain, 2, "float32"), "chain64": (lazy_step.chain, 2, "float64"), "momentum": (momentum, 3, "float32"),
             "residual": (residual, 2, "float32"), "half": (half, 2, "float16")}


def devices(torch):
    """Two devices, of which the second compiles groups: a device reads the setting when it records for the first time.
    """
    from torch_backend import device_name, lazy

    names = [f"{device_name()}:{number}" for number in range(2)]
    for name, runs in zip(names, ("0", "32")):
        os.environ["HAL_LAZY_COMPILE"] = runs
        with lazy.record(name):
            torch.ones(8, device=name).add_(1)
    return names


def timed_sides(torch, steps, rounds, times):
    """Seconds of both sides' steps, each deferred on its device; `times`: steps of a sample."""
    from torch_backend import lazy

    def side(name, step):
        def run():
            with torch.accelerator.device_index(int(name[-1])), lazy.record(name):
                begin = time.perf_counter()
                for _ in range(times):
                    result = step()  # referenced; otherwise it would be eliminated
                    lazy.mark_step(name)
                torch.accelerator.synchronize()
                del result
                return (time.perf_counter() - begin) / times

        return run

    ours = [side(name, step) for name, step in steps]
    for _ in range(1 + HOT // times):
        for run in ours:
            run()
    time.sleep(2)  # for the compiler, whose priority is low
    return sides.alternate(*ours, rounds)


def function_rows(torch, name, rounds):
    function, count, dtype = FUNCTIONS[name]
    for elements in ELEMENTS:
        given = [torch.randn(elements).to(getattr(torch, dtype)) for _ in range(count)]

        def step_on(device):
            ours = [tensor.to(device) for tensor in given]
            return lambda: function(*ours)

        steps = [(device, step_on(device)) for device in devices(torch)]
        compiled = name != "half" and elements > ELEMENTS[0]
        yield f"{name} of {elements}", *timed_sides(torch, steps, rounds, max(1, 1_000_000 // elements)), 0.9 if compiled else 1.1


def model_rows(torch, name, rounds):
    batch = models.batches(name, 1, SAMPLES)[0]
    steps = []
    for device in devices(torch):
        side = lazy_step.Side(torch, device, models.MODELS[name], batch, lambda model, given: model.loss(given))
        steps.append((device, side.step))
    yield f"{name} step", *timed_sides(torch, steps, rounds, 10), 1.1


def child(quick, names):
    """Measures every row in this process's mode and prints them as JSON."""
    torch = sides.torch_with_device()
    rounds, rows = 5 if quick else 15, []
    for name in names:
        found = function_rows(torch, name, rounds) if name in FUNCTIONS else model_rows(torch, name, rounds)
        rows += [dict(zip(("what", "interpreted", "compiled", "target"), row)) for row in found]
    print(json.dumps(rows))


def main():
    parser = sides.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    options = parser.parse_args()
    if options.child:
        child(options.quick, options.only)
        return 0
    table = sides.Table(40, 14, 12, 8, 8)
    table.head("what", "interpreted", "compiled", "ratio", "target")
    for settings, title, _ in sides.modes("fake"):
        for row in sides.run_child(__file__, *sys.argv[1:], HAL_FAKE_DEVICES="2", **settings):
            ratio = row["compiled"] / row["interpreted"]
            figures = [lazy_step.text(row[side]) for side in ("interpreted", "compiled")]
            table.row(f"{row['what']}, {title}", *figures, f"{ratio:.2f}", f"{row['target']:.1f}", met=ratio <= row["target"])
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
