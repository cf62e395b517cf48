"""Training steps on the plugin pjrt in lazy mode, compared with CPU torch and with fake in the same run.

Usage: HAL_PJRT_PLUGIN=PATH python pjrt_step.py [--steps N] [--only NAME] [--realtime] [--memory N] [--parts]. A step is forward, backward and a fused optimizer:
  mlp          256-256-256-10, batch 32, SGD with momentum
  transformer  one layer of 64 numbers and 4 heads, batch 8 x 16, AdamW
  block        a residual block of 64 channels, batch 4 x 28 x 28, SGD with momentum
Each side runs N steps (default 200; a tenth of them for `block`) without synchronization, and as many with one after each step; the sides alternate, and the
figure is the least of five runs. Prints the number of compiled programs. With --memory, only pjrt runs N steps of `mlp`; prints the
resident memory of the process at ten points (HAL_PJRT_MEMORY selects the kind of memory). With --realtime, all threads have
real-time priority while a side runs, so that the figures are those of an idle machine; this requires the rights of root.
With --parts, only synchronized steps are run, and their parts are printed: recording, the flush (mark_step) and the wait, and
of these the runs of programs, which need the plugin test/doubles/pjrt_faulty as HAL_PJRT_PLUGIN (PJRT_FAULTY_PLUGIN: PATH).
"""

import argparse
import ctypes
import os
import time

import torch
import torch_backend
from torch_backend import lazy

SIDES = ("cpu", "fake", "pjrt")
realtime = False


def set_policy(policy):
    """Sets how all threads of this process are scheduled."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setscheduler(int(thread), policy, os.sched_param(1 if policy == os.SCHED_RR else 0))


def mlp():
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    return net, torch.randn(32, 256), torch.randint(0, 10, (32,)), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True)


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(100, 64), torch.nn.Linear(64, 100)
        self.layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.head(self.layer(self.embedding(x))).transpose(1, 2)


def transformer():
    words = torch.randint(0, 100, (2, 8, 16))
    return Transformer(), words[0], words[1], lambda p: torch.optim.AdamW(p, lr=0.001, fused=True)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(2))
        self.norms, self.head = torch.nn.ModuleList(torch.nn.BatchNorm2d(64) for _ in range(2)), torch.nn.Linear(64, 10)

    def forward(self, x):
        y = self.norms[0](self.first(x)).relu()
        return self.head((self.norms[1](self.second(y)) + x).relu().mean((2, 3)))


def block():
    return Block(), torch.randn(4, 64, 28, 28), torch.randint(0, 10, (4,)), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True)


KINDS = (mlp, transformer, block)


class Side:
    """A model on a device: `cpu`, `fake` (eager), `pjrt` (lazy)."""

    def __init__(self, kind, name, device):
        torch.manual_seed(0)
        net, x, target, make = kind()
        self.name, self.device = name, device
        self.net, self.x, self.target = net.to(device), x.to(device), target.to(device)
        self.optimizer = make(self.net.parameters())

    def synchronize(self):
        if self.name != "cpu":
            torch.accelerator.synchronize(self.device)

    def step(self):
        self.compute()
        if self.name == "pjrt":
            lazy.mark_step(self.device)

    def compute(self):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.net(self.x), self.target)
        loss.backward()
        self.optimizer.step()

    def run(self, steps, every):
        if realtime:
            set_policy(os.SCHED_RR)
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
            if every:
                self.synchronize()
        self.synchronize()
        used = (time.perf_counter() - begin) / steps * 1e6
        if realtime:
            set_policy(os.SCHED_OTHER)
            time.sleep(0.05)  # other processes have waited
        return used


def measure(kind, steps):
    sides = [Side(kind, name, device) for name, device in zip(SIDES, ("cpu", "pjrt:1", "pjrt:0"))]
    with lazy.record("pjrt:0"):
        for side in sides:
            side.run(5, False)
        for every in (False, True):
            least = dict.fromkeys(SIDES, float("inf"))
            for _ in range(5):
                for side in sides:
                    least[side.name] = min(least[side.name], side.run(steps, every))
            figures = ", ".join(f"{name} {time:.0f} us ({time / least['cpu']:.2f})" for name, time in least.items())
            print(f"{kind.__name__}, {'synchronized each step' if every else 'not synchronized'}: {figures}")
    programs = [line for line in map(str, lazy.compilations()) if "compiler 'pjrt'" in line]
    print(f"{kind.__name__}: {len(programs)} programs so far")


def run_time():
    """Returns a function that returns the nanoseconds of the platform's runs since its last call, 0 if they are unknown."""
    function = getattr(ctypes.CDLL(os.environ["HAL_PJRT_PLUGIN"]), "pjrt_faulty_run_ns", None)
    if function is None:
        return lambda: 0
    function.restype = ctypes.c_longlong
    return function


def measure_parts(kind, steps):
    """Prints the parts of the fastest synchronized step, in microseconds, and CPU torch's fastest step."""
    cpu, side, taken, rows = Side(kind, "cpu", "cpu"), Side(kind, "pjrt", "pjrt:0"), run_time(), []
    with lazy.record("pjrt:0"):
        for _ in range(5):
            cpu.run(20, False), side.run(20, True)
            for _ in range(steps):
                taken()
                times = [time.perf_counter_ns()]
                side.compute()
                times.append(time.perf_counter_ns())
                lazy.mark_step("pjrt:0")
                times.append(time.perf_counter_ns())
                side.synchronize()
                times.append(time.perf_counter_ns())
                began = time.perf_counter_ns()
                cpu.step()
                rows.append([b - a for a, b in zip(times, times[1:])] + [taken(), times[-1] - times[0], time.perf_counter_ns() - began])
    recording, flush, wait, runs, step = (part / 1000 for part in min(rows, key=lambda row: row[4])[:5])
    cpus = min(row[5] for row in rows) / 1000
    print(f"{kind.__name__}, synchronized: CPU torch {cpus:.0f} us, pjrt {step:.0f} us ({step / cpus:.2f}): recording {recording:.0f}, flush {flush:.0f}, "
          f"wait {wait:.0f}; of the last two {runs:.0f} are runs of programs, {flush + wait - runs:.0f} are not")  # fmt: skip


def resident():
    """Returns the resident memory of this process in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def watch_memory(steps):
    side, begin = Side(mlp, "pjrt", "pjrt:0"), time.perf_counter()
    with lazy.record("pjrt:0"):
        side.run(50, False)
        print(f"after 50 steps: {resident():.1f} MiB", flush=True)
        for part in range(1, 11):
            side.run(steps // 10, False)
            print(f"after {50 + part * (steps // 10)} steps: {resident():.1f} MiB, {time.perf_counter() - begin:.0f} s", flush=True)
    print(f"{len(lazy.compilations())} compilations")


def main():
    global realtime
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", choices=[kind.__name__ for kind in KINDS], help="measure only this step")
    parser.add_argument("--memory", type=int, metavar="N", help="run N steps and print the resident memory")
    parser.add_argument("--realtime", action="store_true", help="measure at real-time priority, on a machine that is in use")
    parser.add_argument("--parts", action="store_true", help="print the parts of synchronized steps")
    options = parser.parse_args()
    realtime = options.realtime
    os.environ["HAL_PJRT_DEVICES"] = "1"
    torch_backend.use("pjrt,fake")
    print(f"load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads of CPU torch")
    if options.memory:
        watch_memory(options.memory)
        return
    for kind in KINDS:
        if options.only in (None, kind.__name__):
            run = measure_parts if options.parts else measure
            run(kind, options.steps if kind is not block else max(1, options.steps // 10))


if __name__ == "__main__":
    main()
