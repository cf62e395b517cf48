"""Pinned host memory: page-locked tensors, asynchronous copies, reuse only after the work, DataLoader, forks."""

import gc

import pytest
import torch

MIB = 1 << 20


@pytest.fixture
def quiet(module):
    """Resets the statistics of pinned memory of earlier tests."""
    gc.collect()
    module.synchronize()
    torch.accelerator.empty_host_cache()
    module.reset_peak_host_memory_stats()
    module.reset_accumulated_host_memory_stats()
    return module


# ---- tensors ----


def test_pin_memory_copies_the_values_into_pinned_memory(device):
    plain = torch.arange(10.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and not plain.is_pinned()
    assert pinned.device.type == "cpu" and torch.equal(pinned, plain)
    assert pinned.pin_memory() is pinned  # there is nothing to do


def test_factories_make_pinned_tensors(device):
    tensors = [torch.empty(5, pin_memory=True), torch.zeros(5, pin_memory=True), torch.full((2, 3), 7.0, pin_memory=True),
               torch.randn(4, pin_memory=True), torch.empty_strided((2, 3), (1, 2), pin_memory=True),
               torch.empty_like(torch.ones(3), pin_memory=True)]  # fmt: skip
    assert all(tensor.is_pinned() for tensor in tensors)
    assert tensors[2].sum().item() == 42
    assert not torch.empty(5).is_pinned()


def test_views_of_pinned_memory_are_pinned_and_device_memory_is_not(device):
    pinned = torch.zeros(100, 100).pin_memory()
    assert pinned[50:].is_pinned() and pinned.t().is_pinned() and pinned[99, 99].is_pinned()
    assert torch.from_numpy(pinned.numpy()).is_pinned()  # another storage, the same memory
    assert not pinned.clone().is_pinned() and not (pinned + 1).is_pinned()
    assert not torch.ones(3, device=device).is_pinned()
    assert not torch.empty(0, pin_memory=True).is_pinned()  # there is no memory


def test_device_tensors_are_refused(device):
    with pytest.raises(RuntimeError, match="dense CPU tensors can be pinned"):
        torch.ones(3, device=device).pin_memory()


def test_a_size_that_no_machine_has_raises(device):
    with pytest.raises(RuntimeError):
        torch.empty(1 << 62, dtype=torch.uint8, pin_memory=True)
    assert torch.ones(3).pin_memory().is_pinned()


# ---- cache and statistics ----


def test_freed_memory_serves_the_next_tensor_of_its_size_class(quiet):
    first = torch.empty(100_000, dtype=torch.uint8, pin_memory=True)
    address = first.data_ptr()
    assert quiet.host_memory_stats()["num_host_alloc"] == 1
    del first
    second = torch.empty(131_072, dtype=torch.uint8, pin_memory=True)
    assert second.data_ptr() == address
    assert quiet.host_memory_stats()["num_host_alloc"] == 1


def test_empty_host_cache_frees_unused_memory(quiet):
    held, unused = (torch.empty(MIB, dtype=torch.uint8, pin_memory=True) for _ in range(2))
    del unused
    assert quiet.host_memory_stats()["allocated_bytes.current"] == 2 * MIB
    torch.accelerator.empty_host_cache()
    stats = quiet.host_memory_stats()
    assert stats["allocated_bytes.current"] == stats["active_bytes.current"] == MIB
    assert stats["num_host_free"] == 1 and held.is_pinned()


def test_host_memory_stats_have_torchs_names_and_reset(quiet):
    tensors = [torch.empty(MIB, dtype=torch.uint8, pin_memory=True) for _ in range(3)]
    del tensors[1:]
    stats = quiet.host_memory_stats()
    counters = ("allocations", "allocated_bytes", "active_requests", "active_bytes")
    times = ("host_alloc_time", "host_free_time")
    names = {f"{kind}.{what}" for kind in counters for what in ("current", "peak", "allocated", "freed")}
    names |= {f"{kind}.{what}" for kind in times for what in ("total", "max", "min", "count", "avg")}
    assert set(stats) == names | {"num_host_alloc", "num_host_free"}
    assert [stats[f"active_requests.{what}"] for what in ("current", "peak", "allocated", "freed")] == [1, 3, 3, 2]
    assert stats["host_alloc_time.count"] == 3 and stats["host_alloc_time.avg"] * 3 == pytest.approx(stats["host_alloc_time.total"])
    assert quiet.host_memory_stats_as_nested_dict()["active_bytes"]["peak"] == 3 * MIB
    quiet.reset_peak_host_memory_stats()
    quiet.reset_accumulated_host_memory_stats()
    stats = quiet.memory.host_memory_stats()
    assert stats["active_bytes.peak"] == MIB and stats["active_bytes.allocated"] == 0 and stats["num_host_alloc"] == 0


def test_statistics_initialize_no_device(run_python):
    run_python(
        """
        import torch, torch_backend
        assert torch.fake.host_memory_stats()["active_bytes.current"] == 0
        assert not torch.ones(3).is_pinned()
        torch.accelerator.empty_host_cache()
        torch.fake.reset_peak_host_memory_stats()
        assert not torch.fake.is_initialized()
        """,
        TORCH_BACKEND="fake",
    )


# ---- copies ----

# A stream with some time of work before the work that the test enqueues. HAL_FAKE_DELAY pauses before each item for a
# random time of at most that many microseconds; the sum of 20 pauses is close to its mean, which is 0.4 s.
BUSY = """
import torch, torch_backend

stream = torch.fake.current_stream()
ballast = torch.zeros(16, device="fake")

def occupy():
    torch.fake.synchronize()
    for _ in range(20):
        ballast.fill_(1)
    assert not stream.query()
"""
DELAYED = dict(TORCH_BACKEND="fake", HAL_FAKE_ASYNC=1, HAL_FAKE_DELAY=40_000)


def test_copies_from_and_to_pinned_memory_return_before_they_are_done(run_python):
    run_python(
        BUSY
        + """
for count in (16, 1_000_000):  # below and above what a blocking upload would buffer
    source = torch.full((count,), 3.0).pin_memory()
    target = torch.empty(count).pin_memory()
    target.fill_(-1)
    occupy()
    on_device = source.to("fake", non_blocking=True)
    target.copy_(on_device, non_blocking=True)
    assert not stream.query(), "the copies waited for the stream"
    assert target[0].item() == -1  # nothing has arrived
    stream.synchronize()
    assert torch.all(target == 3)
""",
        **DELAYED,
    )


def test_to_cpu_waits_unless_non_blocking_returns_a_pinned_result(run_python):
    """PyTorch then allocates a pinned result, like for CUDA."""
    run_python(
        BUSY
        + """
on_device = torch.full((1_000_000,), 3.0, device="fake")
occupy()
late = on_device.to("cpu", non_blocking=True)
assert late.is_pinned() and not stream.query()
plain = on_device.to("cpu")  # after it on the stream
assert not plain.is_pinned() and torch.all(plain == 3) and torch.all(late == 3)
""",
        **DELAYED,
    )


def test_blocking_copies_of_pinned_memory_wait(run_python):
    run_python(
        BUSY
        + """
source = torch.full((1_000_000,), 3.0).pin_memory()
occupy()
on_device = source.to("fake")
source.fill_(5)  # allowed: the copy is over
occupy()
target = torch.empty(1_000_000).pin_memory()
target.copy_(on_device)
assert torch.all(target == 3)
""",
        **DELAYED,
    )


def test_pinned_memory_freed_during_a_copy_is_not_used_again_before_its_end(run_python):
    run_python(
        BUSY
        + """
source = torch.full((1_000_000,), 3.0).pin_memory()
address = source.data_ptr()
occupy()
on_device = source[500_000:].to("fake", non_blocking=True)
del source
other = torch.empty(1_000_000, pin_memory=True)
assert other.data_ptr() != address and not stream.query()
torch.accelerator.empty_host_cache()  # what a copy reads stays
assert torch.fake.host_memory_stats()["active_requests.current"] == 2
target = torch.empty(500_000, pin_memory=True)
target.copy_(on_device, non_blocking=True)
view = torch.from_numpy(target.numpy())
del target
stream.synchronize()
assert torch.all(view == 3)
assert torch.empty(1_000_000, pin_memory=True).data_ptr() == address
""",
        **DELAYED,
    )


def test_pageable_operands_may_change_and_go_right_after_a_non_blocking_copy(run_python):
    run_python(
        BUSY
        + """
for count in (16, 1_000_000):
    source = torch.full((count,), 3.0)
    occupy()
    on_device = source.to("fake", non_blocking=True)
    source.fill_(5)
    del source
    target = torch.empty(count)
    target.copy_(on_device, non_blocking=True)
    assert torch.all(target == 3)  # no synchronization: it has waited
""",
        **DELAYED,
    )


def test_copies_that_convert_leave_the_operands_free(run_python):
    """The values pass through a temporary buffer on the host, so that pinned operands may also change right after the
    call."""
    run_python(
        BUSY
        + """
source = torch.full((1_000_000,), 3, dtype=torch.int32).pin_memory()
target = torch.empty(1_000_000, pin_memory=True)
occupy()
on_device = source.to("fake", torch.float32, non_blocking=True)
assert not stream.query(), "the upload waited for the stream"
source.fill_(5)
target.copy_(on_device.to(torch.float64), non_blocking=True)
assert torch.all(target == 3)
""",
        **DELAYED,
    )


def test_record_stream_of_another_stream_and_device(run_python):
    run_python(
        BUSY
        + """
side = torch.fake.Stream("fake:1")
source = torch.full((1000,), 3.0).pin_memory()  # locked for fake:0
address = source.data_ptr()
with torch.fake.stream(side):
    ballast1 = torch.zeros(16, device="fake:1")
    for _ in range(20):
        ballast1.fill_(1)
    on_device = source.to("fake:1", non_blocking=True)
del source
assert torch.empty(1000, pin_memory=True).data_ptr() != address and not side.query()
side.synchronize()
assert torch.all(on_device.cpu() == 3)
""",
        HAL_FAKE_DEVICES=2,
        **DELAYED,
    )


def test_the_layers_report_nothing(run_python):
    script = """
        import torch, torch_backend
        pinned = torch.arange(10_000.0).pin_memory()
        moved = pinned.to("fake", non_blocking=True)
        del pinned
        back = torch.empty(10_000, pin_memory=True)
        back.copy_(moved * 2, non_blocking=True)
        torch.fake.synchronize()
        assert back.sum().item() == 2 * sum(range(10_000))
        del back
        torch.accelerator.empty_host_cache()
        """
    assert "validate: " not in run_python(script, TORCH_BACKEND="fake", HAL_LAYERS="validate").stderr


# ---- plugins ----


def test_a_plugin_without_host_alloc_returns_ordinary_memory_and_warns(build_plugin, run_python):
    run_python(
        """
        import torch, torch_backend
        tensor = torch.arange(8.0).pin_memory()
        assert not tensor.is_pinned() and tensor.sum().item() == 28
        assert torch.empty(3, pin_memory=True).is_pinned() is False
        moved = tensor.to("five", non_blocking=True)
        tensor.fill_(0)  # pageable: the copy is over
        assert moved.sum().item() == 28
        """,
        TORCH_BACKEND=build_plugin("five"),
        HAL_ALLOW_UNSAFE_PLUGINS="1",
    )


# ---- DataLoader ----

LOADER = """
import torch, torch_backend
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 103
    def __getitem__(self, i):
        return {"x": torch.full((3, 4), float(i)), "y": i * i, "name": str(i)}

def run(workers, context=None, epochs=2):
    loader = DataLoader(Squares(), batch_size=8, num_workers=workers, pin_memory=True, multiprocessing_context=context)
    for _ in range(epochs):
        seen = 0
        for batch in loader:
            assert batch["x"].is_pinned() and batch["y"].is_pinned() and isinstance(batch["name"][0], str)
            x, y = (batch[key].to("fake", non_blocking=True) for key in ("x", "y"))
            del batch
            assert torch.equal((x[:, 0, 0] ** 2).cpu(), y.cpu().float())
            seen += y.sum().item()
        assert seen == sum(i * i for i in range(103))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_returns_pinned_batches(run_python, workers):
    done = run_python(
        f"{LOADER}\nrun({workers})\nstats = torch.fake.host_memory_stats()\nassert stats['num_host_alloc'] < 30, stats\n",
        TORCH_BACKEND="fake",
        HAL_FAKE_DELAY=200,
    )
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr, done.stderr


def test_data_loader_forks_workers_of_a_process_that_uses_the_device(run_python):
    run_python(
        f"""{LOADER}
held = torch.ones(5).pin_memory()  # the workers inherit it, and pending work
torch.ones(1000, device="fake").add_(1)
run(2, "fork")
assert held.is_pinned()
""",
        TORCH_BACKEND="fake",
        HAL_FAKE_DELAY=200,
    )


def test_data_loader_with_spawned_workers(run_python):
    script = f"{LOADER}\nif __name__ == '__main__':\n    run(1, 'spawn', epochs=1)\n"
    run_python(script, TORCH_BACKEND="fake")


# ---- forks ----


def test_a_forked_child_reads_and_drops_pinned_memory_but_makes_none(run_python):
    done = run_python(
        """
        import gc, os, torch, torch_backend
        pinned = torch.arange(1000.0).pin_memory()
        moved = pinned.to("fake", non_blocking=True)
        child = os.fork()
        if child == 0:
            assert pinned.sum().item() == 499500 and not pinned.is_pinned()
            pinned.fill_(0)
            del pinned
            gc.collect()
            torch.accelerator.empty_host_cache()
            for use in (lambda: torch.ones(3).pin_memory(), lambda: torch.empty(3, pin_memory=True)):
                try:
                    use()
                    os._exit(1)
                except RuntimeError as error:
                    print(error, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert pinned.sum().item() == 499500 and pinned.is_pinned()
        torch.fake.synchronize()
        assert moved.sum().item() == 499500
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_DELAY=2000,
    )
    assert done.stdout.count("Cannot re-initialize FAKE in forked subprocess") == 2


def test_a_process_ends_cleanly_with_copies_of_pinned_memory_under_way(run_python):
    done = run_python(
        BUSY + "source = torch.ones(1_000_000).pin_memory()\noccupy()\nkept = source.to('fake', non_blocking=True)\ndel source\n",
        **DELAYED,
    )
    assert done.stderr == ""
