"""NumPy and tensors of the device: users must call .cpu(), and each error names it."""

import numpy
import pytest
import torch

SENTENCE = "can't convert {}:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."  # torch's own
WAYS = {
    "numpy": lambda x: x.numpy(),
    "numpy of one that requires a gradient": lambda x: x.clone().requires_grad_().numpy(),
    "array": lambda x: numpy.array(x),
    "asarray": lambda x: numpy.asarray(x),
    "array of a dtype": lambda x: numpy.asarray(x, dtype=numpy.float64),
    "array of a list": lambda x: numpy.array([x, x]),
    "a universal function": lambda x: numpy.add(x, 1),
    "tensor + array": lambda x: x + numpy.ones(3),
    "__array__": lambda x: x.__array__(),
}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_conversions_that_need_host_memory_name_cpu(device, way):
    with pytest.raises(TypeError) as caught:
        way(torch.ones(3, device=device))
    assert str(caught.value) == SENTENCE.format(device)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[:, 1], lambda x: x.conj(), lambda x: x.imag,
                                  lambda x: x.conj().imag, lambda x: x[0].expand(4, 3), lambda x: x[:0]])  # fmt: skip
def test_force_returns_a_copy_of_every_view(device, view):
    source = torch.randn(4, 3, dtype=torch.complex64)
    there = source.to(device).requires_grad_()
    array = view(there).numpy(force=True)
    numpy.testing.assert_array_equal(array, view(source).resolve_conj().resolve_neg().numpy())
    array[...] = 0
    assert torch.equal(there.detach().cpu(), source)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
                                   "uint64", "bool", "complex64", "complex128"])  # fmt: skip
def test_arrays_of_every_dtype_go_there_and_back(device, dtype):
    array = numpy.array([0, 1, 1, 0]).astype(dtype)
    for there in (torch.from_numpy(array).to(device), torch.tensor(array, device=device), torch.as_tensor(array, device=device),
                  torch.asarray(array, device=device)):  # fmt: skip
        assert there.device.type == device and there.dtype is getattr(torch, dtype)
        back = there.cpu().numpy()
        assert back.dtype == array.dtype and numpy.array_equal(back, array)
    there.zero_()
    assert array.any()  # a copy, never the array's memory


def test_scalars_need_no_copy_by_hand(device):
    x = torch.tensor([1.5, 2.0], device=device)
    assert (float(x[0]), int(x[1]), bool(x[0]), complex(x[0]), f"{x[0]:.2f}") == (1.5, 2, True, 1.5 + 0j, "1.50")
    assert "abc"[torch.tensor(1, device=device)] == "b"  # __index__
    for value in (numpy.float32(2) * x, x * numpy.float64(2)):
        assert value.device.type == device and value.tolist() == [3, 4]
    assert numpy.isclose(x[0].item(), 1.5)
