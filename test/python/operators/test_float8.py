"""float8 on the device: conversions have the codes of CPU torch and run on the device's kernels, and work that only
moves elements needs no conversion."""

import pytest
import torch
import torch_backend
import torch_backend.lazy
from native_reference import strict

FORMATS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
FLOATS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
OTHERS = [torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64]


@pytest.fixture(params=FORMATS, ids=str)
def format(request):
    return request.param


def every_code(format):
    return torch.arange(256, dtype=torch.uint8).view(format)


def numbers(dtype):
    """Returns each float16 or bfloat16, or float32: those between all codes, their neighbors, and random bits."""
    if dtype != torch.float32:
        return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    codes = torch.cat([every_code(each).to(torch.float64) for each in FORMATS])
    codes = codes[codes.isfinite()].unique()
    middles = torch.cat([codes, (codes[1:] + codes[:-1]) / 2, codes * 2]).to(torch.float32)
    bits = torch.cat([middles.view(torch.int32) + step for step in (-2, -1, 0, 1, 2)])
    return torch.cat([bits, torch.randint(-(1 << 31), 1 << 31, (200000,)).to(torch.int32)]).view(torch.float32)


def assert_same_codes(ours, theirs):
    """All codes are equal; each NaN counts as the same."""
    ours, format = ours.cpu(), theirs.dtype
    assert ours.dtype == format
    same = ours.view(torch.uint8) == theirs.view(torch.uint8)
    both_nan = ours.to(torch.float32).isnan() & theirs.to(torch.float32).isnan()
    assert (same | both_nan).all(), (ours.view(torch.uint8)[~same], theirs.view(torch.uint8)[~same])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_decoding_each_code(device, format, dtype):
    with strict():
        ours = every_code(format).to(device).to(dtype)
    theirs = every_code(format).to(dtype)
    same = ours.cpu().view(FLOATS[dtype]) == theirs.view(FLOATS[dtype])
    assert (same | (ours.cpu().isnan() & theirs.isnan())).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_encoding_each_number(device, format, dtype):
    operand = numbers(dtype)
    with strict():
        ours = operand.to(device).to(format)
    assert_same_codes(ours, operand.to(format))


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_other_dtypes_are_converted_through_float32(device, format, dtype):
    finite = every_code(format)[every_code(format).to(torch.float32).abs() < 100]
    operand = torch.arange(-120, 121).to(dtype) if dtype != torch.float64 else torch.randn(1000, dtype=dtype) * 300
    with strict():
        decoded, encoded = finite.to(device).to(dtype), operand.to(device).to(format)
    torch.testing.assert_close(decoded.cpu(), finite.to(dtype), rtol=0, atol=0)
    assert_same_codes(encoded, operand.real.to(format))


@pytest.mark.parametrize("other", FORMATS, ids=str)
def test_between_the_formats(device, format, other):
    with strict():
        ours = every_code(format).to(device).to(other)
    assert_same_codes(ours, every_code(format).to(torch.float32).to(other))


def test_layouts(device, format):
    """Transposed, expanded and sliced operands and results."""
    codes, floats = every_code(format).reshape(16, 16), torch.randn(6, 40, 16)
    with strict():
        moved = codes.to(device)
        for view in (lambda x: x.t(), lambda x: x[::2, 1:], lambda x: x[3:4].expand(5, 16), lambda x: x[0, 0]):
            torch.testing.assert_close(view(moved).to(torch.bfloat16).cpu(), view(codes).to(torch.bfloat16), rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(view(moved).double().cpu(), view(codes).double(), rtol=0, atol=0, equal_nan=True)
        result, expected = torch.zeros(40, 6, 32, dtype=format, device=device), torch.zeros(40, 6, 32, dtype=format)
        result[:, :, ::2] = floats.to(device).transpose(0, 1)
        expected[:, :, ::2] = floats.transpose(0, 1)
    assert_same_codes(result, expected)


def test_work_that_moves_elements(device, format):
    codes, order = every_code(format).reshape(32, 8), torch.randperm(32)
    with strict():
        x, at = codes.to(device), order.to(device)
        for ours, theirs in [
            (x[at], codes[order]),
            (torch.cat([x, x], 1), torch.cat([codes, codes], 1)),
            (x.t().contiguous(), codes.t().contiguous()),
            (torch.where(at[:, None] > 9, x, x[at]), torch.where(order[:, None] > 9, codes, codes[order])),
            (x.clone().view(torch.uint8), codes.view(torch.uint8)),
        ]:
            assert torch.equal(ours.cpu().view(torch.uint8), theirs.view(torch.uint8))


def test_lazy_mode_and_graphs(device, module, format):
    operand = torch.randn(33, 7)
    expected = (operand * 2).to(format).to(torch.float32) + 1
    with strict(), torch_backend.lazy.record():
        ours = (operand.to(device) * 2).to(format).to(torch.float32) + 1
    torch.testing.assert_close(ours.cpu(), expected, rtol=0, atol=0, equal_nan=True)
    x, graph = torch.zeros(33, 7, device=device), module.Graph()
    with module.graph(graph):
        y = (x * 2).to(format).to(torch.float32) + 1
    x.copy_(operand)
    graph.replay()
    torch.testing.assert_close(y.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def test_comparisons_and_nan(device):
    x = torch.tensor([1.0, float("nan"), 3.0]).to(torch.float8_e4m3fn)
    with strict():
        assert (x.to(device) == x.to(device)).tolist() == [True, False, True]
        assert x.to(device).isnan().tolist() == [False, True, False]
