"""Lazy mode: the cost and the gain of deferred work, compared with eager mode and CPU PyTorch in the same run.

Usage: python lazy_step.py [--check] [--quick] [--only NAME ...] [--plugin NAME]. Rows, inline and asynchronous on the
fake device:
  add, add_, with lines     recording one operator on 16 floats, from Python: at most 600 ns, with Python lines 800, on a
                            tensor of the device type "lazy" 1,000; compared with CPU PyTorch, and add with eager mode
  chain                     20 element-wise operators on 4 M floats: at most 0.35 of CPU PyTorch's time, 0.5 on opencl (PoCL)
  norms                     add, layer_norm, gelu; scale, add, softmax; the root mean square norm, on 4 M floats: at most
                            0.7 of eager mode on fake, 1 on others
  mlp trace, mlp step       a training step of layers 256-256-256-10, batch 32: recording it takes at most the whole eager
                            step of CPU PyTorch, with its execution at most 1.1 times that
  resnet, transformer       training steps: at most the time of eager mode
Only if they are named, without a target:
  kernels                   the time of the kernels of both training steps by the device's profile, and the part in kernels
                            that differ between the modes: the maximum gain of lazy mode
  floor                     an add that creates a tensor and computes nothing (lazy_floor.cpp, which is compiled): the cost
                            of Python and PyTorch in the rows above
There is one synchronization at the end of each row of steps. Times are medians; the sides run alternately in one
process, with a pause before each. With --check the exit code is 1 if a target is missed.
"""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "shared"), str(Path(__file__).parents[1] / "python")]
import models  # noqa: E402  found by the line above
import sides  # noqa: E402

CALLS, STEPS, ELEMENTS, BATCH, SAMPLES = 2000, 10, 4_000_000, 32, 16
NAMES = ("record", "chain", "norms", "mlp", "resnet", "transformer")
ON_REQUEST = ("kernels", "floor")  # after all others: floor replaces the device's operator


def row(method, tensor):
    """Seconds per call of many calls."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        method(tensor, tensor)
    return (time.perf_counter() - begin) / CALLS


def record_rows(torch, rounds):
    """Seconds of a recorded call, of CPU PyTorch's call and, for add, of a call in eager mode."""
    from torch_backend import lazy

    ours, cpu = (torch.randn(16, device=device) for device in sides.pair())
    methods = {"add": torch.Tensor.add, "add_": torch.Tensor.add_}

    def recorded(method, tensor):
        seconds = row(method, tensor)
        lazy.mark_step(wait=True)
        return seconds

    def both(method, tensor):
        recorded(method, tensor)
        return sides.alternate(lambda: recorded(method, tensor), lambda: row(method, cpu), rounds)

    eager = {"add": sides.alternate(lambda: row(torch.Tensor.add, ours), lambda: row(torch.Tensor.add, cpu), rounds)[0]}
    for lines in (False, True):
        for name, method in methods.items():
            with lazy.record(lines=lines, limit=10 * CALLS):
                times = both(method, ours)
            yield f"{name} of 16 floats{', with lines' if lines else ''}", *times, eager.get(name), (800e-9 if lines else 600e-9)
    lazy.device.enable(lines=False)
    opaque = torch.randn(16, device="lazy")
    for name, method in methods.items():
        yield f"{name} of 16 floats, device lazy", *both(method, opaque), None, 1000e-9
    lazy.device.stop()


def floor_rows(torch, rounds):
    from torch.utils import cpp_extension

    cpp_extension.load("lazy_floor", [str(Path(__file__).with_name("lazy_floor.cpp"))], extra_cflags=["-O2"], is_python_module=False)
    ours, cpu = (torch.randn(16, device=device) for device in sides.pair())
    times = sides.alternate(lambda: row(torch.Tensor.add, ours), lambda: row(torch.Tensor.add, cpu), rounds)
    yield "add that computes nothing", *times, None, None


def chain(x, y):
    for _ in range(5):
        x = ((x * y) + y).relu() * 0.9
    return x


def norms(functional, x, w):
    y = functional.gelu(functional.layer_norm(x + x * 0.5, x.shape[-1:], w, w))
    z = functional.softmax(x * 0.125 + w, -1)
    return y, z, x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * w


def timed_both(torch, function, given, rounds):
    """Seconds of a function in lazy mode, on CPU PyTorch and in eager mode, with `given` on the device or the CPU."""
    from torch_backend import lazy

    ours = [tensor.to(sides.pair()[0]) for tensor in given]

    def put_off():
        with lazy.record():
            result = function(*ours)
            lazy.mark_step()
        return result

    def timed(call):
        begin = time.perf_counter()
        result = call()
        torch.accelerator.synchronize()
        return time.perf_counter() - begin if result is not None else 0

    timed(put_off)
    _, eager = sides.alternate(lambda: timed(put_off), lambda: timed(lambda: function(*ours)), rounds)
    lazily, peer = sides.alternate(lambda: timed(put_off), lambda: timed(lambda: function(*given)), rounds)
    return lazily, peer, eager


def chain_rows(torch, rounds, plugin):
    given = [torch.randn(ELEMENTS) for _ in range(2)]
    yield "chain of 20 on 4 M floats", *timed_both(torch, chain, given, rounds), (0.35 if plugin == "fake" else 0.5)


def norm_rows(torch, rounds, plugin):
    rows = torch.randn(ELEMENTS // 1000, 1000), torch.randn(1000)
    function = lambda x, w: norms(torch.nn.functional, x, w)  # noqa: E731
    yield "norms of 4 M floats", *timed_both(torch, function, rows, rounds), ("0.7 of eager" if plugin == "fake" else "eager")


class Side:
    """A model with its optimizer and data on one device."""

    def __init__(self, torch, device, model, batch, loss):
        torch.manual_seed(0)
        self.model, self.loss = model().to(device), loss
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batch = [part.to(device) for part in batch]
        self.synchronize = sides.synchronizer(torch, device)

    def step(self):
        self.optimizer.zero_grad()
        self.loss(self.model, self.batch).backward()
        self.optimizer.step()

    def time(self):
        for _ in range(3):
            self.step()
        self.synchronize()
        return sides.time_row(self.step, self.synchronize, STEPS)

    def lazily(self, parts=None):
        """Seconds of a deferred step; `parts` receives the seconds of recording alone."""
        from torch_backend import lazy

        recording = []

        def step():
            begin = time.perf_counter()
            self.step()
            recording.append(time.perf_counter() - begin)
            lazy.mark_step()

        with lazy.record():
            for _ in range(3):
                step()
            self.synchronize()
            recording.clear()
            seconds = sides.time_row(step, self.synchronize, STEPS)
        if parts is not None:
            parts.append(sorted(recording)[len(recording) // 2])
        return seconds


def mlp_rows(torch, rounds):
    nn = torch.nn
    x, y = torch.randn(BATCH, 256), torch.randint(10, (BATCH,))
    make = lambda: nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))  # noqa: E731
    loss = lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])  # noqa: E731
    ours, cpu = (Side(torch, device, make, (x, y), loss) for device in sides.pair())
    _, eager = sides.alternate(ours.lazily, ours.time, rounds)
    recording = []
    step, peer = sides.alternate(lambda: ours.lazily(recording), cpu.time, rounds)
    yield "mlp trace", sorted(recording)[len(recording) // 2], peer, None, 1.0
    yield "mlp step", step, peer, eager, 1.1


def model_rows(torch, name, rounds):
    batch = models.batches(name, 1, SAMPLES)[0]
    ours = Side(torch, sides.pair()[0], models.MODELS[name], batch, lambda model, given: model.loss(given))
    lazily, eager = sides.alternate(ours.lazily, ours.time, rounds)
    yield f"{name} step", lazily, None, eager, "eager"


def profiled(torch, steps):
    """For each kernel in a function that runs STEPS steps: [runs per step, seconds per step]."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        steps()
    found = {}
    for event in profiler.events():
        # without the ranges of the optimizer
        if event.device_type != torch.autograd.DeviceType.CPU and "#" not in event.name:
            one = found.setdefault(event.name, [0, 0])
            one[0] += 1 / STEPS
            one[1] += event.time_range.elapsed_us() * 1e-6 / STEPS
    return found


def beside(own, other):
    """Seconds in kernels of a step that the other step lacks, or runs less often."""
    return sum(seconds * max(0, count - other.get(name, (0, 0))[0]) / count for name, (count, seconds) in own.items())


def kernel_rows(torch, rounds):
    for name in ("resnet", "transformer"):
        yield from kernel_rows_of(torch, name, rounds)


def kernel_rows_of(torch, name, rounds):
    from torch_backend import lazy

    side = Side(torch, sides.pair()[0], models.MODELS[name], models.batches(name, 1, SAMPLES)[0], lambda model, given: model.loss(given))

    def steps(mark):
        for _ in range(STEPS):
            side.step()
            mark()
        side.synchronize()

    def lazily():
        with lazy.record():
            for _ in range(3):
                side.step()
                lazy.mark_step()
            side.synchronize()
            return profiled(torch, lambda: steps(lazy.mark_step))

    side.time()
    runs = [(lazily(), profiled(torch, lambda: steps(lambda: None))) for _ in range(rounds)]
    for what, seconds in (("kernels", lambda own, _: beside(own, {})), ("kernels not in both modes", beside)):
        lazy_side, eager_side = (statistics.median(seconds(run[i], run[1 - i]) for run in runs) for i in (0, 1))
        yield f"{name}, {what}", lazy_side, None, eager_side, None


def child(quick, names, plugin):
    """Measures every row in this process's mode and prints them as JSON."""
    torch = sides.torch_with_device(plugin)
    rounds, rows = 3 if quick else 11, []
    for name in sorted(names, key=(NAMES + ON_REQUEST).index):
        make = {"record": record_rows, "mlp": mlp_rows, "kernels": kernel_rows, "floor": floor_rows}.get(name)
        on_plugin = {"chain": chain_rows, "norms": norm_rows}.get(name)
        found = make(torch, rounds) if make else on_plugin(torch, rounds, plugin) if on_plugin else model_rows(torch, name, rounds)
        rows += [dict(zip(("what", "lazy", "peer", "eager", "target"), row)) for row in found]
    print(json.dumps(rows))


def text(seconds):
    return "-" if seconds is None else f"{seconds * 1e9:.0f} ns" if seconds < 1e-5 else f"{seconds * 1e6:.0f} us"


def judge(row):
    """The measure of a row, as text, and its target."""
    target = row["target"]
    if target is None:
        return 0, text(row["lazy"]), None
    if isinstance(target, str):  # "eager", or a part of it
        return row["lazy"] / row["eager"], f"{row['lazy'] / row['eager']:.2f} of eager", float(target.split()[0]) if " " in target else 1.0
    if target < 1e-3:
        return row["lazy"], text(row["lazy"]), target
    return row["lazy"] / row["peer"], f"{row['lazy'] / row['peer']:.2f} of CPU", target


def main():
    parser = sides.parser(__doc__, with_plugin=True)
    parser.add_argument("--only", nargs="+", choices=NAMES + ON_REQUEST, default=NAMES)
    options = parser.parse_args()
    if options.child:
        child(options.quick, options.only, options.plugin)
        return 0
    table = sides.Table(44, 10, 10, 10, 15, 8)
    table.head("what", "lazy", "eager", "CPU torch", "figure", "target")
    for settings, title, _ in sides.modes(options.plugin):
        for row in sides.run_child(__file__, *sys.argv[1:], **settings):
            value, figure, target = judge(row)
            limit = "-" if target is None else text(target) if target < 1e-3 else f"{target:.2f}"
            met = None if target is None else value <= target
            table.row(f"{row['what']}, {title}", *(text(row[side]) for side in ("lazy", "eager", "peer")), figure, limit, met=met)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
