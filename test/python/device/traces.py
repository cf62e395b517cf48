"""Checks of torch.profiler's traces as trace analyzers read them, and programs whose traces are checked. Tests call
these, and run them in processes with other settings."""

import json
import os
import tempfile
import threading
from collections import Counter, defaultdict
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
DEVICE_ROWS = ("kernel", "gpu_memcpy", "gpu_memset")
ROUNDING = 0.002  # microseconds: files have three digits after the decimal point
CLOCKS = 100  # microseconds: PyTorch reads the times of operators from the processor's clock, and converts them


def end(row):
    return row["ts"] + row["dur"]


class Trace:
    def __init__(self, result):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            result.export_chrome_trace(str(path))
            self.file = json.loads(path.read_text())
        rows = self.file["traceEvents"]
        self.work = [row for row in rows if row.get("cat") in DEVICE_ROWS]
        self.launches = [row for row in rows if row.get("cat") == "privateuse1_runtime"]
        self.operators = {row["args"]["External id"]: row for row in rows if row.get("cat") == "cpu_op"}
        self.starts = [row for row in rows if row.get("cat") == "ac2g" and row["ph"] == "s"]
        self.ends = [row for row in rows if row.get("cat") == "ac2g" and row["ph"] == "f"]
        self.launch_of = {row["args"]["correlation"]: row for row in self.launches}

    def operator_of(self, row):
        return self.operators[row["args"]["External id"]]

    def check(self, nested=True):
        """`nested`: the launch is inside its operator, as in eager mode."""
        assert len(self.launch_of) == len(self.launches), "numbers are unique"
        assert {row["args"]["correlation"] for row in self.work} == set(self.launch_of), "each launch has work, and all work a launch"
        name = torch._C._get_privateuse1_backend_name()
        kinds = {"kernel": "LaunchKernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset"}
        for row in self.work:
            launch = self.launch_of[row["args"]["correlation"]]
            assert launch["ts"] <= row["ts"] + ROUNDING, (launch, row)
            assert launch["args"].get("External id") == row["args"].get("External id")
            assert launch["name"] in (name + kinds[row["cat"]], name + kinds[row["cat"]] + "Async")
            assert launch["pid"] == os.getpid() and "stream" not in launch["args"]
            assert (row["pid"], row["tid"]) == (row["args"]["device"], row["args"]["stream"])
        for launch in self.launches if nested else ():
            operator = self.operators.get(launch["args"].get("External id"))
            if operator is not None:
                assert operator["ts"] <= launch["ts"] + CLOCKS and end(launch) <= end(operator) + CLOCKS, (launch, operator)
                assert operator["tid"] == launch["tid"]
        by_thread = defaultdict(list)
        for launch in self.launches:
            by_thread[launch["tid"]].append(launch)
        for rows in by_thread.values():
            rows.sort(key=lambda row: row["ts"])
            assert all(end(first) <= second["ts"] + ROUNDING for first, second in zip(rows, rows[1:])), "calls of a thread follow each other"
        self.check_arrows()
        return self

    def check_arrows(self):
        def place(row):
            return row["pid"], row["tid"], row["ts"]

        assert Counter(map(place, self.starts)) == Counter(map(place, self.launches)), "an arrow begins at each launch"
        assert Counter(map(place, self.ends)) == Counter(map(place, self.work)), "and ends at each piece of work"
        begun = {row["id"]: place(row) for row in self.starts}
        for row in self.ends:
            assert begun[row["id"]] == place(self.launch_of[row["id"]])


def profiled(function, **settings):
    with profile(activities=ACTIVITIES, **settings) as result:
        function()
    return Trace(result)


# ---- programs ----


def eager(device, module):
    """Kernels, copies in all directions, fills, two devices, a side stream, and backward in autograd's thread."""
    host = torch.arange(5000.0)
    model = torch.nn.Linear(64, 64).to(device)
    side = module.Stream()
    x, other = torch.ones(1000, device=device), torch.ones(1000, device=f"{device}:1")

    def work():
        y = host.to(device)
        y.clone().cpu()
        y.to(f"{device}:1")
        y.zero_()
        other.exp()
        with module.stream(side):
            x.sin()
        model(torch.ones(8, 64, device=device)).relu().sum().backward()
        torch.randn(100, device=device)
        x.sort()

    trace = profiled(work).check()
    assert {row["cat"] for row in trace.work} == set(DEVICE_ROWS)
    assert all("External id" in row["args"] for row in trace.work)
    assert {row["pid"] for row in trace.work} == {0, 1}
    names = Counter(trace.operator_of(row)["name"] for row in trace.work)
    assert names["aten::exp"] == names["aten::sin"] == names["aten::threshold_backward"] == 1
    assert names["aten::addmm"] >= 1 and names["aten::mm"] >= 1


def several_threads(device, module):
    x = torch.ones(1000, device=device)
    tids, counts = {}, {torch.sin: 30, torch.exp: 50, torch.cos: 40}

    def work(operator, count):
        tids[operator.__name__] = threading.get_native_id()
        for _ in range(count):
            operator(x)

    def run():
        threads = [threading.Thread(target=work, args=arguments) for arguments in counts.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    trace = profiled(run, experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True)).check()
    for operator, count in counts.items():
        name = operator.__name__
        rows = [row for row in trace.work if row["name"].startswith(name)]
        assert len(rows) == count
        assert {trace.launch_of[row["args"]["correlation"]]["tid"] for row in rows} == {tids[name]}
        assert {trace.operator_of(row)["name"] for row in rows} == {"aten::" + name}


def replay(device, module):
    x = torch.ones(1000, device=device)
    graph = torch.accelerator.Graph()
    with module.graph(graph):
        y = x.sin().exp()
        z = torch.zeros(10, device=device)
    module.synchronize()

    def work():
        for _ in range(3):
            graph.replay()
        module.synchronize()

    trace = profiled(work).check()
    names = Counter(row["name"].split("_")[0] for row in trace.work if row["cat"] == "kernel")
    assert names["sin"] == names["exp"] == 3 and len(trace.work) >= 6
    del y, z


def lazy_mode(device, module):
    from torch_backend import lazy

    x, matrix = torch.ones(1000, device=device), torch.ones(32, 32, device=device)

    def work():
        with lazy.record():
            y = matrix @ matrix
            z = x.sin().exp().add(1)
            torch.ones(7, device=device)
        module.synchronize()
        return y, z

    for _ in range(4):  # later ones find their schedule
        trace = profiled(work).check(nested=False)
        names = Counter(trace.operator_of(row)["name"] for row in trace.work)
        assert names["aten::mm"] == 1 and set(names) <= {"aten::mm", "aten::sin", "aten::exp", "aten::add", "aten::fill_"}, names
        assert names["aten::sin"] == 1, "a fused kernel is that of its first operator"


PROGRAMS = (eager, several_threads, replay, lazy_mode)
