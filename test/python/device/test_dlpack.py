"""Tensors cross DLPack without a copy, in both directions, under the device's own name."""

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int64,
                                   torch.bool, torch.complex64])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
def test_values_and_memory_stay(device, dtype, shape):
    x = torch.testing.make_tensor(shape, dtype=dtype, device="cpu").to(device)
    y = torch.from_dlpack(x)
    assert y.device == x.device and y.dtype is dtype and y.shape == x.shape
    assert y.data_ptr() == x.data_ptr()
    assert torch.equal(y.cpu(), x.cpu())


def test_strides_and_offsets_stay(device):
    x = torch.arange(24.0, device=device).view(4, 6)[1:, ::2].t()
    y = torch.from_dlpack(x)
    assert y.stride() == x.stride() and y.data_ptr() == x.data_ptr()
    y.zero_()
    assert x.sum().item() == 0


def test_the_device_index_stays(device):
    y = torch.from_dlpack(torch.ones(2, device=f"{device}:1"))
    assert y.device == torch.device(device, 1)


def test_the_memory_outlives_the_tensor_it_came_from(device):
    x = torch.arange(1000.0, device=device)
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    del x
    torch.zeros(1000, device=device)
    assert y.sum().item() == 499500


def test_another_device_on_request(device):
    x = torch.arange(3.0, device=device)
    y = torch.from_dlpack(x, device="cpu")
    assert y.device.type == "cpu" and y.tolist() == [0, 1, 2]


def test_a_copy_on_request(device):
    x = torch.arange(3.0, device=device)
    y = torch.from_dlpack(x, copy=True)
    y.zero_()
    assert x.tolist() == [0, 1, 2]


def test_the_type_is_an_extension_device(device):
    kind, index = torch.ones(1, device=f"{device}:1").__dlpack_device__()
    assert (int(kind), index) == (12, 1)  # kDLExtDev of dlpack.h


def test_tensors_that_lose_something_are_refused(device):
    with pytest.raises(BufferError, match="require gradient"):
        torch.from_dlpack(torch.ones(2, device=device, requires_grad=True))
    with pytest.raises(BufferError, match="conjugate"):
        torch.from_dlpack(torch.ones(2, dtype=torch.complex64, device=device).conj())


def test_cpu_tensors_go_as_before():
    x = torch.arange(3.0)
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr()
