"""The fallback: an operator without a kernel runs on the CPU with the device's memory, is counted, and returns the
CPU's result."""

import threading

import pytest
import torch

import torch_backend
import without_kernels


def counts():
    return {row.op: row.count for row in torch_backend.fallback.report()}


@pytest.fixture(autouse=True)
def kernels_off():
    with torch_backend.fallback.force(*without_kernels.OPERATORS):
        torch_backend.fallback.reset()
        yield


# ---- results ----
CASES = {
    "functional": (lambda x: torch.cumsum(x, 1), True),
    "several results": (lambda x: torch.sort(x, 1), True),
    "a list of results": (lambda x: torch.ops.aten.unsafe_split_with_sizes(x, [1, 2, 1], 1), True),
    "a list of operands": (lambda x: torch.cat([x, x + 1, x], 1), True),
    "a list of indices": (lambda x: x[torch.tensor([0, 2], device=x.device)], True),
    "indices with gaps": (lambda x: x[:, torch.tensor([0, 2], device=x.device)], True),
    "no tensor in the result": (lambda x: torch.equal(x, x), False),
    "an optional tensor": (lambda x: torch.nn.functional.layer_norm(x, (4,), torch.ones(4, device=x.device)), True),
    "strided operand": (lambda x: torch.cumprod(x.t()[1:3], 0), True),
    "number operand": (lambda x: torch.fmod(x, 3), True),
    "empty operand": (lambda x: torch.cumsum(x[:0], 0), True),
    "empty result": (lambda x: x.nonzero()[:0], True),
    "result of unknown size": (lambda x: torch.unique(x), True),
    "decomposition": (lambda x: torch.linalg.svdvals(x), True),
    "integer result": (lambda x: torch.bincount(x.int().flatten()), True),
    "complex": (lambda x: torch.fft.fft(x), True),
}


@pytest.mark.parametrize("run, on_device", CASES.values(), ids=CASES.keys())
def test_the_result_is_the_cpus_and_lies_on_the_device(device, run, on_device):
    x = torch.arange(12.0).view(3, 4).fmod(7)
    ours, theirs = run(x.to(device)), run(x)
    if not on_device:
        assert ours == theirs
        return
    for mine, other in zip([ours] if isinstance(ours, torch.Tensor) else ours, [theirs] if isinstance(theirs, torch.Tensor) else theirs):  # fmt: skip
        assert mine.device.type == device
        assert mine.shape == other.shape and mine.stride() == other.stride() and mine.dtype == other.dtype
        torch.testing.assert_close(mine.cpu(), other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("setting", "copied"), [("0", False), ("1", True)], ids=["host-accessible", "not host-accessible"])
def test_on_host_accessible_memory_nothing_is_copied(run_python, setting, copied):
    script = """
        import torch
        x = torch.rand(100, device="fake")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.PrivateUse1]) as profile:
            y = torch.fft.fft(x)
            torch.accelerator.synchronize()
        print(y.device.type, any("Memcpy" in event.name for event in profile.events()))
    """
    assert run_python(script, TORCH_BACKEND="fake", HAL_FAKE_PROTECT=setting).stdout.split()[-2:] == ["fake", str(copied)]


def test_in_place_changes_the_tensor_itself(device):
    x = torch.tensor([3.0, 1.0, 2.0], device=device)
    address = x.data_ptr()
    y = x.cumsum_(0)
    assert y is x and x.data_ptr() == address and x.tolist() == [3, 4, 6]


def test_out_is_resized_and_returned(device):
    out = torch.empty(0, device=device)
    result = torch.cumsum(torch.ones(2, 3, device=device), 1, out=out)
    assert result is out and out.shape == (2, 3) and out.tolist() == [[1, 2, 3]] * 2
    values, indices = torch.empty(0, device=device), torch.empty(0, dtype=torch.int64, device=device)
    torch.sort(torch.tensor([2.0, 1.0], device=device), out=(values, indices))
    assert values.tolist() == [1, 2] and indices.tolist() == [1, 0]


def test_a_large_enough_out_keeps_its_memory(device):
    out = torch.empty(10, device=device)
    address = out.data_ptr()
    torch.cumsum(torch.ones(10, device=device), 0, out=out)
    assert out.data_ptr() == address and out[-1].item() == 10


def test_results_can_be_resized_and_freed_like_any_tensor(device):
    x = torch.cumsum(torch.ones(5, device=device), 0)
    x.resize_(50)
    assert x[:5].tolist() == [1, 2, 3, 4, 5]
    y = torch.cumsum(torch.ones(5, device=device), 0)
    y.untyped_storage().resize_(0)
    assert y.untyped_storage().nbytes() == 0


def test_the_same_tensor_twice_and_overlapping_views(device):
    x = torch.arange(6.0, device=device)
    torch.cumsum(x, 0, out=x)
    assert x.tolist() == [0, 1, 3, 6, 10, 15]
    torch._foreach_lerp_([x[:3], x[3:]], [x[:3].clone(), torch.zeros(3, device=device)], 1.0)
    assert x.tolist() == [0, 1, 3, 0, 0, 0]


def test_results_survive_their_operands(device):
    x = torch.arange(1000.0, device=device)
    y = torch.cumsum(x, 0)
    view = torch.ops.aten.alias(y)
    del x, y
    torch.zeros(1000, device=device)
    assert view[-1].item() == 499500


def test_queued_work_is_finished_before_the_cpu_reads(device):
    x = torch.zeros(300_000, device=device)
    for _ in range(30):
        x = x + 1
    assert torch.cumsum(x, 0)[-1].item() == 30 * 300_000


def test_work_of_a_side_stream_is_finished_before_the_cpu_reads(device, module):
    stream = module.Stream()
    x = torch.zeros(300_000, device=device)
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        for _ in range(30):
            x += 1
        assert torch.cumsum(x, 0)[-1].item() == 30 * 300_000


def test_gradients_flow_through_the_fallback(device):
    x = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    (torch.cumsum(x, 0) * torch.tensor([1.0, 2.0, 3.0], device=device)).sum().backward()
    assert x.grad.device.type == device and x.grad.tolist() == [6, 5, 3]


def test_inference_mode(device):
    with torch.inference_mode():
        y = torch.cumsum(torch.ones(3, device=device), 0)
    assert y.is_inference() and y.tolist() == [1, 2, 3]


def test_results_count_in_the_memory_statistics(device, module):
    x = torch.ones(1_000_000, device=device)
    module.synchronize()
    before = torch.accelerator.memory_allocated()
    y = torch.cumsum(x, 0)
    assert torch.accelerator.memory_allocated() - before >= 4_000_000
    del y
    module.synchronize()
    assert torch.accelerator.memory_allocated() == before


FULL = """
import torch
import torch_backend
x = torch.ones(256, device="fake")  # a segment of 2 MiB for small blocks
rest = torch.empty(512 * 1024, device="fake")  # the other 2 MiB
out = torch.empty(0, device="fake")
for _ in range(100):
    y, z = torch.cumsum(x, 0), torch.cumsum(x, 0, out=out)
assert sum(row.count for row in torch_backend.fallback.report()) == 200
print(y[-1].item(), z[-1].item())
try:
    torch.cumsum(rest, 0)
except torch.OutOfMemoryError as error:
    print(error)
"""


def test_a_full_device_serves_small_fallbacks_from_its_cache(run_python):
    done = run_python(FULL, TORCH_BACKEND="fake", HAL_FAKE_MEMORY="4M", **without_kernels.SETTING)
    numbers, message = done.stdout.splitlines()
    assert numbers == "256.0 256.0"
    assert message.startswith("FAKE out of memory. Tried to allocate 2.00 MiB on device fake:0;") and "hal_" not in message


def test_a_result_whose_conjugate_bit_the_kernel_flips(device):
    torch.manual_seed(0)
    a, b = torch.randn(3, 3, dtype=torch.complex64), torch.randn(2, 3, dtype=torch.complex64)
    lu, pivots = torch.linalg.lu_factor(a)
    expected = torch.linalg.lu_solve(lu, pivots, b, left=False)
    assert expected.is_conj()  # otherwise this test would check nothing
    ours = torch.linalg.lu_solve(lu.to(device), pivots.to(device), b.to(device), left=False)
    torch.testing.assert_close(ours.cpu().resolve_conj(), expected.resolve_conj())


def test_the_gradient_of_a_sparse_product_that_keeps_its_arguments(device):
    x = torch.eye(4).to_sparse_csr()
    y = torch.randn(4, 3)
    grads = []
    for place in ("cpu", device):
        a, b = x.detach().to(place).requires_grad_(), y.detach().to(place).requires_grad_()
        torch.sparse.mm(a, b, "amax").sum().backward()
        grads.append((a.grad.to_dense().cpu(), b.grad.cpu()))
    torch.testing.assert_close(grads[0], grads[1])


def test_empty_results_with_stride_zero(device):
    x = torch.ones(1, 0, 1, device=device).expand(1, 0, 3)
    assert x.clone().add_(x).shape == (1, 0, 3)
    y = torch.randn(1, 0, 3, device=device, requires_grad=True)
    (y - y.tanh()).sum().backward()
    assert y.grad.shape == (1, 0, 3)


# ---- devices ----
def test_tensors_of_two_devices_are_refused(device):
    x, y = torch.ones(3, device=f"{device}:0"), torch.ones(3, device=f"{device}:1")
    with pytest.raises(RuntimeError, match=f"Expected all tensors to be on the same device.*{device}:0 and {device}:1"):
        torch.fmod(x, y)
    with pytest.raises(RuntimeError, match=f"Expected all tensors to be on the same device.*{device}:0 and cpu"):
        torch.fmod(x, torch.ones(3))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.cat([x, torch.ones(3)])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.fmod(x, 2, out=torch.empty(3))


def test_a_number_may_lie_on_the_host(device):
    x = torch.tensor([5.0, 7.0], device=device)
    assert torch.fmod(x, torch.tensor(4.0)).tolist() == [1, 3]


def test_indices_may_lie_on_the_host(device):
    x = torch.arange(5.0, device=device)
    assert x[torch.tensor([4, 0])].tolist() == [4, 0]
    assert x[torch.tensor([True, False, True, False, False])].tolist() == [0, 2]
    x[torch.tensor([1, 2])] = 9
    assert x.tolist() == [0, 9, 9, 3, 4]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device|indices should be"):
        torch.arange(5.0)[torch.tensor([4, 0], device=device)]


def test_the_second_device(device):
    y = torch.cumsum(torch.ones(3, device=f"{device}:1"), 0)
    assert y.device.index == 1 and y.tolist() == [1, 2, 3]
    assert torch.randperm(5, device=f"{device}:1").device.index == 1
    with pytest.raises(RuntimeError, match=r":9\b.* 2 devices"):
        torch.randperm(5, device=f"{device}:9")


# ---- kinds of tensors ----
def test_sparse_tensors(device):
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for convert in (lambda x: x.to_sparse(), lambda x: x.to_sparse_csr()):
        sparse = convert(dense.to(device))
        assert sparse.device.type == device
        assert sparse.to_dense().cpu().equal(dense)
        assert torch.mm(sparse, torch.ones(2, 2, device=device)).cpu().equal(dense @ torch.ones(2, 2))
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0]), device=device)
    assert coo.coalesce().to_dense().cpu().equal(dense)
    assert (coo + coo).to_dense().cpu().equal(2 * dense)


def test_wrapped_numbers_do_not_promote(device):
    x = torch.ones(2, dtype=torch.float16, device=device)
    assert torch.fmod(x, 2.5).dtype == torch.float16
    assert torch.remainder(x, 2.5).dtype == torch.float16


def test_quantized_tensors_raise(device):
    x = torch.ones(4, device=device)
    with pytest.raises(NotImplementedError):
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


def test_an_operator_without_any_kernel_raises_an_error(device):
    library = torch.library.Library("torch_backend_test", "DEF")
    library.define("nowhere(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="torch_backend_test::nowhere.*no kernel"):
        torch.ops.torch_backend_test.nowhere(torch.ones(2, device=device))


def test_custom_cpu_operators_serve_the_device(device):
    kept = []

    @torch.library.custom_op("torch_backend_test::keep", mutates_args=(), device_types="cpu")
    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)  # a kernel that keeps a reference to its operand
        return x + 1

    x = torch.arange(4.0, device=device)
    assert keep(x).tolist() == [1, 2, 3, 4]
    del x
    torch.zeros(4, device=device)  # would reuse the memory if it were free
    assert kept[0].tolist() == [0, 1, 2, 3]


def test_one_call_leaves_nothing_to_the_next(device):
    seen, views = [], []

    @torch.library.custom_op("torch_backend_test::leave", mutates_args=(), device_types="cpu")
    def leave(x: torch.Tensor) -> torch.Tensor:
        seen.append((getattr(x, "mark", None), x.is_conj(), x.dtype, tuple(x.shape), x.stride(), x.storage_offset()))
        x.mark = "left by an earlier call"
        views.append(x.view(-1)[:2] if x.is_contiguous() else None)
        return x.clone()

    operands = [torch.arange(6.0).view(2, 3), torch.ones(3, dtype=torch.complex64).conj(), torch.arange(4), torch.arange(6.0).view(2, 3).t(),
                torch.arange(9.0)[3:], torch.tensor(True), torch.empty(0, 2), torch.arange(5, dtype=torch.float64)]  # fmt: skip
    for x in operands * 3:
        torch.cumsum(x.to(device).float() if not x.is_complex() else torch.ones(2, device=device), 0)
        given = x.to(device)
        seen.clear()
        assert leave(given).cpu().resolve_conj().equal(x)
        layout = (given.is_conj(), given.dtype, tuple(given.shape), given.stride(), given.storage_offset())
        assert seen == [(None, *layout)]
    del given
    torch.full((1000,), -1.0, device=device)  # would reuse the memory that the kernels keep if it were free
    for x, view in zip(operands * 3, views):
        assert view is None or view.resolve_conj().equal(x.reshape(-1)[:2])


def test_errors_of_the_cpu_kernel_come_through(device):
    with pytest.raises(RuntimeError, match="singular|not positive-definite"):
        torch.linalg.cholesky(-torch.eye(3, device=device))
    with pytest.raises(IndexError):
        torch.cumsum(torch.ones(3, device=device), 5)
    assert torch.cumsum(torch.ones(3, device=device), 0).tolist() == [1, 2, 3]


# ---- per-operator fallback counters ----
def test_every_use_is_counted_by_name(device):
    x = torch.ones(3, device=device)
    for _ in range(3):
        torch.cumsum(x, 0)
    torch.sort(x)
    assert sum(count for name, count in counts().items() if name.startswith("aten::cumsum")) == 3
    assert sum(count for name, count in counts().items() if name.startswith("aten::sort")) == 1
    torch_backend.fallback.reset()
    assert torch_backend.fallback.report() == []


def test_kernels_are_off_for_the_scope_only_and_unknown_names_are_refused(device):
    x = torch.arange(4.0, device=device)
    assert x.exp().tolist() == x.cpu().exp().tolist() and not counts()
    with torch_backend.fallback.force("exp"):
        torch.testing.assert_close(x.exp().cpu(), x.cpu().exp(), rtol=0, atol=0)
        assert [row.count for row in torch_backend.fallback.report()] == [1]
    torch_backend.fallback.reset()
    x.exp()
    assert not counts()
    with pytest.raises(ValueError, match="unknown operator nonsense"):
        torch_backend.fallback.force("nonsense")


def test_a_setting_switches_kernels_off_from_the_start(run_python):
    code = """
import torch, torch_backend
x = torch.arange(4.0, device="fake")
x.exp(), x.sum(), x.log()
print([row.op for row in torch_backend.fallback.report()])
"""
    assert run_python(code, TORCH_BACKEND="fake").stdout == "[]\n"
    one = run_python(code, TORCH_BACKEND="fake", HAL_DISABLE_OPS="exp,sum").stdout
    assert "exp" in one and "sum" in one and "log" not in one
    assert "log" in run_python(code, TORCH_BACKEND="fake", HAL_DISABLE_OPS="*").stdout


def test_strict_mode_raises_and_names_the_operator_and_the_cure(device):
    x = torch.ones(3, device=device)
    with torch_backend.fallback.strict():
        with pytest.raises(NotImplementedError, match=r"aten::cumprod.*fallback\.strict\(False\)"):
            torch.cumprod(x, 0)
        assert torch_backend.fallback.is_strict()
    assert not torch_backend.fallback.is_strict()
    assert torch.cumprod(x, 0).tolist() == [1, 1, 1]


def test_counting_is_right_with_many_threads(device):
    def work():
        x = torch.ones(3, dtype=torch.complex64, device=device)
        for _ in range(200):
            torch.cumprod(x, 0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts().values()) == 800


def test_memory_does_not_grow(device, module):
    x = torch.ones(10_000, device=device)
    torch.cumsum(x, 0)
    module.synchronize()
    before = torch.accelerator.memory_allocated()
    for _ in range(500):
        torch.sort(x)
        torch.cumsum(x, 0, out=torch.empty(0, device=device))
    module.synchronize()
    torch.cumsum(x, 0)
    assert torch.accelerator.memory_allocated() == before
