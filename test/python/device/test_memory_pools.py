"""Private pools with their options, snapshots of the allocator, and allocations without a tensor."""

import pytest
import torch

MiB = 1 << 20


def addresses(segments):
    return {block["address"] for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"}


def test_the_use_count_is_torch_cudas(device, module):
    pool = module.MemPool()
    assert pool.use_count() == 1 and pool.allocator is None and pool.snapshot() == []
    with module.use_mem_pool(pool):
        x = torch.ones(4, device=device)
        assert pool.use_count() == 2
    assert pool.use_count() == 1
    graph = module.Graph()
    with module.graph(graph, pool=pool.id):
        y = x + 1
    assert pool.use_count() == 2
    del graph
    assert pool.use_count() == 1 and y.numel() == 4


def test_a_snapshot_of_a_pool_holds_what_was_allocated_in_it(device, module):
    pool = module.MemPool()
    outside = torch.ones(100, device=device)
    with module.use_mem_pool(pool):
        small, large = torch.ones(100, device=device), torch.ones(3 * MiB, device=device)
    after = torch.ones(100, device=device)
    segments = pool.snapshot()
    assert addresses(segments) == {small.data_ptr(), large.data_ptr()}
    assert {segment["segment_type"] for segment in segments} == {"small", "large"}
    assert {segment["segment_pool_id"] for segment in segments} == {pool.id}
    everywhere = addresses(module.memory_snapshot())
    assert {outside.data_ptr(), after.data_ptr(), small.data_ptr(), large.data_ptr()} <= everywhere
    assert addresses(module.memory_snapshot(pool.id)) == addresses(segments) == addresses(pool.snapshot(include_traces=False))
    del small, large
    assert not addresses(pool.snapshot()) and pool.snapshot(), "the pool keeps its segments"


def test_a_snapshot_agrees_with_the_statistics(device, module):
    kept = [torch.ones(size, device=f"{device}:{index}") for index in (0, 1) for size in (10, 1000, 70_000, MiB)]
    for index in (0, 1):
        segments = [segment for segment in module.memory_snapshot() if segment["device"] == index]
        stats = module.memory_stats(index)
        assert sum(segment["total_size"] for segment in segments) == stats["reserved_bytes.all.current"]
        assert sum(segment["allocated_size"] for segment in segments) == stats["allocated_bytes.all.current"]
        assert sum(segment["active_size"] for segment in segments) == stats["active_bytes.all.current"]
        assert sum(segment["requested_size"] for segment in segments) == stats["requested_bytes.all.current"]
        assert len(segments) == stats["segment.all.current"]
        for segment in segments:
            assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
            assert [block["address"] for block in segment["blocks"]] == sorted(block["address"] for block in segment["blocks"])
    assert {tensor.data_ptr() for tensor in kept} <= addresses(module.memory_snapshot())


def test_torchs_viewer_reads_a_snapshot(device, module):
    """torch.cuda._memory_viz, to which users pass the snapshot."""
    from torch.cuda import _memory_viz

    kept = torch.ones(MiB, device=device)
    text = _memory_viz.segsum({"segments": module.memory_snapshot(), "device_traces": []})
    assert f"segments: {len(module.memory_snapshot())}\n" in text and kept.numel() == MiB


def test_a_pool_without_splits(device, module):
    pool = module.MemPool(no_split=True)
    with module.use_mem_pool(pool):
        kept = [torch.ones(size, device=device) for size in (10, 10, 3 * MiB, 3 * MiB)]
    segments = pool.snapshot()
    assert len(segments) == len(kept) and all(len(segment["blocks"]) == 1 for segment in segments)
    shared = module.MemPool()
    with module.use_mem_pool(shared):
        kept += [torch.ones(10, device=device) for _ in range(2)]
    assert len(shared.snapshot()) == 1


LAST_RESORT = """
import torch
m, MiB = torch.fake, 1 << 20
pool = m.MemPool(use_on_oom={use_on_oom})
with m.use_mem_pool(pool):
    large = torch.ones(40 * MiB, dtype=torch.uint8, device="fake")
address = large.data_ptr()
del large
kept = torch.ones(20 * MiB, dtype=torch.uint8, device="fake")
try:
    again = torch.ones(40 * MiB, dtype=torch.uint8, device="fake")
    print("allocated", again.data_ptr() == address, again[::MiB].sum().item() == 40)
except torch.OutOfMemoryError as error:
    print("out of memory", "40" in str(error))
"""


def test_a_pool_serves_as_the_last_resort(run_python):
    settings = {"TORCH_BACKEND": "fake", "HAL_FAKE_MEMORY": "64m"}
    assert run_python(LAST_RESORT.format(use_on_oom=True), **settings).stdout.split() == ["allocated", "True", "True"]
    assert run_python(LAST_RESORT.format(use_on_oom=False), **settings).stdout.split()[:3] == ["out", "of", "memory"]


def test_a_pool_that_is_gone_is_no_last_resort(run_python):
    script = LAST_RESORT.format(use_on_oom=True).replace("try:", "del pool\ntry:")
    done = run_python(script, TORCH_BACKEND="fake", HAL_FAKE_MEMORY="64m")
    assert done.stdout.startswith("allocated"), "its memory is the device's again"


def test_another_object_as_allocator_is_refused(module):
    with pytest.raises(TypeError, match="PluggableAllocator"):
        module.MemPool(object())
    assert module.MemPool(None, True, True).use_count() == 1


def test_memory_without_a_tensor(device, module):
    before = module.memory_allocated()
    address = module.caching_allocator_alloc(1000)
    assert address and module.memory_allocated() == before + 1024 and address in addresses(module.memory_snapshot())
    module.caching_allocator_delete(address)
    assert module.memory_allocated() == before
    stream = module.Stream(device=f"{device}:1")
    for given in (stream, stream.native_handle) if stream.native_handle else (stream,):
        other = module.caching_allocator_alloc(1 << 20, 1, given)
        found = [segment for segment in module.memory_snapshot() if other in addresses([segment])]
        assert [segment["stream"] for segment in found] == [stream.stream_id] and found[0]["device"] == 1
        module.caching_allocator_delete(other)


def test_memory_without_a_tensor_is_usable(device, module):
    """Like a library: a tensor over the address."""
    address = module.caching_allocator_alloc(16)
    x = torch.arange(4.0, device=device)
    storage = torch._C._construct_storage_from_data_pointer(address, torch.device(device, 0), 16)
    view = torch.empty(0, device=device).set_(storage, 0, (4,))
    view.copy_(x)
    assert view.data_ptr() == address and view.tolist() == [0, 1, 2, 3]
    del view, storage
    module.caching_allocator_delete(address)


def test_what_is_no_allocation_is_refused(device, module):
    kept = torch.ones(1000, device=device)
    with pytest.raises(RuntimeError, match="in no block that is in use"):
        module.caching_allocator_delete(8)
    with pytest.raises(ValueError, match="not the beginning"):
        module.caching_allocator_delete(kept.data_ptr() + 8)
    address = module.caching_allocator_alloc(100)
    module.caching_allocator_delete(address)
    with pytest.raises(RuntimeError, match="in no block that is in use"):
        module.caching_allocator_delete(address)
    with pytest.raises(ValueError, match="the stream is of"):
        module.caching_allocator_alloc(100, 0, module.Stream(device=f"{device}:1"))
    with pytest.raises(ValueError, match="no stream with the native handle"):
        module.caching_allocator_alloc(100, 0, 12345)
    with pytest.raises(TypeError, match="Invalid type for stream"):
        module.caching_allocator_alloc(100, 0, "1")
    assert kept.sum().item() == 1000


def test_the_fraction_of_memory(run_python):
    run_python(
        """
        import torch
        m = torch.fake
        assert m.get_per_process_memory_fraction() == 1.0 and not m.is_initialized()
        m.set_per_process_memory_fraction(0.5, 1)
        assert m.get_per_process_memory_fraction("fake:1") == 0.5 and m.get_per_process_memory_fraction(0) == 1.0
        try:
            torch.empty(40 << 20, dtype=torch.uint8, device="fake:1")
            raise SystemExit("40 MiB do not fit into half of 64 MiB")
        except torch.OutOfMemoryError:
            pass
        torch.empty(40 << 20, dtype=torch.uint8, device="fake:0")
        m.set_per_process_memory_fraction(1, 1)
        assert m.get_per_process_memory_fraction(1) == 1.0
        torch.empty(40 << 20, dtype=torch.uint8, device="fake:1")
        for wrong, kind in ((0, ValueError), (1.5, ValueError), (-1, ValueError), ("1", TypeError), (None, TypeError), (True, TypeError)):
            try:
                m.set_per_process_memory_fraction(wrong)
                raise SystemExit(f"{wrong} was taken")
            except kind:
                pass
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES=2,
        HAL_FAKE_MEMORY="64m",
    )


@pytest.mark.parametrize("old, new", [("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved")])
def test_old_names_warn_and_work(device, module, old, new):
    kept = torch.ones(1000, device=device)
    with pytest.warns(FutureWarning, match=new):
        assert getattr(module, old)() == getattr(module, new)() > 0
    assert kept.numel() == 1000


@pytest.mark.parametrize("old", ["reset_max_memory_allocated", "reset_max_memory_cached"])
def test_old_resets_warn_and_reset_the_peaks(device, module, old):
    large = torch.ones(5 * MiB, device=device)
    del large
    module.empty_cache()
    assert module.max_memory_allocated() > module.memory_allocated()
    with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
        getattr(module, old)(0)
    assert module.max_memory_allocated() == module.memory_allocated()
