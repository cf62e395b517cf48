"""Chrome traces of torch.profiler: launches, the work that they submitted, the arrows between them, and pausing."""

from collections import Counter
from pathlib import Path

import pytest
import torch
import traces
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function
from traces import ACTIVITIES, Trace, end, profiled


@pytest.mark.parametrize("program", traces.PROGRAMS, ids=lambda program: program.__name__)
def test_all_work_has_a_launch_and_an_arrow(device, module, program):
    program(device, module)


@pytest.mark.parametrize("settings", [{"HAL_FAKE_ASYNC": "0"}, {"HAL_FAKE_PROTECT": "1", "HAL_LAYERS": "validate"}], ids=["inline", "validated"])
def test_all_work_has_a_launch_in_other_modes(run_python, settings):
    done = run_python(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import torch, traces\n"
        "for program in traces.PROGRAMS: program('fake', torch.fake)",
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES="2",
        **settings,
    )
    assert "torch.profiler: " not in done.stderr  # our reports; Kineto has messages of its own


def test_launches_are_events_of_the_host_and_device_times_those_of_operators(device, module):
    x = torch.ones(1 << 16, device=device)
    module.synchronize()
    with profile(activities=ACTIVITIES) as result:
        for _ in range(5):
            (x * 2).exp()
    events = result.events()
    work = [event for event in events if event.device_type == DeviceType.PrivateUse1]
    launches = [event for event in events if event.name == f"{device}LaunchKernel"]
    assert len(work) == len(launches) == 10 and all(event.device_type == DeviceType.CPU for event in launches)
    assert {event.id for event in work} == {event.id for event in launches}
    assert not {event.id for event in launches} & {event.id for event in events if event.name.startswith("aten::")}
    averages = {row.key: row for row in result.key_averages()}
    for name in ("mul", "exp"):
        times = sum(event.time_range.elapsed_us() for event in work if event.name.startswith(name))
        assert averages["aten::" + name].self_device_time_total == pytest.approx(times)
        assert averages["aten::" + name].count == 5
    assert averages[f"{device}LaunchKernel"].count == 10
    assert sum(row.self_device_time_total for row in result.key_averages() if row.key.startswith("aten::")) == pytest.approx(
        sum(event.time_range.elapsed_us() for event in work)
    )


def test_operators_are_counted_as_on_the_cpu(device, module):
    """Compares with the same training steps on CPU PyTorch. Each of these operators launches a kernel in each call."""
    counts = {}
    computing = ("aten::addmm", "aten::relu", "aten::mm", "aten::threshold_backward", "aten::mse_loss")
    for where in ("cpu", device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(where)
        x, target = torch.randn(8, 16).to(where), torch.randn(8, 4).to(where)
        with profile(activities=ACTIVITIES if where == device else ACTIVITIES[:1]) as result:
            for _ in range(3):
                torch.nn.functional.mse_loss(model(x), target).backward()
        counts[where] = {row.key: row.count for row in result.key_averages() if row.key in computing}
    assert counts["cpu"] == counts[device] and set(counts[device]) == set(computing)
    trace = Trace(result).check()
    within = Counter()  # launches of the operator and of the operators that it calls
    for row in trace.launches:
        inner = trace.operator_of(row)
        for operator in trace.operators.values():
            if operator["tid"] == inner["tid"] and operator["ts"] <= inner["ts"] and end(inner) <= end(operator):
                within[operator["name"]] += 1
    assert all(within[name] >= counts[device][name] for name in computing), within


def test_device_properties_are_those_of_the_device(device, module):
    torch.ones(1, device=f"{device}:1")
    trace = profiled(lambda: torch.ones(1, device=device))
    found = {entry["id"]: entry for entry in trace.file["deviceProperties"]}
    assert list(found) == list(range(module.device_count()))
    for index, entry in found.items():
        facts = module.get_device_properties(index)
        assert entry["name"] == facts.name and entry["totalGlobalMem"] == facts.total_memory
        for key, value in {"maxThreadsPerBlock": facts.max_threads_per_block, "warpSize": facts.warp_size,
                           "sharedMemPerBlock": facts.shared_memory_per_block, "numSms": facts.multi_processor_count}.items():  # fmt: skip
            assert entry.get(key, 0) == value


# ---- pausing ----


def test_a_pause_leaves_out_the_device_s_rows(device, module):
    x = torch.ones(1000, device=device)
    with profile(activities=ACTIVITIES) as result:
        x.sin()
        result.toggle_collection_dynamic(False, [ProfilerActivity.PrivateUse1])
        x.cos()
        result.toggle_collection_dynamic(False, [ProfilerActivity.PrivateUse1])
        x.cos()
        result.toggle_collection_dynamic(True, [ProfilerActivity.PrivateUse1])
        with record_function("resumed"):
            x.exp()
        result.toggle_collection_dynamic(True, [ProfilerActivity.PrivateUse1])
        x.sin()
    rows = [event for event in result.events() if event.device_type == DeviceType.PrivateUse1]
    assert [row.name.split("_")[0] for row in rows if not row.is_user_annotation] == ["sin", "exp", "sin"]
    assert [row.name for row in rows if row.is_user_annotation] == ["resumed"]
    counts = {row.key: row.count for row in result.key_averages()}
    assert (counts["aten::sin"], counts["aten::cos"], counts["aten::exp"]) == (2, 2, 1), "the CPU's rows go on"
    assert counts[f"{device}LaunchKernel"] == 3


def test_a_pause_of_both_and_a_pause_without_a_profile(device, module):
    x = torch.ones(1000, device=device)
    with profile(activities=ACTIVITIES) as result:
        x.sin()
        result.toggle_collection_dynamic(False, ACTIVITIES)
        x.cos()
        result.toggle_collection_dynamic(True, ACTIVITIES)
        x.exp()
    counts = {row.key: row.count for row in result.key_averages()}
    assert "aten::cos" not in counts and counts["aten::sin"] == counts["aten::exp"] == 1 and counts[f"{device}LaunchKernel"] == 2
    result.toggle_collection_dynamic(True, [ProfilerActivity.PrivateUse1])  # it is over
    with profile(activities=ACTIVITIES[:1]) as result:
        result.toggle_collection_dynamic(False, [ProfilerActivity.PrivateUse1])
        x.sin()
    with profile(activities=ACTIVITIES) as result:  # a pause ends with its profile
        x.sin()
    assert [row.key for row in result.key_averages() if row.key == f"{device}LaunchKernel"]
    with profile(activities=ACTIVITIES) as result:  # and a profile that ends in a pause keeps the earlier rows
        x.sin()
        result.toggle_collection_dynamic(False, [ProfilerActivity.PrivateUse1])
        x.cos()
    rows = [event for event in result.events() if event.device_type == DeviceType.PrivateUse1]
    assert [row.name.split("_")[0] for row in rows] == ["sin"]


# ---- names of Python's rows ----


def test_the_first_profile_with_stacks_imports_nothing_while_it_traces(run_python):
    """PyTorch keeps no copy of the names of code: rows of modules that a profile imports have names in freed memory.
    The first record_function of a process, which each optimizer opens, imported one."""
    run_python(
        """
        import torch
        from torch.profiler import ProfilerActivity, profile, record_function

        model = torch.nn.Linear(4, 4).to("fake")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], with_stack=True) as result:
            with record_function("step"):
                model(torch.ones(2, 4, device="fake")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        names = [event.name for event in result.events()]
        assert any("optimizer.py" in name for name in names)
        assert not [name for name in names if "<built-in function exec>" in name or "_find_and_load" in name]
        """,
        TORCH_BACKEND="fake",
    )
