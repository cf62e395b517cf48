"""The history of pinned host memory: its format is that of torch 2.15, with every torch."""

import gc
import pickle

import pytest
import torch
from torch.cuda import _memory_viz
from torch_backend.cli import _memory_summary, _snapshot

MiB = 1 << 20


@pytest.fixture
def memory(module):
    gc.collect()
    module.synchronize()
    torch.accelerator.empty_host_cache()
    yield module.memory
    module.memory._record_memory_history(enabled=None)
    assert not module.memory._is_history_enabled()


def pin_here(count=1000):
    return torch.empty(count, dtype=torch.uint8, pin_memory=True)


def record(memory, **options):
    memory._record_memory_history(stacks="python", record_pinned_host_memory=True, clear_history=True, **options)


def actions(snapshot, address):
    return [entry["action"] for entry in snapshot["host_traces"] if entry["addr"] == address]


def requested(snapshot):
    return sum(block["requested_size"] for segment in snapshot["host_segments"] for block in segment["blocks"] if block["state"] != "inactive")


def test_segments_are_the_pinned_tensors_and_the_cache(device, module, memory):
    before = requested(memory._snapshot())
    record(memory)
    kept = [pin_here(1000 * i) for i in range(1, 40)]
    cached = pin_here(3 * MiB).data_ptr()
    pinned = torch.arange(300.0).pin_memory()
    snapshot = memory._snapshot()
    assert requested(snapshot) - before == sum(tensor.nbytes for tensor in [*kept, pinned])
    states = {block["address"]: block["state"] for segment in snapshot["host_segments"] for block in segment["blocks"]}
    assert all(states[tensor.data_ptr()] == "active_allocated" for tensor in [*kept, pinned]) and states[cached] == "inactive"
    stats = module.host_memory_stats()
    assert sum(segment["total_size"] for segment in snapshot["host_segments"]) == stats["allocated_bytes.current"]
    assert sum(segment["active_size"] for segment in snapshot["host_segments"]) == stats["active_bytes.current"]
    assert len(snapshot["host_segments"]) == stats["allocations.current"]


def test_the_order_of_events_and_their_stacks(device, memory, tmp_path):
    def free_here(tensors):
        tensors.clear()

    record(memory)
    kept, gone = pin_here(), pin_here(3 * MiB)
    address, tensors = gone.data_ptr(), [gone]
    del gone
    free_here(tensors)
    torch.accelerator.empty_host_cache()
    snapshot = memory._snapshot()
    assert actions(snapshot, address) == ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]
    names = {entry["action"]: [frame["name"] for frame in entry["frames"]][:2] for entry in snapshot["host_traces"] if entry["addr"] == address}
    here = "test_the_order_of_events_and_their_stacks"
    assert names["segment_alloc"] == names["alloc"] == ["pin_here", here] and names["free_requested"] == names["free_completed"] == ["free_here", here]
    assert names["segment_free"][0] == "empty_host_cache"
    assert [entry["size"] for entry in snapshot["host_traces"] if entry["addr"] == address] == [3 * MiB] * 5
    times = [entry["time_us"] for entry in snapshot["host_traces"]]
    assert times == sorted(times)
    [segment] = [segment for segment in snapshot["host_segments"] if segment["address"] == kept.data_ptr()]
    assert segment["frames"][0] == segment["blocks"][0]["frames"][0] == {"name": "pin_here", "filename": __file__, "line": pin_here.__code__.co_firstlineno + 1}
    memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    assert pickle.loads((tmp_path / "snapshot.pickle").read_bytes())["host_traces"] == snapshot["host_traces"]
    memory._record_memory_history(enabled=None)
    assert not memory._snapshot()["host_traces"] and not any(segment["frames"] for segment in memory._snapshot()["host_segments"])


@pytest.mark.parametrize(("context", "live", "alloc", "free"), [(None, 0, 0, 0), ("state", 1, 0, 0), ("alloc", 1, 1, 0), ("all", 1, 1, 1)])
def test_context_of_pinned_memory(device, memory, context, live, alloc, free):
    def free_here(tensors):
        tensors.clear()

    record(memory, context=context)
    kept = pin_here()
    free_here([pin_here(77777)])
    snapshot = memory._snapshot()
    [segment] = [segment for segment in snapshot["host_segments"] if segment["address"] == kept.data_ptr()]
    assert bool(segment["frames"]) == bool(segment["blocks"][0]["frames"]) == bool(live)
    names = {entry["action"]: {frame["name"] for frame in entry.get("frames", [])} for entry in snapshot["host_traces"] if entry["size"] == 77777}
    assert ("pin_here" in names["alloc"]) == bool(alloc) and ("free_here" in names["free_requested"]) == bool(free)


def test_what_is_recorded(device, memory):
    def found():
        pin_here(), torch.empty(1000, device=device)
        snapshot = memory._snapshot()
        return bool(snapshot["host_traces"]), any(entry["action"] == "alloc" for entry in snapshot["device_traces"][0]), memory._is_history_enabled()

    memory._record_memory_history(stacks="python")
    assert found() == (False, True, True)
    memory._record_memory_history(stacks="python", record_pinned_host_memory=True, record_cuda=False)
    assert found() == (True, False, True)
    memory._record_memory_history(stacks="python", record_pinned_host_memory=True)
    assert found() == (True, True, True)
    memory._record_memory_history(True, trace_alloc_max_entries=100, record_pinned_host_memory=True, record_cuda=False)  # the older form
    assert found() == (True, False, True)
    memory._record_memory_history()  # ends the recording of pinned memory, as in torch
    assert found() == (False, True, True)
    memory._record_memory_history(enabled=None)
    assert found() == (False, False, False)


def test_the_number_of_events_and_skipped_actions(device, memory):
    record(memory, max_entries=5, skip_actions=["free_requested", "segment_alloc"])
    for _ in range(10):
        pin_here()
    trace = memory._snapshot()["host_traces"]
    assert {entry["action"] for entry in trace} == {"alloc", "free_completed"} and len(trace) == 5


def test_events_of_all_devices_are_one_list_by_time(device, module, memory):
    record(memory)
    order = []
    for index in [0, 1, 0, 1]:
        with module.device(index):
            order.append(pin_here(5000 + len(order)))
    entries = [entry for entry in memory._snapshot()["host_traces"] if entry["action"] == "alloc"]
    assert [entry["addr"] for entry in entries] == [tensor.data_ptr() for tensor in order]
    assert [entry["size"] for entry in entries] == [5000, 5001, 5002, 5003]


def test_registered_memory_is_a_segment(device, memory):
    record(memory)
    existing = torch.zeros(10_000, dtype=torch.uint8)
    try:
        memory.host_register(existing)
    except NotImplementedError:
        pytest.skip("the plugin has no host_register")
    address = existing.data_ptr()
    assert actions(memory._snapshot(), address) == ["segment_alloc", "alloc"]
    [segment] = [segment for segment in memory._snapshot()["host_segments"] if segment["address"] == address]
    assert (segment["total_size"], segment["active_size"], segment["frames"] != []) == (10_000, 10_000, True)
    memory.host_unregister(existing)
    snapshot = memory._snapshot()
    assert actions(snapshot, address) == ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]
    assert not [segment for segment in snapshot["host_segments"] if segment["address"] == address]


def test_a_failed_allocation_is_an_event(device, memory):
    record(memory)
    with pytest.raises(RuntimeError, match="out of page-locked host memory"):
        torch.empty(1 << 61, dtype=torch.uint8, pin_memory=True)
    [entry] = [entry for entry in memory._snapshot()["host_traces"] if entry["action"] == "oom"]
    assert (entry["size"], entry["device_free"], "addr" in entry) == (1 << 61, 0, False)


def test_memory_that_a_stream_uses_and_the_exit(run_python):
    done = run_python("""
        import torch, torch_backend
        torch_backend.use("fake")
        memory = torch.fake.memory
        memory._record_memory_history(stacks="python", record_pinned_host_memory=True)
        pinned = torch.ones(1000).pin_memory()
        address = pinned.data_ptr()
        x = pinned.to("fake", non_blocking=True)
        del pinned
        def found():
            snapshot = memory._snapshot()
            [state] = [segment["blocks"][0]["state"] for segment in snapshot["host_segments"] if segment["address"] == address]
            return state, *[entry["action"] for entry in snapshot["host_traces"] if entry["addr"] == address]
        print(*found())
        torch.fake.synchronize()
        other = torch.empty(1 << 20, pin_memory=True)  # ends the uses that are done
        print(*found())
        kept = torch.ones(4).pin_memory()  # its stack is released at exit
    """, HAL_FAKE_DELAY="500000")  # fmt: skip
    assert done.stdout.splitlines() == ["active_pending_free segment_alloc alloc free_requested",
                                        "inactive segment_alloc alloc free_requested free_completed"], done.stdout + done.stderr  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr


# ---- viewers ----


def test_torchs_viewers_accept_pinned_memory_as_a_device(device, memory):
    record(memory)
    kept = [pin_here(1000 * i) for i in range(1, 5)]
    del kept[0]
    full = memory._snapshot()
    assert isinstance(_memory_viz.trace_plot(full), str)  # the keys of pinned memory are no error
    snapshot = {**full, "segments": [{**segment, "device": 0} for segment in full["host_segments"]], "device_traces": [full["host_traces"]]}
    plain = {"format_flamegraph": lambda text: text}
    assert "_" in _memory_viz.segments(snapshot, **plain) and "pin_here" in _memory_viz.memory(snapshot, **plain)
    assert "entries" in _memory_viz.trace(snapshot)
    reserved = sum(segment["total_size"] for segment in full["host_segments"])
    assert f"total_reserved: {_memory_viz.Bytes(reserved)}\n" in _memory_viz.segsum(snapshot)
    for plot in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
        assert "snapshot.pickle" in plot


def test_the_page_has_the_numbers_of_the_statistics(device, module, memory, tmp_path):
    record(memory)
    kept = pin_here(3 * MiB)
    gone = [pin_here(3 * MiB), pin_here(3 * MiB)]
    del gone
    memory._dump_snapshot(str(tmp_path / "s.pickle"))
    stats = module.host_memory_stats()
    result = _memory_summary.summary(_snapshot.read(tmp_path / "s.pickle"))
    pinned = result["devices"][-1]
    assert pinned["device"] == "pinned host memory"
    assert (pinned["totals"]["active"], pinned["totals"]["reserved"]) == (stats["active_bytes.current"], stats["allocated_bytes.current"])
    assert pinned["timeline"]["points"][-1][2:] == [pinned["totals"]["requested"], stats["allocated_bytes.current"]]
    assert pinned["timeline"]["peak"]["bytes"] - pinned["totals"]["requested"] == 2 * (3 * MiB) and pinned["timeline"]["unknown_ends"] == 0
    [row] = [row for row in pinned["live"]["blocks"] if int(row["address"], 16) == kept.data_ptr()]
    assert row["size"] == 3 * MiB and result["stacks"][row["stack"]][0].endswith(":pin_here")
