"""New tensors on the device: the documented behavior of PyTorch's factories for all devices."""

import pytest
import torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
          torch.int64, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32,
          torch.float8_e4m3fn]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_has_the_requested_dtype_and_shape(device, dtype):
    x = torch.empty(2, 3, 4, dtype=dtype, device=device)
    assert (x.dtype, tuple(x.shape), x.stride(), x.device.type) == (dtype, (2, 3, 4), (12, 4, 1), device)


@pytest.mark.parametrize("size", [(), (0,), (3, 0, 2), (1,), (5, 1, 7)])
def test_sizes_of_all_kinds(device, size):
    x = torch.ones(size, device=device)
    assert x.cpu().equal(torch.ones(size))
    assert x.numel() == torch.ones(size).numel()


def test_memory_formats_have_the_strides_of_the_cpu(device):
    for format in (torch.contiguous_format, torch.channels_last):
        x = torch.empty(2, 3, 4, 5, device=device, memory_format=format)
        assert x.stride() == torch.empty(2, 3, 4, 5, memory_format=format).stride()
    volume = torch.empty(2, 3, 4, 5, 6, device=device, memory_format=torch.channels_last_3d)
    assert volume.is_contiguous(memory_format=torch.channels_last_3d)


def test_empty_strided_keeps_the_strides(device):
    x = torch.empty_strided((3, 4), (1, 3), device=device)
    assert x.stride() == (1, 3)
    assert x.untyped_storage().nbytes() == 12 * 4


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: torch.zeros(3, 4, **k),
        lambda **k: torch.ones(5, dtype=torch.int64, **k),
        lambda **k: torch.full((2, 2), 7.5, **k),
        lambda **k: torch.arange(0, 10, 3, **k),
        lambda **k: torch.arange(0.0, 1.0, 0.125, **k),
        lambda **k: torch.linspace(-1, 1, 9, **k),
        lambda **k: torch.eye(4, 3, **k),
        lambda **k: torch.tensor([[1.0, 2.0], [3.0, 4.0]], **k),
        lambda **k: torch.tril_indices(4, 4, **k),
        lambda **k: torch.hann_window(16, **k),
        lambda **k: torch.complex(torch.ones(2, **k), torch.zeros(2, **k)),
    ],
)
def test_factories_have_the_values_of_the_cpu(device, make):
    ours, theirs = make(device=device), make(device="cpu")
    assert ours.device.type == device
    torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("length, periodic, beta", [(0, True, 12.0), (1, False, 3.0), (2, False, 12.0), (33, True, 12.0), (64, False, 0.0)])
def test_kaiser_window(device, dtype, length, periodic, beta):
    ours = torch.kaiser_window(length, periodic, beta, dtype=dtype, device=device)
    assert ours.device.type == device and ours.dtype == dtype
    torch.testing.assert_close(ours.cpu(), torch.kaiser_window(length, periodic, beta, dtype=dtype), rtol=1e-5, atol=1e-6)


def test_like_factories_stay_on_the_device(device):
    x = torch.ones(2, 3, device=f"{device}:1", dtype=torch.float64)
    for y in (torch.zeros_like(x), torch.empty_like(x), x.new_zeros(2), x.new_tensor([1.0]), x.new_full((2,), 3.0)):
        assert y.device == x.device and y.dtype == torch.float64


def test_device_without_index_means_the_current_device(device, module):
    with module.device(1):
        assert torch.empty(3, device=device).device.index == 1
    assert torch.empty(3, device=device).device.index == 0


@pytest.mark.parametrize("make", [torch.empty, torch.zeros, torch.randn])
def test_an_index_out_of_range_names_the_index_and_the_count(device, make):
    with pytest.raises(RuntimeError, match=r":7\b.* 2 devices"):
        make(3, device=f"{device}:7")
    with pytest.raises(RuntimeError, match=r":7\b.* 2 devices"):
        make(0, device=f"{device}:7")
    assert make(3, device=device).shape == (3,)  # and the process continues


def test_moving_to_an_index_out_of_range_raises(device):
    with pytest.raises(RuntimeError, match=r":5\b.* 2 devices"):
        torch.ones(3).to(f"{device}:5")


def test_negative_sizes_are_refused(device):
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.empty(-1, device=device)


def test_device_memory_cannot_be_pinned(device):
    with pytest.raises(RuntimeError, match="[Oo]nly dense CPU tensors can be pinned"):
        torch.empty(3, device=device, pin_memory=True)


def test_uninitialised_memory_is_filled_under_deterministic_algorithms(device):
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.empty(10, device=device)
        n = torch.empty(10, dtype=torch.int32, device=device)
    finally:
        torch.use_deterministic_algorithms(False)
    assert x.isnan().all()
    assert (n == torch.iinfo(torch.int32).max).all()


def test_zero_tensors_carry_no_memory_and_act_as_zeros(device):
    z = torch._efficientzerotensor((2, 3), device=device)
    assert z._is_zerotensor() and z.device.type == device
    x = torch.ones(2, 3, device=device)
    assert (x + z).cpu().equal(torch.ones(2, 3))
    assert z.cpu().equal(torch.zeros(2, 3))
    assert x.copy_(z).cpu().equal(torch.zeros(2, 3))
    assert z.sgn().cpu().equal(torch.zeros(2, 3))


def test_an_impossible_size_raises_out_of_memory_and_the_process_continues(device):
    with pytest.raises((torch.OutOfMemoryError, RuntimeError)):
        torch.empty(2**55, device=device)
    with pytest.raises(RuntimeError):
        torch.empty(2**62, 2**62, device=device)
    assert torch.ones(2, device=device).sum().item() == 2
