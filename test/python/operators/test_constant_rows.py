"""Statistics of equal numbers, and of numbers far from 0, compared with double precision: variances, deviations, means
and norms based on them."""

import math

import numpy
import pytest
import torch
import torch.nn.functional as F

VALUES = [1000.3, -0.1, 1e-30, 3.3e7, 1.7e38, -3.4028234663852886e38]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("n", [2, 7, 18, 27, 1000, 4099])
def test_equal_numbers_have_no_variance(device, dtype, value, n):
    x = torch.full((3, n), value).to(dtype)
    if not x.isfinite().all() or (n > 2 and x.double().abs().max() * n > torch.finfo(torch.float32).max and dtype != torch.float64):
        pytest.skip("the numbers or their sum have no place in the dtype")
    for of in (x, x.t().contiguous().t()):
        ours = of.to(device)
        for keepdim in (False, True):
            variance, mean = torch.var_mean(ours, 1, keepdim=keepdim)
            assert variance.cpu().tolist() == torch.zeros_like(variance.cpu()).tolist()
            assert torch.equal(mean.cpu(), x[:, :1].reshape(mean.shape))
        assert torch.var(ours).item() == 0 == torch.std(ours, (0, 1)).item()
        assert torch.equal(torch.std_mean(ours, 0)[1].cpu(), x[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_far_from_0_compared_with_double_precision(device, dtype):
    x = (torch.rand(5, 37, dtype=torch.float64) + 4096).to(dtype)
    x[:, 0] = 4096
    ours = torch.var_mean(x.to(device), 1)
    rows = x.double().numpy().astype(numpy.longdouble)  # CPU torch rounds float64 sums in double precision, too
    for got, exact in zip(ours, (rows.var(1, ddof=1), rows.mean(1))):
        exact = torch.from_numpy(exact.astype(numpy.float64))
        torch.testing.assert_close(got.cpu().double(), exact, rtol=1e-5 if dtype is torch.float32 else 1e-12, atol=0)


def test_what_is_not_finite_is_as_on_the_cpu(device):
    inf, nan = math.inf, math.nan
    rows = torch.tensor([[inf, 1, 2], [1, inf, 2], [inf, -inf, 1], [nan, 1, 2], [1, nan, 2], [-inf, -inf, 3], [3e38, -3e38, 0], [0, 1, 2]])
    variance, mean = torch.var_mean(rows.to(device), 1)
    cpu_variance, _ = torch.var_mean(rows, 1)
    exact = rows.double().mean(1).float()
    torch.testing.assert_close(mean.cpu(), exact, equal_nan=True, rtol=1e-6, atol=1e32)
    assert torch.equal(variance.cpu().isfinite(), cpu_variance.isfinite())


def test_no_elements(device):
    variance, mean = torch.var_mean(torch.empty(3, 0, device=device), 1)
    assert variance.isnan().all() and mean.isnan().all()
    assert torch.var_mean(torch.empty(0, 3, device=device), 1)[0].shape == (0,)


def test_norms_of_constants_are_0(device):
    x = torch.full((2, 6, 3, 3), 1000.3, device=device)
    assert F.group_norm(x, 2).abs().max().item() == 0
    assert F.instance_norm(x).abs().max().item() == 0
    assert F.layer_norm(x, (3, 3)).abs().max().item() == 0
    assert F.batch_norm(x, None, None, training=True).abs().max().item() == 0
    assert F.group_norm(x, 3, torch.full((6,), 2.0, device=device), torch.full((6,), 0.5, device=device)).sub(0.5).abs().max().item() == 0
