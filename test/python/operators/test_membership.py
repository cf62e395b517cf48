"""isin and histc compared with the CPU, natively; histc of integers, which the CPU lacks, compared with a direct count.
"""

import pytest
import torch

from torch_backend.fallback import strict

NUMBERS = torch.tensor([3, -1, 4, 1, -5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8])
@pytest.mark.parametrize("others", [0, 1, 3, 12])
@pytest.mark.parametrize("invert", [False, True])
def test_isin(device, dtype, others, invert):
    x, y = NUMBERS.to(dtype).view(4, 4), torch.arange(others).mul(2).to(dtype)
    with strict():
        ours = torch.isin(x.to(device), y.to(device), invert=invert)
    assert torch.equal(ours.cpu(), torch.isin(x, y, invert=invert))


def test_isin_of_views_mixed_dtypes_nan_and_results(device):
    x, y = torch.tensor([[0.5, float("nan")], [2.0, -0.0]]), torch.tensor([float("nan"), 0.0, 2.5, 2.0, 7, 8, 9, 10, 11])
    assert torch.equal(torch.isin(x.to(device).t(), y.to(device)).cpu(), torch.isin(x.t(), y))
    assert torch.equal(torch.isin(NUMBERS.to(device), y.to(device)).cpu(), torch.isin(NUMBERS, y))
    out = torch.empty(2, 2, dtype=torch.bool, device=device)
    torch.isin(x.to(device), y.to(device), out=out)
    assert torch.equal(out.cpu(), torch.isin(x, y))
    assert torch.isin(torch.empty(0, 3, device=device), y.to(device)).shape == (0, 3)


@pytest.mark.parametrize("invert", [False, True])
def test_isin_with_a_number(device, invert):
    x = NUMBERS.to(device)
    with strict():
        a, b, c = (torch.isin(x, 3, invert=invert), torch.isin(3, x, invert=invert), torch.isin(100, x, invert=invert))
    assert torch.equal(a.cpu(), torch.isin(NUMBERS, 3, invert=invert))
    assert (b.shape, b.item(), c.item()) == ((), not invert, invert)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("limits", [(0, 0), (-1, 1), (0.25, 0.75), (2, 5)])
@pytest.mark.parametrize("bins", [1, 7, 100])
def test_histc(device, dtype, limits, bins):
    x = torch.randn(30, 40, generator=torch.Generator().manual_seed(0), dtype=dtype)
    x[0, 0] = 0.25 if limits[0] == 0.25 else 1
    with strict():
        ours = torch.histc(x.to(device), bins, *limits)
    assert torch.equal(ours.cpu(), torch.histc(x, bins, *limits))


def test_histc_of_equal_elements_none_and_nan(device):
    for x in (torch.full((5,), 2.5), torch.empty(0), torch.tensor([0.0, float("nan"), 1.0])):
        limits = (0, 1) if x.isnan().any() else (0, 0)
        assert torch.equal(torch.histc(x.to(device), 4, *limits).cpu(), torch.histc(x, 4, *limits))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_histc_of_integers_counts_them(device, dtype):
    x = NUMBERS.abs().to(dtype)
    ours = torch.histc(x.to(device), bins=10, min=0, max=9)
    assert ours.dtype == dtype
    assert torch.equal(ours.cpu().long(), torch.histc(x.double(), 10, 0, 9).long())


@pytest.mark.parametrize("bins, limits, message", [(0, (0, 1), "bins must be > 0"), (3, (2, 1), "max must be larger"),
                                                    (3, (0, float("inf")), "is not finite")])  # fmt: skip
def test_histc_refuses(device, bins, limits, message):
    with pytest.raises(RuntimeError, match=message):
        torch.histc(torch.ones(3, device=device), bins, *limits)
    with pytest.raises(RuntimeError):
        torch.histc(torch.ones(3), bins, *limits)
