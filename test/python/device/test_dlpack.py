"""Tensors are exchanged by DLPack without a copy, in both directions, with the device's own name."""

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


# ---- subclasses, and the order of streams ----
class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize("wrap", [lambda x: torch.nn.Parameter(x, requires_grad=False), torch.nn.Buffer, lambda x: x.as_subclass(Subclass)])
def test_subclasses_go_as_tensors_do(device, wrap):
    x = wrap(torch.arange(3.0, device=f"{device}:1"))
    kind, index = x.__dlpack_device__()
    assert (int(kind), index) == (12, 1)
    y = torch.from_dlpack(x)
    assert y.data_ptr() == x.data_ptr() and y.tolist() == [0, 1, 2]


@pytest.mark.parametrize("default", [True, False])
def test_the_receivers_stream_waits_for_the_current_one(device, default):
    module = getattr(torch, device)
    x = torch.zeros(3, device=device)
    receiver = None if default else module.Stream()
    sender = module.Stream()
    sender.wait_stream(module.default_stream())
    with module.stream(sender):
        module._sleep(50_000_000)
        x.fill_(7)
        x.__dlpack__(stream=receiver.native_handle if receiver else None)
    with module.stream(receiver or module.default_stream()):
        assert x.clone().tolist() == [7, 7, 7]


def test_invalid_streams_are_refused(device):
    x = torch.ones(3, device=device)
    with pytest.raises(NotImplementedError, match="no stream with the native handle 0x4d"):
        x.__dlpack__(stream=77)
    with pytest.raises(TypeError, match="expected a stream as an int or None, got str"):
        x.__dlpack__(stream="77")
    assert x.__dlpack__(stream=-1) is not None
