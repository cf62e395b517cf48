"""Half precision is computed in float32 and rounded once: rows of each length compared with double precision, and
powers with exponents that have their own kernels compared with the CPU."""

import pytest
import torch

F = torch.nn.functional
HALVES = [torch.float16, torch.bfloat16]
# Around the runs in which rows are converted (512, 4096), and on both sides of the longest row that is computed as a
# whole (16384).
LENGTHS = [1, 3, 511, 513, 1030, 4097, 16384, 16385]
ROWS = {
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "sum": lambda x: x.sum(-1),
    "amax": lambda x: x.amax(-1),
    "norm": lambda x: x.norm(dim=-1),
    "var": lambda x: x.var(-1, correction=0),
    "sum of columns": lambda x: x.t().contiguous().sum(0),
    "mean of columns": lambda x: x.t().contiguous().mean(0),
}


def close(result, reference, dtype):
    """Within one rounding to the dtype of the float32 result."""
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(result.cpu().double(), reference, rtol=step * 0.75, atol=float(reference.abs().max()) * step * 2e-3 + 1e-7, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_every_length_are_within_one_rounding_of_double_precision(name, dtype):
    for n in LENGTHS:
        x = (torch.randn(3, n, generator=torch.Generator().manual_seed(n)) * 2).to(dtype)
        close(ROWS[name](x.to("fake")), ROWS[name](x.double()), dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm"])
def test_gradients_of_rows(name, dtype):
    for n in LENGTHS[1:]:
        generator = torch.Generator().manual_seed(n)
        x, g = ((torch.randn(3, n, generator=generator)).to(dtype) for _ in range(2))
        gradients = []
        for place, wide in (("fake", dtype), ("cpu", torch.float64)):
            leaf = x.to(place, wide).requires_grad_()
            ROWS[name](leaf).backward(g.to(place, wide))
            gradients.append(leaf.grad.cpu().double())
        # The gradient reads the result of the forward pass, which is rounded to half precision.
        scale = float(gradients[1].abs().max())
        torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=scale * torch.finfo(dtype).eps * 2 + 1e-7)


@pytest.mark.parametrize("weights", [None, torch.float32], ids=["half", "float32"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_layer_norm_with_weight_and_bias_of_either_width(dtype, weights):
    for n in (5, 700, 16385):
        generator = torch.Generator().manual_seed(n)
        x = torch.randn(4, n, generator=generator).to(dtype)
        weight, bias = (torch.randn(n, generator=generator).to(weights or dtype) for _ in range(2))
        for w, b in ((weight, bias), (weight, None), (None, bias)):
            got = torch.native_layer_norm(x.to("fake"), [n], *(p if p is None else p.to("fake") for p in (w, b)), 1e-5)[0]
            want = torch.native_layer_norm(x.double(), [n], *(p if p is None else p.double() for p in (w, b)), 1e-5)[0]
            close(got, want, dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_conversions_of_whole_and_strided_tensors_are_the_cpus(dtype):
    for shape in ((1,), (7,), (1025,), (33, 65)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(3)) * 1000
        x.view(-1)[0] = float("inf")
        for view in (lambda t: t, lambda t: t.t() if t.dim() == 2 else t[::2]):
            assert torch.equal(view(x.to("fake")).to(dtype).cpu(), view(x).to(dtype))
            assert torch.equal(view(x.to(dtype).to("fake")).float().cpu(), view(x.to(dtype)).float())


@pytest.mark.parametrize("exponent", [3, 3.0, -2, -2.0, 2, 0.5, -1.0, 0, 1, 2.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64], ids=str)
def test_powers_are_the_cpus(exponent, dtype):
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -3.5, 7.25, 1e-3, 300.0, float("inf"), float("nan"), float("-inf")])
    # for minus infinity, the CPU returns infinity in float16 and NaN in float32
    values = values[:-1] if exponent == 0.5 else values
    if not dtype.is_floating_point and not dtype.is_complex:
        values = torch.tensor([0, 1, -1, 2, -3, 7, 100])
    x = values.to(dtype)
    calls = [lambda t: t.pow(exponent), lambda t: t.clone().pow_(exponent), lambda t: torch.pow(t[::2], exponent), lambda t: t[:0].pow(exponent)]
    for call in calls:
        try:
            want = call(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error)[:20].replace("(", r"\(").replace("'", ".")):
                call(x.to("fake"))
            continue
        got = call(x.to("fake"))
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.cpu(), want, equal_nan=True)


@pytest.mark.parametrize("exponent", [3, -2.0])
def test_gradients_of_powers_are_the_cpus(exponent):
    gradients = []
    for place in ("fake", "cpu"):
        x = torch.linspace(-2, 2, 9).to(place).requires_grad_()
        x.pow(exponent).sum().backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(*gradients, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_row_reads_what_the_row_before_it_wrote_where_both_lie_in_the_same_memory(dtype):
    calls = {"mul_": lambda x: x.mul_(2), "neg_": lambda x: x.neg_(), "sqrt_": lambda x: x.sqrt_(), "clamp_": lambda x: x.clamp_(1, 3),
             "addcmul_": lambda x: x.addcmul_(torch.ones_like(x[0]), torch.ones_like(x[0]))}  # fmt: skip
    for name, call in calls.items():
        for sizes, strides in (((3, 3), (1, 1)), ((5, 700), (3, 1)), ((4, 2, 6), (2, 3, 1))):
            results = []
            for place in ("cpu", "fake"):
                numbers = torch.arange(1, 720, dtype=torch.float32).remainder(13).to(dtype).to(place)
                call(numbers.as_strided(sizes, strides))
                results.append(numbers.cpu())
            assert torch.equal(*results), (name, sizes, strides)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_signs_of_every_number(dtype):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    turned = every.flip(0)
    calls = {"abs": torch.abs, "neg": torch.neg, "copysign": lambda x: torch.copysign(x, turned.to(x.device)),
             "copysign a number": lambda x: torch.copysign(x, -0.0), "abs of every other": lambda x: x[::2].abs()}  # fmt: skip
    for name, call in calls.items():
        ours, theirs = call(every.to("fake")).cpu(), call(every)
        assert torch.equal(ours.isnan(), theirs.isnan()), name
        assert torch.equal(ours.nan_to_num(0.0).view(torch.int16), theirs.nan_to_num(0.0).view(torch.int16)), name
