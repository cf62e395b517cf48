"""Complex numbers compared with CPU PyTorch: arithmetic, functions, comparisons, sums, matrix products, copies and lazy
bits. The operators run natively, and agree for infinite parts, NaN and zeros of either sign."""

import itertools

import pytest
import torch
from native_reference import Sample, assert_native, assert_same, load_model, overload, strict

COMPLEX = [torch.complex64, torch.complex128]
TOLERANCE = {torch.complex64: {"rtol": 4e-6, "atol": 4e-6}, torch.complex128: {"rtol": 1e-12, "atol": 1e-12}}
PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -3.25, 1e-30, 1e30, float("inf"), -float("inf"), float("nan")]
LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[::2, 1::3],
    "expanded": lambda x: x[:, :1].expand(-1, 4),
    "reversed by conj": lambda x: x.conj(),
}


def ordinary(dtype, shape=(6, 10), seed=0):
    """Numbers of both signs in both parts, of magnitudes around 1."""
    return torch.randn(shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed)).mul(2).to(dtype)


def hostile(dtype):
    return torch.tensor([complex(re, im) for re, im in itertools.product(PARTS, PARTS)], dtype=dtype)


def operators():
    """The pointwise operators with complex kernels: (name, number of tensors)."""
    for op in load_model().kernels:
        if op.entry.is_elementwise and not op.entry.meta and "c64" in op.entry.kernel.dtypes:
            yield pytest.param(op.entry.name, op.name, sum(str(a.type) == "Tensor" for a in op.arguments), id=op.name)


def call(name, tensors):
    """Calls an overload; numbers without a default are 1.5 - 0.5i."""
    missing = [a for a in overload(name)._schema.arguments if str(a.type) == "number" and not a.has_default_value()]
    return overload(name)(*tensors, *(1.5 - 0.5j for _ in missing))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("kernel,name,count", list(operators()))
def test_pointwise_operators_in_every_layout(kernel, name, count, dtype, layout):
    tensors = [Sample(ordinary(dtype, seed=seed), LAYOUTS[layout]) for seed in range(count)]
    assert_native(kernel if name != "pow.Tensor_Scalar" else ("mul.Tensor", kernel), lambda *t: call(name, t), tensors,
                  strides=layout != "reversed by conj", **TOLERANCE[dtype])  # fmt: skip


# For infinite parts, CPU PyTorch's vectorized complex functions differ from its scalar ones.
EXACT = ["add.Tensor", "sub.Tensor", "mul.Tensor", "neg", "eq.Tensor", "ne.Tensor"]


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_arithmetic_with_infinite_and_undefined_parts(name, dtype):
    x = hostile(dtype)
    operands = [x] if name == "neg" else [x.repeat_interleave(len(x)), x.repeat(len(x))]
    assert_native(name, lambda *t: call(name, t), [Sample(operand) for operand in operands])


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_quotients_neither_overflow_nor_vanish_on_the_way(dtype, device):
    large, small = (1e30, 1e-30) if dtype == torch.complex64 else (1e300, 1e-300)
    x = torch.tensor([complex(large, large), complex(small, -small), complex(large, 1), 1j], dtype=dtype)
    with strict():
        quotients = (x.to(device) / x.to(device)).cpu()
        inverse = (1 / x.to(device)).cpu()
    torch.testing.assert_close(quotients, torch.ones_like(x))
    torch.testing.assert_close(inverse * x, torch.ones_like(x))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_a_finite_number_over_zero_is_infinite_or_undefined_as_on_the_cpu(dtype, device):
    x = torch.tensor([1 + 2j, -1 + 2j, 0j, 3 - 0j], dtype=dtype)
    assert_same((x.to(device) / torch.zeros_like(x).to(device)), x / torch.zeros_like(x))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_absolute_values_are_real(dtype):
    for layout in ("dense", "transposed", "strided", "expanded"):
        assert_native("abs", torch.abs, [Sample(ordinary(dtype), LAYOUTS[layout])], **TOLERANCE[dtype])
    assert_native("abs", torch.abs, [Sample(hostile(dtype))], rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_sums_and_means_over_dimensions(dtype):
    for layout, dim in itertools.product(("dense", "transposed", "strided", "expanded"), ([0], [1], [0, 1], [])):
        x = Sample(ordinary(dtype, (60, 40)), LAYOUTS[layout])
        assert_native("sum.dim_IntList", lambda x, dim=dim: x.sum(dim), [x], rtol=1e-5, atol=1e-4)
        assert_native("mean.dim", lambda x, dim=dim: x.mean(dim, keepdim=True), [x], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_matrix_products(dtype):
    a, b, c = (Sample(ordinary(dtype, (9, 9), seed)) for seed in range(3))
    flipped = Sample(a.base, lambda x: x.t().conj())
    tolerance = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.complex64 else {"rtol": 1e-12, "atol": 1e-12}
    for x in (a, flipped):
        assert_native("mm", torch.mm, [x, b], **tolerance)
        assert_native("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [c, x, b], **tolerance)
    batch = [Sample(ordinary(dtype, (3, 5, 5), seed)) for seed in range(3)]
    assert_native("bmm", torch.bmm, batch[:2], **tolerance)
    assert_native("baddbmm", lambda c, a, b: c.baddbmm_(a, b), batch, **tolerance)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_factors_with_an_imaginary_part_are_right(dtype, device):
    a, b, c = (ordinary(dtype, (4, 4), seed) for seed in range(3))
    ours = torch.addmm(c.to(device), a.to(device), b.to(device), beta=1j, alpha=2 - 1j)
    torch.testing.assert_close(ours.cpu(), torch.addmm(c, a, b, beta=1j, alpha=2 - 1j), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("to", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.float64, *COMPLEX], ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_casts_from_and_to_real_dtypes_in_every_layout(dtype, to, device):
    x = ordinary(dtype).abs().mul(20).to(dtype) + 3j if to == torch.uint8 else ordinary(dtype).mul(20)
    real = x.real.to(torch.float32 if to.is_complex else to)
    for view in LAYOUTS.values():
        with strict():
            assert_same(view(x.to(device)).to(to), view(x).to(to), strides=False)
            if not to.is_complex:
                assert_same(view(real.to(device)).to(dtype), view(real).to(dtype), strides=False)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_conjugate_and_negative_bits_are_resolved_on_the_device(dtype, device):
    x = ordinary(dtype)
    with strict():
        ours = x.to(device)
        for function in (lambda x: x.conj().resolve_conj(), lambda x: x.conj().imag.resolve_neg(), lambda x: x.conj() * x,
                         lambda x: torch.conj_physical(x), lambda x: x.clone().conj_physical_(), lambda x: x.conj().contiguous()):  # fmt: skip
            assert_same(function(ours), function(x))
        target = torch.zeros_like(ours)
        target.conj().copy_(ours)  # writes through the bit
        assert_same(target, x.conj().resolve_conj())
        target.imag.neg_()
        assert_same(target, x)


def test_gradients_flow_through_complex_numbers(device):
    x = ordinary(torch.complex64)
    gradients = []
    for where in ("cpu", device):
        leaf = x.clone().to(where).requires_grad_()
        ((leaf * leaf.conj()).abs().sum() + leaf.exp().sum().real).backward()
        gradients.append(leaf.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])
