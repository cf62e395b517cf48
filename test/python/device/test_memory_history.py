"""The history of the caching allocator: its format is that of PyTorch, whose viewers accept it."""

import inspect
import pickle
import re
import sys

import pytest
import torch
from torch.cuda import _memory_viz

MiB = 1 << 20

# Keys and types of torch/csrc/cuda/Module.cpp (THCPModule_memorySnapshot), which the documented classes leave out.
CXX = {
    "Snapshot": {"allocator_settings": dict, "external_annotations": list, "host_segments": list, "host_traces": list},  # host: since 2.15
    "Segment": {"device": int, "requested_size": int, "is_expandable": bool, "frames": list},
    "Block": {},
    "TraceEntry": {"time_us": int, "compile_context": str, "user_metadata": str},
    "Frame": {},
}
SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": str, "max_split_size": int, "garbage_collection_threshold": float, "expandable_segments": bool,
            "pinned_num_register_threads": int, "release_lock_on_cudamalloc": bool, "pinned_use_cuda_host_register": bool,
            "roundup_power2_divisions": dict}  # fmt: skip
TYPES = {"int": int, "str": str, "List": list, "Tuple": tuple, "Literal": str}


def schema():
    """The classes that torch documents in _snapshot, with the keys of its C++ code."""
    classes = {}
    for line in inspect.getdoc(torch.cuda.memory._snapshot).split("\n"):
        if match := re.match(r"\s*class (\w+)\(TypedDict\)", line):
            known = classes.setdefault(match[1], {})
        elif classes and (match := re.match(r"\s*(\w+): (int|str|List|Tuple|Literal)\b", line)):
            known[match[1]] = TYPES[match[2]]
        elif line.startswith("Args:"):
            break
    for name, keys in CXX.items():
        classes[name].update(keys)
    return classes


@pytest.fixture
def memory(module):
    yield module.memory
    module.memory._record_memory_history(enabled=None)
    assert not module.memory._is_history_enabled()


def check(value, keys, optional=()):
    assert set(keys) - set(optional) <= set(value) <= set(keys), set(value) ^ set(keys)
    for key, item in value.items():
        assert type(item) is keys[key], f"{key} is {item!r}"


def check_snapshot(snapshot):
    classes = schema()
    check(snapshot, classes["Snapshot"])
    frame = {key: kind for key, kind in classes["Frame"].items() if not key.startswith("fx_")}
    frames = []
    for segment in snapshot["segments"] + snapshot["host_segments"]:
        check(segment, classes["Segment"])
        assert segment["segment_type"] in ("small", "large")
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        frames += segment["frames"]
        for block in segment["blocks"]:
            check(block, classes["Block"])
            assert block["state"] in ("inactive", "active_allocated", "active_pending_free")
            frames += block["frames"]
    for trace in [*snapshot["device_traces"], snapshot["host_traces"]]:
        for entry in trace:
            check(entry, classes["TraceEntry"], optional=("frames", "addr", "device_free", "internal_metadata"))
            assert ("device_free" in entry) == (entry["action"] == "oom") != ("addr" in entry)
            frames += entry.get("frames", [])
    for segment in snapshot["host_segments"]:  # as torch 2.15 lists pinned memory: one block each
        assert [segment["device"], segment["stream"], segment["segment_type"], segment["segment_pool_id"]] == [-1, 0, "small", (0, 0)]
        assert [block["address"] for block in segment["blocks"]] == [segment["address"]]
    for entry in frames:
        check(entry, frame)
    assert {key: type(value) for key, value in snapshot["allocator_settings"].items()}.items() >= SETTINGS.items()
    return frames


def allocate_here(device, count=1000):
    return torch.empty(count, device=device)


def actions(snapshot, index=0):
    return [entry["action"] for entry in snapshot["device_traces"][index]]


def test_events_stacks_and_schema(device, module, memory, tmp_path):
    module.empty_cache()
    memory._record_memory_history(stacks="python", clear_history=True)
    kept = allocate_here(device)
    gone = allocate_here(device, 3 * MiB)
    address = gone.untyped_storage().data_ptr()
    del gone
    module.synchronize()
    snapshot = memory._snapshot()
    frames = check_snapshot(snapshot)
    assert any(frame["name"] == "allocate_here" and frame["filename"] == __file__ for frame in frames)
    assert len(snapshot["device_traces"]) == module.device_count() and actions(snapshot)[-1] == "snapshot"
    own = [entry for entry in snapshot["device_traces"][0] if entry.get("addr") == address]
    assert [entry["action"] for entry in own if "segment" not in entry["action"]] == ["alloc", "free_requested", "free_completed"]
    assert all(entry["size"] == 12 * MiB for entry in own if entry["action"] == "alloc")
    [block] = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["address"] == kept.data_ptr()]
    assert block["state"] == "active_allocated" and block["frames"][0]["name"] == "allocate_here"
    memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    assert check_snapshot(pickle.loads((tmp_path / "snapshot.pickle").read_bytes()))
    memory._record_memory_history(enabled=None)
    assert not memory._snapshot()["device_traces"][0] and not any(segment["frames"] for segment in module.memory_snapshot())


def test_torchs_viewers_accept_it(device, module, memory):
    before = memory._snapshot()
    memory._record_memory_history(stacks="python")
    kept = [allocate_here(device, 1000 * i) for i in range(1, 5)]
    del kept[0]
    module.synchronize()
    snapshot = memory._snapshot()
    plain = {"format_flamegraph": lambda text: text}
    assert "_" in _memory_viz.segments(snapshot, **plain)
    assert "allocate_here" in _memory_viz.memory(snapshot, **plain)
    assert isinstance(_memory_viz.compare(before["segments"], snapshot["segments"], **plain), str)
    assert "entries" in _memory_viz.trace(snapshot) and "segments:" in _memory_viz.segsum(snapshot)
    for plot in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot), _memory_viz.trace_plot(snapshot, plot_segments=True)):
        assert "snapshot.pickle" in plot
    assert "MemoryViz" in _memory_viz.trace_plot(snapshot, filter_freed=True)


@pytest.mark.parametrize(("context", "live", "alloc", "free"), [(None, 0, 0, 0), ("state", 1, 0, 0), ("alloc", 1, 1, 0), ("all", 1, 1, 1)])
def test_context(device, module, memory, context, live, alloc, free):
    def free_here(tensors):
        tensors.clear()

    memory._record_memory_history(context=context, stacks="python", clear_history=True)
    kept = allocate_here(device)
    free_here([allocate_here(device, 77777)])
    module.synchronize()
    snapshot = memory._snapshot()
    [block] = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["address"] == kept.data_ptr()]
    assert bool(block["frames"]) == bool(live)
    names = {entry["action"]: {frame["name"] for frame in entry.get("frames", [])} for entry in snapshot["device_traces"][0] if entry["size"] == 4 * 77777}
    assert ("allocate_here" in names["alloc"]) == bool(alloc) and ("free_here" in names["free_requested"]) == bool(free)


def test_options(device, module, memory):
    memory._record_memory_history("state", stacks="python", clear_history=1)
    kept = allocate_here(device)
    assert len(memory._snapshot()["device_traces"][0]) == 1  # as torch: max_entries is 1
    memory._record_memory_history(context=None, max_entries=5, skip_actions=["free_requested", "snapshot"], clear_history=True)
    for _ in range(10):
        allocate_here(device)
    module.synchronize()
    assert set(actions(memory._snapshot())) == {"alloc", "free_completed"} and len(actions(memory._snapshot())) == 5
    memory._record_memory_history(True, trace_alloc_max_entries=100, trace_alloc_record_context=True)  # the older form
    assert memory._is_history_enabled() and kept.numel() == 1000
    memory._record_memory_history(False)
    assert not memory._is_history_enabled()


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"enabled": "yes"}, RuntimeError, "invalid enabled 'yes'"),
    ({"context": "none"}, RuntimeError, "invalid context 'none'"),
    ({"stacks": "c++"}, RuntimeError, "invalid stacks 'c\\+\\+'"),
    ({"max_entries": -1}, ValueError, "invalid max_entries -1"),
    ({"skip_actions": ["map"]}, ValueError, "invalid skip_actions \\['map'\\]"),
    ({"compile_context": True}, NotImplementedError, "compile_context=True"),
    ({"enabled": None, "record_pinned_host_memory": True}, RuntimeError, "recorded only while the history is enabled"),
    ({"enabled": False, "record_pinned_host_memory": True}, RuntimeError, "recorded only while the history is enabled"),
    ({"unknown": 1}, TypeError, "_record_memory_history\\(\\) got an unexpected keyword argument 'unknown'"),
    ({"enabled": True, "unknown": 1}, TypeError, "_record_memory_history\\(\\) got an unexpected keyword argument 'unknown'"),
    ({"skip_actions": "alloc"}, TypeError, "invalid skip_actions 'alloc': expected a list of actions"),
    ({"skip_actions": 5}, TypeError, "invalid skip_actions 5: expected a list of actions"),
])  # fmt: skip
def test_invalid_arguments(memory, arguments, error, message):
    with pytest.raises(error, match=message):
        memory._record_memory_history(**arguments)


def test_pools_graphs_and_lazy_memory_are_named(device, module, memory):
    import torch_backend.lazy

    memory._record_memory_history(stacks="python", clear_history=True)
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        kept = allocate_here(device)
    graph = module.Graph()
    x = torch.ones(4, device=device)
    with module.graph(graph):
        y = x + 1
    with torch_backend.lazy.record():
        z = (x * 2 + 1).exp()
        del x
    module.synchronize()
    snapshot = memory._snapshot()
    check_snapshot(snapshot)
    pools = {entry["pool_id"] for entry in snapshot["device_traces"][0]}
    assert pool.id in pools and len(pools) >= 3  # the pool, that of the graph, (0, 0)
    assert {segment["segment_pool_id"] for segment in snapshot["segments"] if segment["frames"]} >= {pool.id}
    assert all(block["frames"] for segment in pool.snapshot() for block in segment["blocks"] if block["state"] == "active_allocated")
    assert kept.numel() and y.numel() and z.numel()


def test_out_of_memory_is_recorded_and_observed(device, module, memory):
    seen = []
    memory._attach_out_of_memory_observer(lambda *values: seen.append(values))
    memory._record_memory_history(stacks="python", clear_history=True)
    size = 1 << 50
    with pytest.raises(torch.OutOfMemoryError, match="out of memory. Tried to allocate"):
        torch.empty(size, dtype=torch.uint8, device=device)
    [entry] = [entry for entry in memory._snapshot()["device_traces"][0] if entry["action"] == "oom"]
    assert entry["size"] == size and "device_free" in entry and "addr" not in entry
    assert [(values[0], values[1], values[3]) for values in seen] == [(0, size, entry["device_free"])]
    assert "raise OutOfMemoryError" in _memory_viz.trace(memory._snapshot())


def test_frames_of_cpp_an_observer_that_fails_and_the_exit(run_python):
    done = run_python("""
        import torch, torch_backend
        torch_backend.use("fake")
        def fail(*values):
            raise ValueError("in the observer")
        torch.fake.memory._attach_out_of_memory_observer(fail)
        torch.fake.memory._record_memory_history(stacks="all", max_entries=60)
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device="fake")
        except torch.OutOfMemoryError:
            print("raised")
        x = torch.ones(33, 33, device="fake", requires_grad=True)
        (x @ x).relu().sum().backward()
        trace = torch.fake.memory._snapshot()["device_traces"][0]
        names = [frame["name"] for entry in trace for frame in entry.get("frames", [])]
        print(any("torch_backend::" in name for name in names), "<module>" in names)
        kept = torch.ones(4, device="fake")  # its stack is released at exit
    """, TORCH_SYMBOLIZE_MODE="dladdr")  # fmt: skip
    assert done.stdout.split() == ["raised", "True", "True"] and "in the observer" in done.stderr, done.stdout + done.stderr


def test_sys_maxsize_is_no_limit(device, memory):
    memory._record_memory_history(context=None, max_entries=sys.maxsize, clear_history=True)
    for _ in range(3000):
        allocate_here(device)
    assert len(memory._snapshot()["device_traces"][0]) >= 6000


@pytest.mark.skipif(not hasattr(torch.accelerator.memory, "_snapshot"), reason="torch.accelerator.memory._snapshot is new in torch 2.15")
def test_the_snapshot_of_the_accelerator_is_that_of_the_device(device, memory):
    memory._record_memory_history()
    x = torch.empty(100_000, device=device)
    found = torch.accelerator.memory._snapshot()
    assert found["segments"] == memory._snapshot()["segments"]
    blocks = [block for segment in found["segments"] for block in segment["blocks"]]
    assert [block["state"] for block in blocks if block["address"] == x.data_ptr()] == ["active_allocated"]
    assert any(entry["action"] == "alloc" and entry["addr"] == x.data_ptr() for entry in found["device_traces"][0])


def test_the_stack_of_an_allocation(device, memory):
    memory._record_memory_history(stacks="python")
    x = allocate_here(device)
    view = x[10:]
    stack = memory._allocation_traceback(view.untyped_storage().data_ptr())
    assert [frame["name"] for frame in stack][:2] == ["allocate_here", "test_the_stack_of_an_allocation"]
    assert memory._allocation_traceback(view.data_ptr()) is None, "only the begin of an allocation"
    memory._record_memory_history(enabled=None)
    assert memory._allocation_traceback(x.data_ptr()) is None


def test_pictures_of_the_use_of_memory(device, memory, tmp_path, monkeypatch):
    """The text of torch's functions of the same snapshot, the input of flamegraph.pl."""
    from torch.cuda import _memory_viz

    for picture in (_memory_viz.segments, _memory_viz.memory):
        monkeypatch.setattr(picture, "__defaults__", (lambda lines: lines,))  # their program is downloaded
    memory._record_memory_history()
    kept = allocate_here(device)
    snapshot = memory._snapshot()
    for save, picture in ((memory._save_segment_usage, _memory_viz.segments), (memory._save_memory_usage, _memory_viz.memory)):
        save(tmp_path / "picture.svg", snapshot)
        assert (tmp_path / "picture.svg").read_text() == picture(snapshot) != ""
    assert kept.numel() == 1000
