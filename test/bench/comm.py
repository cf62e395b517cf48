"""Collectives of a plugin's device between processes of one host, compared with Gloo on CPU tensors in the same
processes.

Usage: python comm.py [--check] [--quick] [--plugin NAME] [--json FILE] [--rows NAME,...] [--sizes BYTES,...]. Rows:
all_reduce of float32 and bfloat16, all_gather, reduce_scatter, all_to_all and broadcast of float32, 1 KiB to 64 MiB on
each rank (of all_gather the result, of reduce_scatter and all_to_all the input), with 2 and 4 ranks, in both modes of
the fake device; all_reduce by the Gloo transport (TORCH_BACKEND_COLLECTIVES=gloo) of 64 MiB; the host time of an
asynchronous all_reduce; a DDP step of a 784-512-512-10 network, compared with the same step on the CPU with Gloo. Rows
"hierarchical": all_reduce, all_gather and broadcast of 4 ranks on two hosts, which are pid namespaces of this one
(TORCH_BACKEND_COLLECTIVES=hierarchical); they need root.

A block of calls is timed from after a barrier until its last result is there, as nccl-tests does: up to 64 KiB 100
calls in a row, up to 1 MiB 4, else 1. A call's time is its part of the block's, of the slowest rank; a row has the
median of its blocks. Ranks leave the barrier 17 to 4,000 us apart (more ranks than processors), which short blocks of
small calls would measure. The host time is that of 8 calls in a row, none of which is waited for; the row "enqueue
thread" is the processor time of the thread that calls, without that of the threads which share its processor. The rows
"torch enqueue" are the same calls in a group of torch's FakeProcessGroup, which returns at once: torch's own part. Both
sides alternate.
Targets are ratios to Gloo (more is better), except for the limits in microseconds of 1 KiB and of the host time. Each
result is checked. With --check the exit code is 1 when a target is missed.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 26)
RATIOS = {
    "all_reduce": {1 << 10: 5.0, 1 << 16: 5.0, 1 << 20: 4.0, 1 << 26: 3.0},
    "hierarchical all_reduce": 1.0, "hierarchical all_gather": 1.0, "hierarchical broadcast": 1.0,
    "all_gather": 4.0, "reduce_scatter": 4.0, "all_to_all": 2.0, "broadcast": 1.0, "staged all_reduce": 1 / 1.3, "ddp step": 1 / 0.7,
}  # fmt: skip
LIMITS = {("all_reduce", 1 << 10, 2): 60.0, ("all_reduce", 1 << 10, 4): 150.0}  # microseconds, float32
ENQUEUE = 12.0
ENQUEUED = 8  # works in flight, as the buckets of a DDP step
HIERARCHICAL = ("all_reduce", "all_gather", "broadcast")
HOSTS = ((0, 1), (2, 3))  # ranks of each pid namespace


class Sides:
    """Returns the tensors of one operator on the device and on the CPU, and a call of it on each."""

    def __init__(self, torch, name, dtype, size, rank, ranks, gloo):
        self.name, self.rank, self.ranks = name, rank, ranks
        count = size // torch.empty((), dtype=dtype).element_size() // ranks * ranks
        inputs = {"all_gather": count // ranks}.get(name, count)
        outputs = {"reduce_scatter": count // ranks}.get(name, count)
        device = torch.accelerator.current_accelerator()
        self.tensors = {
            place: (torch.full((inputs,), rank + 1.0, dtype=dtype, device=place), torch.zeros(outputs, dtype=dtype, device=place))
            for place in (str(device), "cpu")
        }
        self.groups = {str(device): None, "cpu": gloo}
        self.places = list(self.tensors)

    def call(self, place):
        from torch_backend.distributed import measure

        measure.call(self.name, *self.tensors[place], group=self.groups[place])

    def check(self, place):
        """Raises AssertionError when a result is wrong. The input is fresh before a checked call."""
        x, out = self.tensors[place]
        x.fill_(self.rank + 1.0)
        self.call(place)
        total = self.ranks * (self.ranks + 1) / 2
        if self.name in ("all_reduce", "reduce_scatter"):
            found = x if self.name == "all_reduce" else out
            assert (found == total).all().item(), (self.name, place, found[:4])
        elif self.name == "broadcast":
            assert (x == 1).all().item(), (self.name, place)
        else:
            parts = out.view(self.ranks, -1)
            assert all((parts[one] == one + 1.0).all().item() for one in range(self.ranks)), (self.name, place)


def timed(torch, one, place, synchronize, blocks, calls):
    """Returns the seconds of a call of each block of `calls` calls, of the slowest rank."""
    x = one.tensors[place][0]
    times = []
    for _ in range(blocks):
        x.fill_(1.0 / one.ranks)
        synchronize()
        torch.distributed.barrier(group=one.groups["cpu"])
        begin = time.perf_counter()
        for _ in range(calls):
            one.call(place)
        if place != "cpu":
            synchronize()
        times.append((time.perf_counter() - begin) / calls)
    slowest = torch.tensor(times)
    torch.distributed.all_reduce(slowest, op=torch.distributed.ReduceOp.MAX, group=one.groups["cpu"])
    return slowest.tolist()


def pair(torch, name, dtype, size, rank, ranks, gloo, quick):
    """Returns (ours, Gloo's) in microseconds."""
    one = Sides(torch, name, dtype, size, rank, ranks, gloo)
    synchronize = torch.accelerator.synchronize
    found = {place: [] for place in one.places}
    for place in one.places:
        one.check(place)
        timed(torch, one, place, synchronize, 2, 1)
    calls = 100 if size <= 1 << 16 else 4 if size <= 1 << 20 else 1
    rounds, blocks = (2, 2) if size > 1 << 22 or quick else (3, 2) if size <= 1 << 16 else (4, 8)
    for _ in range(rounds):
        for place in one.places:
            found[place] += timed(torch, one, place, synchronize, blocks, calls)
    return [statistics.median(found[place]) * 1e6 for place in one.places]


def group_without_communication(torch):
    """Returns a group of torch's FakeProcessGroup, in which a call costs what torch itself does."""
    from torch._C._distributed_c10d import FakeProcessGroup

    def create(options, _):
        return FakeProcessGroup._create_internal(options.group_rank, options.group_size, FakeProcessGroup.Options())

    dist = torch.distributed
    dist.Backend.register_backend("floor", create, extended_api=True, devices=["cpu", torch.accelerator.current_accelerator().type])
    return dist.new_group(backend="floor")


def enqueue(torch, gloo, group=None):
    """Returns the microseconds of host time, and of the calling thread's processor time, of an asynchronous all_reduce of
    64 KiB in a row of ENQUEUED, without waits.
    """
    tensors = [torch.ones(1 << 14, device=torch.accelerator.current_accelerator()) for _ in range(ENQUEUED)]
    times = [[], []]
    for _ in range(30):
        torch.accelerator.synchronize()
        torch.distributed.barrier(group=gloo)
        begins = time.perf_counter(), time.thread_time()
        works = [torch.distributed.all_reduce(x, group=group, async_op=True) for x in tensors]
        for one, begin, end in zip(times, begins, (time.perf_counter(), time.thread_time())):
            one.append((end - begin) / ENQUEUED)
        for work in works:
            work.wait()
    return [statistics.median(one) * 1e6 for one in times]


def ddp_step(torch, place, rank, group, steps):
    """Returns the seconds of a step of each row of steps, and the last loss."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(place), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    x, y = torch.randn(64, 784, generator=generator).to(place), torch.randint(10, (64,), generator=generator).to(place)
    synchronize = sides.synchronizer(torch, place)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step()
    return step, synchronize, steps


def ddp(torch, rank, gloo, staged, quick):
    """Returns (ours, that over the Gloo transport) in microseconds; both on the device."""
    device = str(torch.accelerator.current_accelerator())
    both = [ddp_step(torch, device, rank, group, 4 if quick else 10) for group in (None, staged)]
    found, losses = [[], []], []
    for _ in range(2 if quick else 5):
        for times, (step, synchronize, steps) in zip(found, both):
            torch.distributed.barrier(group=gloo)
            times.append(sides.time_row(step, synchronize, steps))
    losses = [step().item() for step, _, _ in both]
    assert abs(losses[0] - losses[1]) <= 1e-5 * abs(losses[1]), losses
    slowest = torch.tensor([statistics.median(times) for times in found])
    torch.distributed.all_reduce(slowest, op=torch.distributed.ReduceOp.MAX, group=gloo)
    return [one * 1e6 for one in slowest.tolist()]


def rank_main(arguments):
    """One rank: measures every row of this mode; rank 0 prints them as JSON."""
    torch = sides.torch_with_device(arguments.plugin)
    dist, rank, ranks = torch.distributed, arguments.rank, arguments.ranks
    torch.set_num_threads(1)
    dist.init_process_group(
        "torch_backend", init_method=f"file://{arguments.rendezvous}", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=120)
    )
    gloo = dist.new_group(backend="gloo")
    rows = []

    def row(name, dtype, size, values):
        rows.append({"name": name, "dtype": dtype, "bytes": size, "ours_us": values[0], "gloo_us": values[1]})

    sizes = arguments.sizes or (SIZES[:2] if arguments.quick else SIZES)
    wanted = arguments.rows.split(",") if arguments.rows else None

    def is_wanted(name):
        return wanted is None or name in wanted

    if arguments.hosts:
        for name in filter(lambda one: is_wanted(f"hierarchical {one}"), HIERARCHICAL):
            for size in sizes:
                row(f"hierarchical {name}", "float32", size, pair(torch, name, torch.float32, size, rank, ranks, gloo, arguments.quick))
        return finish(dist, rank, rows)
    for name in filter(is_wanted, ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")):
        for dtype in (torch.float32, torch.bfloat16) if name == "all_reduce" else (torch.float32,):
            for size in sizes:
                row(name, str(dtype)[6:], size, pair(torch, name, dtype, size, rank, ranks, gloo, arguments.quick))
    if is_wanted("enqueue"):
        floor = enqueue(torch, gloo, group_without_communication(torch))
        for name, value in zip(("enqueue", "enqueue thread", "torch enqueue", "torch enqueue thread"), [*enqueue(torch, gloo), *floor]):
            rows.append({"name": name, "dtype": "float32", "bytes": 1 << 16, "ours_us": value, "gloo_us": None})
    os.environ["TORCH_BACKEND_COLLECTIVES"] = "gloo"
    staged = dist.new_group()
    if is_wanted("ddp step"):
        row("ddp step", "float32", 0, ddp(torch, rank, gloo, staged, arguments.quick))
    if is_wanted("staged all_reduce"):
        row("staged all_reduce", "float32", sizes[-1], staged_all_reduce(torch, sizes[-1], gloo, staged))
    finish(dist, rank, rows)


def finish(dist, rank, rows):
    if rank == 0:
        print(json.dumps(rows))
    dist.destroy_process_group()


def staged_all_reduce(torch, size, gloo, staged):
    """Returns (ours over the Gloo transport, Gloo's on CPU tensors) in microseconds."""
    dist = torch.distributed
    x, host = torch.ones(size // 4, device=torch.accelerator.current_accelerator()), torch.ones(size // 4)
    times = [[], []]
    for _ in range(4):
        for place, (tensor, group) in enumerate(((x, staged), (host, gloo))):
            torch.accelerator.synchronize()
            dist.barrier(group=gloo)
            begin = time.perf_counter()
            dist.all_reduce(tensor, group=group)
            torch.accelerator.synchronize()
            times[place].append(time.perf_counter() - begin)
            tensor.fill_(1.0)
    return [statistics.median(one[1:]) * 1e6 for one in times]


def host_main(arguments):
    """Starts the ranks of one host, as child processes in its pid namespace. Returns their exit code."""
    command = [sys.executable, "-P", __file__, *sys.argv[1:]]
    started = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in HOSTS[arguments.host]]
    return max(abs(one.wait(timeout=1200)) for one in started)


def can_have_hosts():
    return os.geteuid() == 0 and subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False).returncode == 0


def measure(arguments, ranks, mode, hosts=False):
    """Returns the rows of `ranks` processes in one mode of the fake device."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**os.environ, "HAL_FAKE_ASYNC": mode, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", __file__, "--plugin", arguments.plugin, "--ranks", str(ranks), "--rendezvous", f"{folder}/meet"]
        command += ["--quick"] if arguments.quick else []
        command += ["--rows", arguments.rows] if arguments.rows else []
        command += ["--sizes", ",".join(map(str, arguments.sizes))] if arguments.sizes else []
        each = [["--rank", str(rank)] for rank in range(ranks)]
        if hosts:
            settings["TORCH_BACKEND_COLLECTIVES"] = "hierarchical"
            command = ["unshare", "--pid", "--fork", "--mount-proc", *command, "--hosts"]
            each = [["--host", str(host)] for host in range(len(HOSTS))]
        started = [subprocess.Popen([*command, *one], env=settings, stdout=subprocess.PIPE, text=True) for one in each]
        written = [one.communicate(timeout=1200)[0] for one in started]
        assert not any(one.returncode for one in started), [one.returncode for one in started]
    return [{**row, "ranks": ranks, "asynchronous": mode == "1"} for row in json.loads(written[0].splitlines()[-1])]


def target_of(row):
    """Returns what misses its target, as text; empty when all are met."""
    if row["name"].startswith("enqueue"):
        return "" if row["ours_us"] <= ENQUEUE else f"more than {ENQUEUE:.0f} us"
    if row["name"].startswith("torch enqueue"):
        return ""
    ratio = RATIOS[row["name"]]
    ratio = ratio.get(row["bytes"], 0.0) if isinstance(ratio, dict) else ratio
    missed = [] if row["gloo_us"] >= ratio * row["ours_us"] else [f"less than {ratio:.2f}x"]
    limit = LIMITS.get((row["name"], row["bytes"], row["ranks"])) if row["dtype"] == "float32" else None
    return ", ".join(missed + ([f"more than {limit:.0f} us"] if limit and row["ours_us"] > limit else []))


def is_hierarchical(rows):
    return all(name.startswith("hierarchical ") for name in rows.split(","))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plugin", default="fake")
    parser.add_argument("--json")
    parser.add_argument("--rows")
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--rendezvous")
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--host", type=int, default=-1)
    arguments = parser.parse_args()
    if arguments.rank >= 0:
        return rank_main(arguments)
    if arguments.host >= 0:
        return host_main(arguments)
    before, missed, rows = os.getloadavg()[0], 0, []
    for ranks in (2,) if arguments.quick else (2, 4):
        for mode in ("0", "1") if arguments.plugin == "fake" else ("1",):
            rows += measure(arguments, ranks, mode) if arguments.rows is None or not is_hierarchical(arguments.rows) else []
    if not arguments.quick and (arguments.rows is None or "hierarchical" in arguments.rows):
        if can_have_hosts():
            rows += measure(arguments, 4, "1", hosts=True)
        else:
            print('no rows "hierarchical": pid namespaces need root and unshare')
    print(f"{'row':23} {'type':9} {'bytes':>9} ranks mode     ours us    Gloo us  ratio  target missed")
    for row in sorted(rows, key=lambda one: (one["name"], one["bytes"], one["ranks"])):
        text, gloo = target_of(row), row["gloo_us"]
        missed += bool(text)
        other = f"{gloo:10.1f} {gloo / row['ours_us']:6.2f}" if gloo else f"{'':10} {'':6}"
        mode = "async" if row["asynchronous"] else "inline"
        print(f"{row['name']:23} {row['dtype']:9} {row['bytes']:9} {row['ranks']:5} {mode:6} {row['ours_us']:9.1f} {other}  {text}")
    print(f"{missed} of {len(rows)} rows miss a target; load {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} processors")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))
    return int(arguments.check and missed > 0)


sys.exit(main())
