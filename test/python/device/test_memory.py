"""The caching allocator in PyTorch's API: statistics, limits, resizing, the profiler."""

import gc

import pytest
import torch

MIB = 1 << 20


@pytest.fixture
def quiet(module):
    """Resets the statistics of earlier tests."""
    gc.collect()
    module.synchronize()
    module.empty_cache()
    module.reset_peak_memory_stats()
    module.reset_accumulated_memory_stats()
    return module


def test_allocated_bytes_are_those_of_the_tensors(quiet, device):
    before = quiet.memory_allocated()
    tensor = torch.empty(4 * MIB, dtype=torch.uint8, device=device)
    assert quiet.memory_allocated() - before == 4 * MIB
    assert quiet.memory_reserved() >= quiet.memory_allocated()
    view = tensor[: 1024]
    del tensor
    assert quiet.memory_allocated() - before == 4 * MIB  # the view holds the storage
    del view
    assert quiet.memory_allocated() == before
    assert quiet.max_memory_allocated() == before + 4 * MIB


def test_a_freed_block_is_reused_without_the_plugin(quiet, device):
    first = torch.empty(3 * MIB, dtype=torch.uint8, device=device)
    address = first.data_ptr()
    del first
    allocations = quiet.memory_stats()["num_device_alloc"]
    assert torch.empty(3 * MIB, dtype=torch.uint8, device=device).data_ptr() == address
    assert quiet.memory_stats()["num_device_alloc"] == allocations


def test_empty_cache_frees_segments(quiet, device):
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    reserved = quiet.memory_reserved()
    del tensor
    assert quiet.memory_reserved() == reserved
    quiet.empty_cache()
    assert quiet.memory_reserved() <= reserved - 64 * MIB
    torch.accelerator.empty_cache()


def test_memory_stats_have_torchs_names(module, device):
    tensor = torch.empty(1, device=device)
    stats = module.memory_stats()
    kinds = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
             "inactive_split_bytes", "requested_bytes")  # fmt: skip
    for kind in kinds:
        for pool in ("all", "small_pool", "large_pool"):
            for what in ("current", "peak", "allocated", "freed"):
                assert isinstance(stats[f"{kind}.{pool}.{what}"], int)
    for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size"):
        assert isinstance(stats[name], int)
    assert stats["oversize_allocations.current"] >= 0
    accelerator = torch.accelerator.memory_stats()
    assert {key: accelerator[key] for key in stats if key in accelerator} == stats
    del tensor


def test_statistics_are_per_device(quiet, device):
    before = quiet.memory_allocated(0), quiet.memory_allocated(1)
    tensor = torch.empty(2 * MIB, dtype=torch.uint8, device=f"{device}:1")
    assert quiet.memory_allocated(0) == before[0]
    assert quiet.memory_allocated(f"{device}:1") == before[1] + 2 * MIB == torch.accelerator.memory_allocated(f"{device}:1")
    del tensor


def test_resets(quiet, device):
    torch.empty(5 * MIB, dtype=torch.uint8, device=device)
    assert quiet.memory_stats()["allocated_bytes.all.allocated"] >= 5 * MIB
    quiet.reset_accumulated_memory_stats()
    quiet.reset_peak_memory_stats()
    assert quiet.memory_stats()["allocated_bytes.all.allocated"] == 0
    assert quiet.max_memory_allocated() == quiet.memory_allocated()


def test_mem_get_info_and_accelerator_agree(module, device):
    free, total = module.mem_get_info()
    assert 0 <= free <= total and total > 0
    assert torch.accelerator.get_memory_info()[1] == total


def test_memory_summary_shows_the_figures(quiet, device):
    tensor = torch.empty(32 * MIB, dtype=torch.uint8, device=device)
    assert "32768 KiB" in quiet.memory_summary() or "32 MiB" in quiet.memory_summary()
    assert len(quiet.memory_summary(abbreviated=True)) < len(quiet.memory_summary())
    del tensor


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()])
def test_empty_and_zero_dimensional_tensors(quiet, device, shape):
    before = quiet.memory_allocated()
    tensor = torch.ones(shape, device=device)
    assert tensor.shape == torch.Size(shape) and tensor.sum().item() == tensor.numel()
    assert shape == () or quiet.memory_allocated() == before


def test_training_leaks_nothing(quiet, device):
    def step():
        network = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
        network(torch.randn(8, 32, device=device)).sum().backward()

    step()
    gc.collect()
    before = quiet.memory_allocated()
    for _ in range(20):
        step()
    gc.collect()
    assert quiet.memory_allocated() == before


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_storage_resize_keeps_the_bytes_that_fit(device, size):
    tensor = torch.arange(7, dtype=torch.int64).to(device)
    tensor.untyped_storage().resize_(8 * size)
    assert tensor.untyped_storage().nbytes() == 8 * size
    kept = torch.empty(0, dtype=torch.int64, device=device).set_(tensor.untyped_storage())
    assert kept.cpu()[:7].tolist() == list(range(min(7, size)))


def test_storage_resize_to_nothing_frees(quiet, device):
    tensor = torch.empty(2 * MIB, dtype=torch.uint8, device=device)
    before = quiet.memory_allocated()
    tensor.untyped_storage().resize_(0)
    assert quiet.memory_allocated() == before - 2 * MIB


def test_tensor_resize_grows_across_streams(module, device):
    tensor = torch.arange(1000, dtype=torch.int32).to(device)
    module.synchronize()
    with module.stream(module.Stream(device=device)):
        tensor.resize_(1 << 16)
        module.current_stream().synchronize()
    assert tensor[:1000].cpu().tolist() == list(range(1000))


def test_storage_stays_alive_through_python_and_back(device):
    storage = torch.arange(5, dtype=torch.uint8).to(device).untyped_storage()
    gc.collect()
    assert list(storage.cpu()) == [0, 1, 2, 3, 4]
    assert storage.device == torch.device(device, 0)


def test_the_profiler_sees_device_memory(device):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as result:
        tensor = torch.empty(3 * MIB, dtype=torch.uint8, device=device)
        del tensor
    events = [event for event in result.profiler.kineto_results.events() if event.name() == "[memory]"]
    sizes = [event.nbytes() for event in events if event.device_type() == torch._C._autograd.DeviceType.PrivateUse1]
    assert 3 * MIB in sizes and -3 * MIB in sizes


def test_out_of_memory_raises_torchs_error_and_the_process_continues(run_python):
    done = run_python(
        """
        import torch
        kept = torch.ones(4 << 20, device="fake")
        try:
            torch.empty(1 << 30, dtype=torch.uint8, device="fake")
        except torch.OutOfMemoryError as error:
            print(error)
        else:
            raise SystemExit("1 GiB of a 64 MiB device")
        stats = torch.fake.memory_stats()
        assert stats["num_ooms"] == 1 and stats["num_alloc_retries"] >= 1
        assert kept.sum().item() == 4 << 20
        del kept
        assert torch.ones(10 << 20, device="fake").sum().item() == 10 << 20
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_MEMORY="64M",
    )
    # The text that libraries search for before they retry with a smaller size, with PyTorch's name of the device type.
    assert done.stdout.startswith("FAKE out of memory. Tried to allocate 1.00 GiB on device fake:0;")
    for words in ("Tried to allocate 1.00 GiB", "total 64.00 MiB", "free 48.00 MiB", "allocated 16.00 MiB"):
        assert words in done.stdout


@pytest.mark.parametrize("size", [1 << 40, (1 << 62) + 5])
def test_every_failed_allocation_has_torchs_out_of_memory_message(size, run_python):
    """Also for a device type with its own name, and for sizes that no device could have."""
    done = run_python(
        f"""
        import torch
        try:
            torch.empty({size}, dtype=torch.uint8, device="mine")
        except torch.OutOfMemoryError as error:
            print(error)
        """,
        TORCH_BACKEND="fake",
        TORCH_BACKEND_NAME="mine",
    )
    assert done.stdout.startswith("MINE out of memory. Tried to allocate ")


def test_what_a_fraction_may_be(module):
    for fraction in (1, 1.0, 0.5, 1):
        module.set_per_process_memory_fraction(fraction)
        assert module.get_per_process_memory_fraction() == fraction
    for wrong, error in ((0, ValueError), (1.5, ValueError), (float("nan"), ValueError), (True, TypeError), ("1", TypeError), (None, TypeError)):
        with pytest.raises(error, match="[Ff]raction"):
            module.set_per_process_memory_fraction(wrong)
    assert module.get_per_process_memory_fraction() == 1


def test_a_fraction_of_the_memory_is_a_limit(run_python):
    run_python(
        """
        import torch
        torch.fake.set_per_process_memory_fraction(0.25)
        try:
            torch.empty(200 << 20, dtype=torch.uint8, device="fake")
        except torch.OutOfMemoryError:
            pass
        else:
            raise SystemExit("200 MiB of a quarter of 512 MiB")
        torch.fake.set_per_process_memory_fraction(1e-300)  # less than a byte is not "no limit"
        try:
            torch.empty(1, device="fake")
        except torch.OutOfMemoryError:
            pass
        else:
            raise SystemExit("a byte of 1e-300 of 512 MiB")
        torch.fake.set_per_process_memory_fraction(1.0)
        torch.empty(200 << 20, dtype=torch.uint8, device="fake")
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_MEMORY="512M",
    )
