"""Copies between host, device and devices: exact for each dtype, layout and size, with PyTorch's errors."""

import itertools

import pytest
import torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
          torch.int64, torch.bool, torch.complex64, torch.complex128, torch.complex32, torch.uint16, torch.uint32, torch.uint64,
          torch.float8_e5m2]  # fmt: skip
CONVERTIBLE = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
               torch.int64, torch.bool, torch.complex64, torch.complex128]  # fmt: skip
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "sliced": lambda x: x[:, 1:, ::2],
    "expanded": lambda x: x[:, :1].expand_as(x),
    "empty": lambda x: x[:0],
    "number": lambda x: x[1, 2, 3],
}


def sample(dtype):
    torch.manual_seed(1)
    x = torch.randint(0, 100, (3, 4, 6)).to(torch.float64) / 4
    if dtype.is_complex:
        return torch.complex(x, x.flip(0) + 1).to(dtype)
    return x.to(dtype) if dtype is not torch.bool else x > 10


def bits(x):
    """Compares the stored bytes, also for dtypes without comparison operators."""
    x = x.contiguous()
    return torch.view_as_real(x) if x.is_complex() else x.view(torch.uint8) if x.dim() else x.reshape(1).view(torch.uint8)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip_is_exact(device, dtype, layout):
    x = sample(dtype)
    there = layout(x).to(device)
    assert there.shape == layout(x).shape and there.dtype == dtype
    assert bits(there.cpu()).equal(bits(layout(x)))
    strided = layout(x.to(device))  # the same layout created on the device
    assert bits(strided.cpu()).equal(bits(layout(x)))
    assert bits(strided.clone().cpu()).equal(bits(layout(x)))
    assert bits(strided.contiguous().cpu()).equal(bits(layout(x)))


@pytest.mark.parametrize("target", CONVERTIBLE, ids=str)
@pytest.mark.parametrize("source", CONVERTIBLE, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_conversion_has_the_values_of_the_cpu(device, source, target):
    x = sample(source)
    expected = x.to(target)
    on_device = x.to(device)
    assert on_device.to(target).cpu().equal(expected)  # on the device
    assert x.to(device, target).cpu().equal(expected)  # while uploading
    assert torch.empty_like(expected).copy_(on_device).equal(expected)  # while downloading
    assert on_device.transpose(0, 1).to(target).cpu().equal(expected.transpose(0, 1))
    assert on_device.to(f"{device}:1", target).cpu().equal(expected)  # across devices


@pytest.mark.parametrize("source", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("target", ["host", "device", "other"])
def test_copies_into_strided_destinations(device, source, target):
    place = {"host": "cpu", "device": device, "other": f"{device}:1"}[target]
    x = sample(torch.float32)
    values = source(x)
    for dtype in (torch.float32, torch.float64):
        base = torch.zeros([2 * n for n in values.shape] or [2], dtype=dtype)
        window = tuple(slice(0, n) for n in values.shape) if values.dim() else 0
        expected = base.clone()
        expected[window].copy_(values)
        for origin in ("cpu", device):
            result = base.to(place)
            result[window].copy_(source(x.to(origin)))
            assert result.cpu().equal(expected), origin


def test_a_source_broadcasts_to_the_destination(device):
    row = torch.arange(3.0)
    for origin, target in itertools.product(("cpu", device, f"{device}:1"), repeat=2):
        x = torch.zeros(4, 3, device=target)
        x.copy_(row.to(origin))
        assert x.cpu().equal(row.expand(4, 3))
        x[:, 1:].copy_(torch.tensor(5, device=origin))
        assert x.cpu().equal(torch.tensor([0.0, 5.0, 5.0]).expand(4, 3))


@pytest.mark.parametrize("origin", ["cpu", "device"])
def test_shapes_that_do_not_broadcast_raise_in_torchs_words(device, origin):
    x = torch.zeros(4, 3, device=device)
    place = device if origin == "device" else "cpu"
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(3\) must match the size of tensor b \(2\)"):
        x.copy_(torch.ones(2, device=place))
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        x[:1].copy_(torch.ones(4, 3, device=place))


def test_copying_a_tensor_to_itself_changes_nothing(device):
    x = torch.arange(6.0, device=device)
    x.copy_(x)
    x.copy_(x.view(6))
    assert x.cpu().equal(torch.arange(6.0))


def test_overlapping_operands_are_refused_as_on_the_cpu(device):
    for place in ("cpu", device):
        x = torch.arange(6.0, device=place)
        with pytest.raises(RuntimeError, match="unsupported operation"):
            x[1:].copy_(x[:-1])
        with pytest.raises(RuntimeError, match="unsupported operation"):
            torch.zeros(1, device=place).expand(3).copy_(torch.ones(3, device=place))


@pytest.mark.parametrize("count", [1, 1000, 16384, 16385, 1_000_000])
def test_the_host_may_reuse_its_memory_after_an_upload(device, count):
    x = torch.ones(count)
    y = x.to(device)
    x.fill_(2)
    z = x.to(device, non_blocking=True)  # pageable memory: the call must have read it when it returns
    x.fill_(3)
    assert y.cpu().eq(1).all() and z.cpu().eq(2).all()


def test_downloads_wait_for_queued_work(device):
    x = torch.ones(200_000, device=device)
    for _ in range(50):
        x = x + 1
    assert x.cpu().eq(51).all()
    assert torch.empty(200_000).copy_(x, non_blocking=True).eq(51).all()  # pageable memory
    assert x[7].item() == 51


def test_copies_across_devices_are_ordered_with_both_streams(device):
    x = torch.zeros(100_000, device=f"{device}:0")
    results = []
    for i in range(20):
        x += 1
        results.append(x.to(f"{device}:1"))  # x is overwritten right after
    x.zero_()
    for i, result in enumerate(results):
        assert result.device.index == 1
        assert result.cpu().eq(i + 1).all()


def test_copies_on_another_stream(device, module):
    stream = module.Stream()
    x = torch.full((50_000,), 3.0, device=device)
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        y = x.cpu()
        z = torch.empty_like(x).copy_(x)
    module.current_stream().wait_stream(stream)
    assert y.eq(3).all() and z.cpu().eq(3).all()


@pytest.mark.parametrize("value", [3, -7, True, 2.5, float("inf"), 1 + 2j])
def test_item_returns_the_python_number(device, value):
    x = torch.tensor(value, device=device)
    assert x.item() == value and type(x.item()) is type(value)
    assert torch.tensor([value, value], device=device).tolist() == [value, value]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_item_of_every_dtype(device, dtype):
    x = sample(dtype)
    assert x.to(device)[2, 3, 5].item() == x[2, 3, 5].item()


def test_item_of_many_elements_raises(device):
    with pytest.raises(RuntimeError, match="a Tensor with 2 elements cannot be converted to Scalar"):
        torch.zeros(2, device=device).item()


def test_copy_from_and_resize_takes_the_size_of_the_source(device):
    target = torch.empty(0)
    torch.ops.aten._copy_from_and_resize(torch.arange(4.0, device=device), target)
    assert target.equal(torch.arange(4.0))


def test_numpy_and_tensor_constructors(device):
    import numpy

    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    x = torch.from_numpy(array).to(device)
    assert (x.cpu().numpy() == array).all()
    with pytest.raises(TypeError):
        x.numpy()


def test_copies_of_meta_tensors_are_refused(device):
    with pytest.raises(NotImplementedError):
        torch.empty(3, device="meta").to(device)


def test_copies_are_native(device):
    import torch_backend

    torch_backend.fallback.reset()
    with torch_backend.fallback.strict():
        for dtype in DTYPES:
            x = sample(dtype).to(device)
            x.transpose(0, 2).clone()
            x[:, 1:].cpu()
            x.to(f"{device}:1")
    assert torch_backend.fallback.report() == []
