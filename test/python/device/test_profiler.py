"""torch.profiler on the device: rows with times, streams and bytes, linked to the operators that submitted the work."""

import json
import threading
import time

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

MIB = 1 << 20
ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def device_rows(result):
    """Returns the rows of devices, except those of record_function."""
    return [event for event in result.events() if event.device_type == DeviceType.PrivateUse1 and not event.is_user_annotation]


def kernels(result):
    return [row for row in device_rows(result) if not row.name.startswith(("Memcpy", "Memset"))]


def trace_of(result, tmp_path):
    path = tmp_path / "trace.json"
    result.export_chrome_trace(str(path))
    return json.loads(path.read_text())


def rows_of_trace(trace, *categories):
    return [event for event in trace["traceEvents"] if event.get("cat") in categories]


@pytest.fixture(autouse=True)
def idle(module):
    """Work of the previous test is complete: a profile contains only work submitted during it."""
    for index in range(module.device_count()):
        module.synchronize(index)


def test_the_activity_is_offered():
    assert ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()


def test_a_kernel_has_a_row_with_a_plausible_time(device, module):
    x = torch.ones(1 << 22, device=device)
    module.synchronize()
    begin = time.perf_counter()
    with profile(activities=ACTIVITIES) as result:
        for _ in range(5):
            x.neg_()
    wall_us = (time.perf_counter() - begin) * 1e6
    rows = kernels(result)
    assert len(rows) == 5 and all("neg" in row.name for row in rows)
    times = [row.time_range.elapsed_us() for row in rows]
    assert all(time > 100 for time in times), f"16 MiB are read and written in {times} us"
    assert sum(times) <= wall_us
    assert all(before.time_range.end <= after.time_range.start for before, after in zip(rows, rows[1:])), "one stream"


def test_the_table_shows_device_time_under_the_operator(device):
    x = torch.ones(1 << 20, device=device)
    with profile(activities=ACTIVITIES) as result:
        (x * 2).exp()
    averages = {row.key: row for row in result.key_averages()}
    for name in ("aten::mul", "aten::exp"):
        assert averages[name].device_time_total > 0
    own = [row for row in kernels(result) if "exp" in row.name]
    assert averages["aten::exp"].self_device_time_total == pytest.approx(own[0].time_range.elapsed_us())
    table = result.key_averages().table(sort_by=f"self_{device}_time_total")
    assert f"Self {device.upper()}" in table and "aten::exp" in table
    times = [getattr(row, f"self_{device}_time_total") for row in result.key_averages()]
    assert times == [row.self_device_time_total for row in result.key_averages()]
    with pytest.raises(AttributeError):
        result.key_averages().table(sort_by="self_cpux_time_total")


def test_rows_are_linked_to_the_operator_that_submitted_them(device):
    x = torch.ones(1000, device=device)
    with profile(activities=ACTIVITIES) as result:
        x.sin()
        x.cos()
        x.sin()
    names = {event.id: event.name for event in result.events() if event.device_type == DeviceType.CPU}
    assert [names[row.linked_correlation_id] for row in kernels(result)] == ["aten::sin", "aten::cos", "aten::sin"]


def test_sums_of_device_time_are_bounded_by_the_profile(device, module):
    x = torch.randn(256, 256, device=device)
    module.synchronize()
    with profile(activities=ACTIVITIES) as result:
        begin = time.perf_counter_ns()
        for _ in range(20):
            x = torch.tanh(x @ x)
        module.synchronize()
        wall_us = (time.perf_counter_ns() - begin) / 1e3
    assert 0 < sum(row.time_range.elapsed_us() for row in device_rows(result)) <= wall_us


def test_rows_lie_within_the_profile_on_the_host_s_clock(device, module, tmp_path):
    """A kernel ends after its operator began: host and device times use one clock."""
    x = torch.ones(1 << 20, device=device)
    with profile(activities=ACTIVITIES) as result:
        for _ in range(10):
            x.sqrt()
            module.synchronize()
    began = {event.id: event.time_range.start for event in result.events() if event.device_type == DeviceType.CPU}
    for row in kernels(result):
        assert row.time_range.start >= began[row.linked_correlation_id] - 20


# ---- copies ----


def test_copies_have_bytes_and_direction(device, tmp_path):
    host = torch.arange(5000, dtype=torch.float32)
    with profile(activities=ACTIVITIES) as result:
        x = host.to(device)
        y = x.clone()
        back = y.cpu()
        peer = x.to(f"{device}:1")
        x.zero_()
    assert torch.equal(back, host) and torch.equal(peer.cpu(), host)
    names = [row.name for row in device_rows(result)]
    assert {"Memcpy HtoD", "Memcpy DtoH"} <= set(names)
    rows = rows_of_trace(trace_of(result, tmp_path), "gpu_memcpy")
    for direction in ("HtoD", "DtoH"):
        assert sum(row["args"]["bytes"] for row in rows if row["name"] == f"Memcpy {direction}") == 20000
    assert all(row["dur"] >= 0 for row in rows)


def test_a_peer_copy_is_one_row(device, module, tmp_path):
    x = torch.ones(1 << 16, dtype=torch.uint8, device=device)
    with profile(activities=ACTIVITIES) as result:
        x.to(f"{device}:1")
    rows = rows_of_trace(trace_of(result, tmp_path), "gpu_memcpy")
    assert [(row["name"], row["args"]["bytes"]) for row in rows] == [("Memcpy PtoP", 1 << 16)]


# ---- the trace file ----


def test_the_trace_has_devices_and_streams(device, module, tmp_path):
    first, second = module.Stream(device=device), module.Stream(device=f"{device}:1")
    x, y = torch.ones(1000, device=device), torch.ones(1000, device=f"{device}:1")
    module.synchronize(1)
    with profile(activities=ACTIVITIES) as result:
        x.neg()
        with module.stream(first):
            x.neg()
        with module.stream(second):
            y.neg()
    trace = trace_of(result, tmp_path)
    rows = rows_of_trace(trace, "kernel")
    # of two streams, either may begin first
    streams = sorted((row["args"]["device"], row["args"]["stream"]) for row in rows)
    assert streams == [(0, 0), (0, first.stream_id), (1, second.stream_id)]
    assert all(row["pid"] == row["args"]["device"] and row["tid"] == row["args"]["stream"] for row in rows)
    assert all(row["args"]["op"].startswith("neg") and row["args"]["External id"] > 0 for row in rows)
    meta = [event for event in trace["traceEvents"] if event.get("ph") == "M"]
    processes = {event["pid"]: event["args"]["name"] for event in meta if event["name"] == "process_name"}
    assert processes[0] == f"{device}:0" and processes[1] == f"{device}:1"
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in meta if event["name"] == "thread_name"}
    assert threads[0, 0] == "stream 0"
    assert threads[0, first.stream_id] == f"stream {first.stream_id}"
    assert threads[1, second.stream_id] == f"stream {second.stream_id}"


def test_a_record_function_spans_its_work_on_the_device(device, tmp_path):
    x = torch.ones(1 << 16, device=device)
    with profile(activities=ACTIVITIES) as result:
        x.neg()
        with record_function("my step"):
            x.sin()
            with record_function("inner"):
                x.cos()
    trace = trace_of(result, tmp_path)
    spans = {row["name"]: row for row in rows_of_trace(trace, "gpu_user_annotation")}
    rows = rows_of_trace(trace, "kernel")
    assert set(spans) == {"my step", "inner"} and len(rows) == 3
    assert spans["my step"]["ts"] <= rows[1]["ts"] + 0.01
    assert spans["inner"]["ts"] <= rows[2]["ts"] + 0.01
    assert spans["inner"]["ts"] > rows[1]["ts"]


# ---- use ----


def test_off_collects_nothing(device, module):
    """Neither without a profile nor with a profile of the CPU only."""
    x = torch.ones(1000, device=device)
    with profile(activities=ACTIVITIES) as result:
        pass
    x.neg()
    module.synchronize()
    assert device_rows(result) == []
    with profile(activities=[ProfilerActivity.CPU]) as result:
        x.neg()
    assert device_rows(result) == [] and "aten::neg" in {row.key for row in result.key_averages()}
    with profile(activities=ACTIVITIES) as result:  # earlier work must not leave records
        x.neg()
    assert len(kernels(result)) == 1


def test_the_device_alone(device):
    x = torch.ones(1000, device=device)
    with profile(activities=[ProfilerActivity.PrivateUse1]) as result:
        x.neg()
    assert len(kernels(result)) == 1
    assert not [event for event in result.events() if event.device_type == DeviceType.CPU and event.name.startswith("aten::")]


def test_repeated_profiles_are_independent(device):
    x = torch.ones(1000, device=device)
    for count in (1, 5, 0, 3):
        with profile(activities=ACTIVITIES) as result:
            for _ in range(count):
                x.neg()
        assert len(kernels(result)) == count


def test_a_schedule_profiles_its_active_steps(device, tmp_path):
    x = torch.ones(1000, device=device)
    seen = []
    with profile(activities=ACTIVITIES, schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=lambda result: seen.append(len(kernels(result)))) as result:  # fmt: skip
        for _ in range(9):
            x.neg()
            result.step()
    assert seen == [2, 2]


def test_backward_has_rows(device):
    weight = torch.randn(64, 64, device=device, requires_grad=True)
    x = torch.randn(8, 64, device=device)
    with profile(activities=ACTIVITIES) as result:
        (x @ weight).relu().sum().backward()
    names = {event.id: event.name for event in result.events() if event.device_type == DeviceType.CPU}
    linked = {names.get(row.linked_correlation_id) for row in kernels(result)}
    assert "aten::threshold_backward" in linked and "aten::mm" in linked
    nodes = {row.key: row for row in result.key_averages()}
    assert nodes["autograd::engine::evaluate_function: MmBackward0"].device_time_total > 0


def test_an_exception_inside_leaves_a_usable_profiler(device):
    x = torch.ones(1000, device=device)
    with pytest.raises(KeyError):
        with profile(activities=ACTIVITIES) as result:
            x.neg()
            raise KeyError
    assert len(kernels(result)) == 1
    with pytest.raises(RuntimeError):
        with profile(activities=ACTIVITIES) as result:
            with record_function("left open"):
                x.neg()
                x @ torch.ones(7, 7, device=device)
    with profile(activities=ACTIVITIES) as result:
        x.neg()
    assert len(kernels(result)) == 1


def test_threads_are_linked_to_their_own_operators(device, module):
    """Concurrent threads keep the numbers of their operators separate."""
    x = torch.ones(1000, device=device)

    def work(operator, count):
        for _ in range(count):
            operator(x)

    with profile(activities=ACTIVITIES, experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True)) as result:
        threads = [threading.Thread(target=work, args=arguments) for arguments in ((torch.sin, 50), (torch.exp, 70))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    names = {event.id: event.name for event in result.events() if event.device_type == DeviceType.CPU}
    linked = [(row.name.split("_")[0], names[row.linked_correlation_id]) for row in kernels(result)]
    assert linked.count(("sin", "aten::sin")) == 50 and linked.count(("exp", "aten::exp")) == 70 and len(linked) == 120


def test_two_devices(device):
    x, y = torch.ones(1000, device=device), torch.ones(1000, device=f"{device}:1")
    with profile(activities=ACTIVITIES) as result:
        for _ in range(3):
            y.neg()  # only the end of the profile waits for device 1
        x.neg()
    assert sorted(row.device_index for row in kernels(result)) == [0, 1, 1, 1]


def test_work_on_side_streams_is_waited_for(device, module):
    x = torch.ones(1 << 22, device=device)
    streams = [module.Stream(device=device) for _ in range(3)]
    module.synchronize()
    with profile(activities=ACTIVITIES) as result:
        for stream in streams:
            with module.stream(stream):
                x.sin()
    assert {row.device_resource_id for row in kernels(result)} == {stream.stream_id for stream in streams}


def test_a_network_trains_under_the_profiler(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, target = torch.randn(8, 16, device=device), torch.randint(4, (8,)).to(device)
    with profile(activities=ACTIVITIES, record_shapes=True, with_stack=True, profile_memory=True) as result:
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
    assert loss.item() > 0
    averages = {row.key: row for row in result.key_averages()}
    assert averages["aten::addmm"].device_time_total > 0 and averages["aten::addmm"].count == 6
    assert averages["aten::addmm"].device_memory_usage > 0


# ---- memory ----


def memory_rows(result):
    return [event for event in result.profiler.kineto_results.events() if event.name() == "[memory]" and event.device_type() == DeviceType.PrivateUse1]


def test_memory_rows_match_the_tensor(device):
    with profile(activities=ACTIVITIES, profile_memory=True) as result:
        tensor = torch.empty(3 * MIB, dtype=torch.uint8, device=f"{device}:1")
        del tensor
    rows = memory_rows(result)
    assert [row.nbytes() for row in rows] == [3 * MIB, -3 * MIB]
    assert all(row.device_index() == 1 for row in rows)


def test_memory_is_summed_under_its_operator(device):
    x = torch.ones(1 << 20, device=device)
    with profile(activities=ACTIVITIES, profile_memory=True) as result:
        kept = x + 1
        for _ in range(3):
            x.exp()  # freed at once
    averages = {row.key: row for row in result.key_averages()}
    assert averages["aten::add"].self_device_memory_usage == kept.nbytes == 4 * MIB
    # A free is outside its operator, or inside it if both are within the resolution of the clock.
    assert averages["aten::exp"].self_device_memory_usage in range(0, 13 * MIB, 4 * MIB)
    assert "4.00 MB" in result.key_averages().table(sort_by=f"self_{device}_memory_usage")


def test_totals_of_memory_rows_are_the_allocator_s(device, module, tmp_path):
    with profile(activities=ACTIVITIES, profile_memory=True) as result:
        tensor = torch.empty(2 * MIB, dtype=torch.uint8, device=device)
        allocated, reserved = module.memory_allocated(), module.memory_reserved()
    del tensor
    rows = [row for row in trace_of(result, tmp_path)["traceEvents"] if row.get("name") == "[memory]" and row["args"]["Device Type"] != 0]
    assert rows[0]["args"]["Bytes"] == 2 * MIB
    assert rows[0]["args"]["Total Allocated"] == allocated
    assert rows[0]["args"]["Total Reserved"] == reserved


def test_out_of_memory_is_a_row(run_python):
    run_python(
        """
        import json
        import torch
        from torch.profiler import ProfilerActivity, profile

        torch.ones(1, device="fake")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], profile_memory=True) as result:
            try:
                torch.empty(1 << 30, dtype=torch.uint8, device="fake")
            except torch.OutOfMemoryError:
                pass
        result.export_chrome_trace("trace.json")
        rows = [event for event in json.load(open("trace.json"))["traceEvents"] if event["name"] == "[OutOfMemory]"]
        assert len(rows) == 1, rows
        assert rows[0]["args"]["Bytes"] == 1 << 30 and rows[0]["args"]["Device Id"] == 0, rows
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_MEMORY="64M",
    )


# ---- events in place of records ----


def test_the_legacy_profiler_times_operators_by_events(device):
    x = torch.ones(1 << 20, device=device)
    with torch.autograd.profiler.profile(use_device=device, use_kineto=False) as result:
        x.exp()
        x.neg()
    averages = {row.key: row for row in result.key_averages()}
    assert averages["aten::exp"].device_time_total > 0
    assert averages["aten::neg"].device_time_total > 0


# ---- modes and limits ----


SCRIPT = """
import json
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

x = torch.ones(1 << 20, device="fake")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
    for _ in range(20):
        x = x.neg()
    x.cpu()
rows = [event for event in result.events() if event.device_type == DeviceType.PrivateUse1]
names = {event.id: event.name for event in result.events() if event.device_type == DeviceType.CPU}
assert all(row.time_range.elapsed_us() > 0 for row in rows)
print(json.dumps([(row.name.split("_")[0], names[row.linked_correlation_id]) for row in rows]))
"""


@pytest.mark.parametrize("settings", [{"HAL_FAKE_ASYNC": "0"}, {"HAL_FAKE_ASYNC": "1"}, {"HAL_FAKE_PROTECT": "1"}, {"HAL_FAKE_DELAY": "200"}, {"HAL_LAYERS": "validate"}], ids=lambda settings: "-".join(f"{key}={value}" for key, value in settings.items()))  # fmt: skip
def test_every_mode_has_the_same_rows(run_python, settings):
    done = run_python(SCRIPT, TORCH_BACKEND="fake", **settings)
    rows = json.loads(done.stdout)
    assert rows[:20] == [["neg", "aten::neg"]] * 20
    assert rows[20:] == [["Memcpy DtoH", "aten::_copy_from"]]
    assert "validate: " not in done.stderr


def test_lost_rows_are_reported_with_their_number(run_python):
    done = run_python(SCRIPT.replace("print", "0 and print"), TORCH_BACKEND="fake", HAL_FAKE_PROFILE="8")
    assert "13 activities are missing" in done.stderr and "schedule" in done.stderr


def test_a_device_without_records_warns(run_python, build_plugin):
    plugin = build_plugin("five", "five.c")
    done = run_python(
        """
        import torch
        from torch.profiler import ProfilerActivity, profile

        x = torch.ones(10, device="five")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
            x.neg()
        assert "aten::neg" in {row.key for row in result.key_averages()}
        """,
        TORCH_BACKEND=plugin,
        HAL_ALLOW_UNSAFE_PLUGINS="1",
    )
    assert "no activities of five:0" in done.stderr and "profile_read" in done.stderr


def test_a_profile_of_the_program_s_own_is_not_disturbed(run_python):
    """hal_profile_start has begun a profile: torch.profiler then has no rows of the device, and warns."""
    done = run_python(
        """
        import ctypes
        import pathlib
        import torch
        import torch_backend
        from torch.profiler import ProfilerActivity, profile

        hal = ctypes.CDLL(str(pathlib.Path(torch_backend.__file__).parent / "lib" / "libtorch_backend_hal.so.0"))
        x = torch.ones(10, device="fake")
        assert hal.hal_profile_start() == 0
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
            x.neg()
        assert "aten::neg" in {row.key for row in result.key_averages()}
        assert hal.hal_profile_running() == 1 and hal.hal_profile_stop() == 0
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
            x.neg()
        assert len([row for row in result.events() if row.name.startswith("neg")]) == 1
        """,
        TORCH_BACKEND="fake",
    )
    assert "activities will be missing: a profile is running in this process" in done.stderr


def test_a_failure_on_the_device_is_raised_after_the_profile(run_python):
    """Collecting the rows must not clear a failure."""
    run_python(
        """
        import torch
        from torch.profiler import ProfilerActivity, profile

        side = torch.fake.Stream(device="fake:1")
        y = torch.ones(1000, device="fake:1")
        torch.fake.synchronize(1)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
            with torch.fake.stream(side):
                for _ in range(3):
                    y = y.neg()
        try:
            torch.fake.synchronize(1)
        except RuntimeError as error:
            assert "neg" in str(error), error
        else:
            raise SystemExit("the failure was lost")
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES="2",
        HAL_FAKE_FAULT="3",
    )


# ---- implementations of operators ----

OWN_EXP = """
import ctypes, json, sys, torch, torch_backend
from torch.profiler import ProfilerActivity, profile

def work(x):
    x.exp()  # the plugin's own
    torch.ones(2000, device="five").exp()  # which it declines
    x.sin()  # a portable kernel
    torch.linalg.eigvals(x[:4].view(2, 2))  # the CPU
"""


@pytest.fixture
def on_own_exp(run_python, build_plugin):
    """Runs a script on a plugin with its own operator, kernels and records; returns the last line of its output."""

    def run(script):
        done = run_python(OWN_EXP + script, TORCH_BACKEND=build_plugin("own_exp"), HAL_ALLOW_UNSAFE_PLUGINS=1, HAL_CACHE_DIR="")
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_rows_name_the_plugin_or_a_portable_kernel_and_the_cpu_has_its_own_rows(on_own_exp):
    rows = on_own_exp("""
x = torch.ones(8, device="five")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
    work(x)
result.export_chrome_trace("trace.json")
events = json.load(open("trace.json"))["traceEvents"]
kernels = [(e["args"]["op"], e["args"].get("implemented by"), e["name"]) for e in events if e.get("cat") == "kernel"]
print(json.dumps([kernels, [row.key for row in result.key_averages() if "fallback" in row.key]]))
""")
    kernels, fallbacks = rows
    by = {(op, answer) for op, answer, _ in kernels}
    assert {("exp", "plugin"), ("exp", "portable"), ("sin", "portable")} <= by
    assert {name for op, answer, name in kernels if answer == "plugin"} == {"acme_exp"}
    assert all(name != "acme_exp" for _, answer, name in kernels if answer == "portable")
    assert "fallback: aten::_linalg_eigvals" in fallbacks


def test_the_hals_records_name_the_implementation_too(on_own_exp):
    """Read by hal/profile.h, without torch.profiler."""
    records = on_own_exp("""
from torch_backend import _hal
hal = _hal.library()
class Activity(ctypes.Structure):  # hal_profile_activity_t
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("op", ctypes.c_char_p), ("start_ns", ctypes.c_int64),
                ("end_ns", ctypes.c_int64), ("correlation", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("stream", ctypes.c_int64),
                ("device", ctypes.c_int32), ("kind", ctypes.c_uint32), ("direction", ctypes.c_uint32), ("implementation", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("launch", ctypes.c_uint64), ("launch_thread", ctypes.c_int64), ("launch_start_ns", ctypes.c_int64),
                ("launch_end_ns", ctypes.c_int64)]
x, seen = torch.ones(8, device="five"), []
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Activity))
def keep(_, activity):
    a = activity.contents
    assert a.struct_size >= ctypes.sizeof(Activity) and a.start_ns <= a.end_ns  # later minors append fields
    seen.append((a.op.decode(), a.kind, a.implementation))
assert hal.hal_profile_host_op(0, b"nothing runs", 1, 2) == 0
assert hal.hal_profile_start() == 0
work(x)
assert hal.hal_profile_host_op(99, b"no device", 1, 2) != 0 and hal.hal_profile_host_op(0, b"backwards", 2, 1) != 0
assert hal.hal_profile_stop() == 0
lost = ctypes.c_uint64(99)
assert hal.hal_profile_read(keep, None, ctypes.byref(lost)) == 0 and lost.value == 0
print(json.dumps(seen))
""")
    kernel, host_op, plugin, portable, host = 0, 16, 1, 2, 3
    assert [tuple(record) for record in records if record[0] == "exp"] == [("exp", kernel, plugin), ("exp", kernel, portable)]
    assert ["sin", kernel, portable] in records and ["aten::_linalg_eigvals", host_op, host] in records
    assert {op for op, kind, answer in records if kind == host_op} >= {"aten::_linalg_eigvals"}
    assert all(answer == host for _, kind, answer in records if kind == host_op)
    assert "nothing runs" not in {op for op, *_ in records}


def test_without_a_profile_nothing_is_kept(on_own_exp):
    assert on_own_exp("""
from torch_backend import _C
x = torch.ones(8, device="five")
work(x)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
    x.cos()
print(json.dumps([row.key for row in result.key_averages() if "fallback" in row.key or "acme" in row.key]))
""") == []
