"""Products of matrices of 8-bit elements on the device, without the CPU: integers exactly, the others compared with the
CPU or with double precision."""

import pytest
import torch
import torch_backend
import torch_backend.lazy
from native_reference import strict
from torch.nn.functional import ScalingType, SwizzleType

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def integers(low, high, *sizes):
    return torch.randint(low, high, sizes)


@pytest.mark.parametrize("dtype, low, high", [(torch.int8, -128, 128), (torch.uint8, 0, 256)])
@pytest.mark.parametrize("m, k, n", [(3, 5, 4), (17, 512, 9), (1, 513, 1), (5, 2100, 3), (2, 0, 3), (0, 4, 2)])
def test_integers_are_exact(device, dtype, low, high, m, k, n):
    a, b = integers(low, high, m, k), integers(-128, 128, k, n)
    with strict():
        ours = torch._int_mm(a.to(dtype).to(device), b.to(torch.int8).to(device))
        out = torch.empty(0, dtype=torch.int32, device=device)
        torch._int_mm(a.to(dtype).to(device), b.to(torch.int8).to(device), out=out)
    assert ours.dtype == torch.int32 and torch.equal(ours.cpu().long(), a @ b) and torch.equal(out, ours)


def test_the_largest_integers_are_exact(device):
    a, b = torch.full((2, 5000), 255, dtype=torch.uint8), torch.full((5000, 2), -128, dtype=torch.int8)
    assert torch._int_mm(a.to(device), b.to(device)).tolist() == [[-255 * 128 * 5000] * 2] * 2


def test_transposed_and_sliced_integers(device):
    a, b = integers(-128, 128, 40, 6).to(torch.int8), integers(-128, 128, 8, 40).to(torch.int8)
    with strict():
        ours = torch._int_mm(a.to(device).t()[::2], b.to(device).t()[:, 1:])
    assert torch.equal(ours.cpu().long(), a.long().t()[::2] @ b.long().t()[:, 1:])


def test_an_int32_product_of_int8_calls_int_mm(device):
    """The higher-order operator out_dtype, by which torchao's dynamic quantization calls it."""
    from torch._higher_order_ops.out_dtype import out_dtype

    a, b = integers(-128, 128, 24, 16).to(torch.int8), integers(-128, 128, 16, 8).to(torch.int8)

    def product(a, b):
        return out_dtype(torch.ops.aten.mm.default, torch.int32, a, b)

    with strict():
        ours = product(a.to(device), b.to(device))
    assert torch.equal(ours.cpu().long(), a.long() @ b.long())
    assert torch.equal(torch.compile(product)(a.to(device), b.to(device)), ours)
    assert torch.equal(product(a, b), ours.cpu())  # the CPU's is as before


@pytest.mark.parametrize(
    "call",
    [
        lambda a, f: torch._int_mm(f, a.t()),
        lambda a, f: torch._int_mm(a, a.t().to(torch.uint8)),
        lambda a, f: torch._int_mm(a, a),
        lambda a, f: torch._int_mm(a[0], a),
        lambda a, f: torch._int_mm(a, a.t(), out=f),
        lambda a, f: torch._weight_int8pack_mm(f.double(), a, f[:, 0]),
        lambda a, f: torch._weight_int8pack_mm(f, a[:, 1:], f[:, 0]),
        lambda a, f: torch._weight_int8pack_mm(f, a, f[:2, 0]),
        lambda a, f: torch._weight_int8pack_mm(f, f, f[:, 0]),
        lambda a, f: torch._scaled_mm(f.to(FLOAT8[0]), f.to(FLOAT8[0]), f[0, 0], f[0, 0]),
        lambda a, f: torch._scaled_mm(f[0].to(FLOAT8[0]), f.to(FLOAT8[0]).t(), f[0, 0], f[0, 0]),
    ],
)
def test_invalid_operands_are_errors_as_on_the_cpu(device, call):
    operands = torch.ones(3, 4, dtype=torch.int8), torch.ones(3, 4)
    with pytest.raises((RuntimeError, ValueError)):
        call(*operands)
    with strict(), pytest.raises(RuntimeError, match="_int_mm|_weight_int8pack_mm|_scaled_mm") as found:
        call(*(x.to(device) for x in operands))
    assert "fallback" not in str(found.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 32])
def test_weights_of_eight_bits(device, dtype, rows):
    x, weight, scales = torch.randn(rows, 96).to(dtype), integers(-128, 128, 64, 96).to(torch.int8), torch.rand(64).to(dtype)
    with strict():
        ours = torch._weight_int8pack_mm(x.to(device), weight.to(device), scales.to(device))
    exact = (x.double() @ weight.double().t()) * scales.double()
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.cpu().double(), exact.to(dtype).double(), rtol=2 * torch.finfo(dtype).eps, atol=1e-3)


def four_bits(n, k, group, dtype):
    """Returns weights from 0 to 15, and the scales and zeros of their groups, each [k / group][n]."""
    return integers(0, 16, n, k), (torch.rand(k // group, n) + 0.1).to(dtype), torch.randn(k // group, n).to(dtype)


def packed_pairs(weights, first_is_high):
    first, second = weights[:, ::2], weights[:, 1::2]
    return (first << 4 | second if first_is_high else second << 4 | first).to(torch.uint8)


def groups_of(numbers, group):
    """Returns the number of each weight's group, [n][k], in double precision."""
    return numbers.double().t().repeat_interleave(group, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows, n, k, group, tiles", [(1, 8, 64, 32, 4), (5, 24, 256, 64, 8), (3, 64, 96, 32, 2), (2, 16, 128, 128, 2), (0, 8, 32, 32, 2),
                                                      (1, 136, 2112, 32, 2), (1, 40, 96, 3, 2), (9, 40, 96, 12, 2), (200, 136, 544, 544, 2)])  # fmt: skip
def test_weights_of_four_bits(device, dtype, rows, n, k, group, tiles):
    """The reference is double precision. The order of weights in a byte is that of CUDA, the second product's that of XPU."""
    x, (weights, scales, zeros) = torch.randn(rows, k).to(dtype), four_bits(n, k, group, dtype)
    whole = integers(0, 16, group and k // group, n).to(torch.int8)
    sides = [
        (True, torch._weight_int4pack_mm, [torch.stack([scales, zeros], 2)], (weights - 8) * groups_of(scales, group) + groups_of(zeros, group)),
        (False, torch._weight_int4pack_mm_with_scales_and_zeros, [scales, whole], (weights - groups_of(whole, group)) * groups_of(scales, group)),
    ]
    for first_is_high, product, numbers, exact in sides:
        with strict():
            packed = torch._convert_weight_to_int4pack(packed_pairs(weights, first_is_high).to(device), tiles)
            ours = product(x.to(device), packed, group, *(each.to(device) for each in numbers))
        assert packed.shape == (n // 8, k // (tiles * 16), 32, tiles // 2) and ours.dtype == dtype
        expected = x.double() @ exact.t()
        torch.testing.assert_close(ours.cpu().double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-5 * float(expected.abs().max()) if rows else 0)


def test_scales_of_another_dtype_are_not_rounded(device):
    x, (weights, scales, _) = torch.eye(3, 64).bfloat16(), four_bits(8, 64, 32, torch.float32)
    packed, zeros = torch._convert_weight_to_int4pack(packed_pairs(weights, False).to(device), 2), torch.full((2, 8), 8.3)
    with strict():
        ours = torch._weight_int4pack_mm_with_scales_and_zeros(x.to(device), packed, 32, scales.to(device), zeros.to(device))
    expected = x.double() @ ((weights - groups_of(zeros, 32)) * groups_of(scales, 32)).t()
    assert torch.equal(ours.cpu(), expected.bfloat16())


@pytest.mark.parametrize("rows", [1, 5])
def test_weights_of_views_in_deferred_work(device, rows):
    """Operands that are not contiguous, and results that later deferred work reads."""
    x, scales, zeros = torch.randn(128, 2 * rows), torch.rand(40, 4), torch.rand(40, 4)
    weights, int8 = integers(0, 16, 40, 128), integers(-128, 128, 128, 40).to(torch.int8)
    exact = (weights - 8) * groups_of(scales.t(), 32) + groups_of(zeros.t(), 32)
    expected = x.double().t()[::2] @ exact.t(), x.double().t()[::2] @ int8.double() * scales[:, 0].double()
    packed = torch._convert_weight_to_int4pack(packed_pairs(weights, True).to(device), 2)
    with strict(), torch_backend.lazy.record():
        view = x.to(device).t()[::2]
        numbers = torch.stack([scales.to(device), zeros.to(device)]).permute(2, 1, 0)
        ours = torch._weight_int4pack_mm(view, packed, 32, numbers) + 1, torch._weight_int8pack_mm(view, int8.to(device).t(), scales.to(device)[:, 0]) + 1
    for mine, right in zip(ours, expected):
        torch.testing.assert_close(mine.cpu().double(), right + 1, rtol=1e-5, atol=1e-5 * float(right.abs().max()))


def test_weights_of_four_bits_as_the_cpus(device):
    """The CPU's own operator, whose packed weights have another form, of torch's own quantization."""
    from torch.testing._internal.common_quantization import _group_quantize_tensor

    x, weight = torch.randn(7, 128).bfloat16(), torch.randn(128, 32).bfloat16()
    quantized, numbers = _group_quantize_tensor(weight, n_bit=4, q_group_size=32)
    expected = torch._weight_int4pack_mm_for_cpu(x, torch._convert_weight_to_int4pack_for_cpu(quantized, 4), 32, numbers)
    with strict():
        packed, ours_numbers = _group_quantize_tensor(weight.to(device), n_bit=4, q_group_size=32)
        ours = torch._weight_int4pack_mm(x.to(device), torch._convert_weight_to_int4pack(packed, 4), 32, ours_numbers)
    torch.testing.assert_close(ours.cpu(), expected, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("call, error", [
    (lambda b, x, p, s: torch._convert_weight_to_int4pack(b.to(torch.int32), 2), "expected a uint8 matrix"),
    (lambda b, x, p, s: torch._convert_weight_to_int4pack(b, 3), "innerKTiles to be 2, 4 or 8 but got 3"),
    (lambda b, x, p, s: torch._convert_weight_to_int4pack(b[:7], 2), "but got 7 and 64"),
    (lambda b, x, p, s: torch._convert_weight_to_int4pack(b, 8), "of 128 weights"),
    (lambda b, x, p, s: torch._weight_int4pack_mm(x.double(), p, 32, s), "float32, float16 or bfloat16 matrix but got Double"),
    (lambda b, x, p, s: torch._weight_int4pack_mm(x[:, :32], p, 32, s), "expected 32 weights in a row, as self has columns, but got 64"),
    (lambda b, x, p, s: torch._weight_int4pack_mm(x, b, 32, s), "the result of _convert_weight_to_int4pack but got Byte"),
    (lambda b, x, p, s: torch._weight_int4pack_mm(x, p, 24, s), "qGroupSize to divide 64 but got 24"),
    (lambda b, x, p, s: torch._weight_int4pack_mm(x, p, 0, s), "qGroupSize to divide 64 but got 0"),
    (lambda b, x, p, s: torch._weight_int4pack_mm(x, p, 64, s), r"sizes \[1, 8, 2\] but got Float of sizes \[2, 8, 2\]"),
    (lambda b, x, p, s: torch._weight_int4pack_mm_with_scales_and_zeros(x, p, 32, s[..., 0], s), "qScale and qZeros of sizes"),
])  # fmt: skip
def test_invalid_weights_of_four_bits_are_one_error(device, call, error):
    pairs = integers(0, 256, 8, 32).to(torch.uint8).to(device)
    operands = pairs, torch.randn(3, 64).to(device), torch._convert_weight_to_int4pack(pairs, 2), torch.rand(2, 8, 2).to(device)
    with strict(), pytest.raises(RuntimeError, match=error):
        call(*operands)


def scaled_operands(device, m=96, k=288, n=160):
    a, b = torch.randn(m, k).to(FLOAT8[0]), torch.randn(n, k).to(FLOAT8[0]).t()
    return (a, b), (a.to(device), b.to(device)), a.double(), b.double()


@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16, torch.float16, None], ids=str)
@pytest.mark.parametrize("scaling", ["tensor", "rows"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_float8_with_scales_as_on_the_cpu(device, out_dtype, scaling, has_bias):
    cpu, ours, _, _ = scaled_operands(device)
    scales = (torch.tensor(0.5), torch.tensor(0.03)) if scaling == "tensor" else (torch.rand(96, 1), torch.rand(1, 160) / 16)
    bias = torch.randn(160).to(out_dtype or torch.bfloat16) if has_bias else None
    expected = torch._scaled_mm(*cpu, *scales, bias=bias, out_dtype=out_dtype)
    with strict():
        result = torch._scaled_mm(*ours, *(x.to(device) for x in scales), bias=bias.to(device) if has_bias else None, out_dtype=out_dtype)
        out = torch.empty(0, dtype=result.dtype, device=device)
        torch._scaled_mm(*ours, *(x.to(device) for x in scales), bias=bias.to(device) if has_bias else None, out_dtype=out_dtype, out=out)
    assert result.dtype == expected.dtype and torch.equal(out.cpu().float(), result.cpu().float())
    step = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10, FLOAT8[0]: 2**-3}[result.dtype]  # between neighbors
    torch.testing.assert_close(result.cpu().float(), expected.float(), rtol=step, atol=1e-3)


def of_elements(scale, *sizes):
    """Returns the scale of each element of a matrix, by its index: scales are of one element, of 128 in a row, or of all."""
    row, column = (torch.arange(size) // (size if count == 1 else 1 if count == size else 128) for size, count in zip(sizes, scale.shape))
    return scale.double()[row][:, column]


@pytest.mark.parametrize("blocks", ["rows, blocks", "rows, columns", "blocks, columns"])
def test_float8_with_scales_of_blocks(device, blocks):
    """The reference is double precision: the CPU has no such scales."""
    _, ours, a, b = scaled_operands(device)
    of_a, of_b = blocks.split(", ")
    scale_a = torch.rand(96 if of_a == "rows" else 1, 3)
    scale_b = torch.rand(3, 160 if of_b == "columns" else 2)

    exact = (a * of_elements(scale_a, 96, 288)) @ (b * of_elements(scale_b, 288, 160))
    with strict():
        result = torch._scaled_mm(*ours, scale_a.to(device), scale_b.to(device), out_dtype=torch.float32)
    torch.testing.assert_close(result.cpu().double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("recipe_a, recipe_b", [("TensorWise", "TensorWise"), ("RowWise", "RowWise"), ("BlockWise1x128", "BlockWise1x128"),
                                                ("BlockWise1x128", "BlockWise128x128"), ("BlockWise128x128", "BlockWise1x128")])  # fmt: skip
def test_float8_with_scales_of_recipes(device, recipe_a, recipe_b):
    """torch.nn.functional.scaled_mm; the reference is double precision."""
    from torch.nn.functional import ScalingType, scaled_mm

    _, ours, a, b = scaled_operands(device)
    of_a = {"TensorWise": (1, 1), "RowWise": (96, 1), "BlockWise1x128": (96, 3), "BlockWise128x128": (1, 3)}[recipe_a]
    of_b = {"TensorWise": (1, 1), "RowWise": (1, 160), "BlockWise1x128": (3, 160), "BlockWise128x128": (3, 2)}[recipe_b]
    scale_a, scale_b, bias = torch.rand(of_a), torch.rand(of_b), torch.randn(160)

    exact = (a * of_elements(scale_a, 96, 288)) @ (b * of_elements(scale_b, 288, 160)) + bias.double()
    recipes = getattr(ScalingType, recipe_a), getattr(ScalingType, recipe_b)
    with strict():
        result = scaled_mm(*ours, scale_a.to(device), recipes[0], scale_b.to(device), recipes[1], bias=bias.to(device), output_dtype=torch.float32)
    torch.testing.assert_close(result.cpu().double(), exact, rtol=1e-5, atol=1e-4)
    with pytest.raises(RuntimeError, match="a recipe for each scale"):
        torch._scaled_mm_v2(*ours, [scale_a.to(device)], [], [], [scale_b.to(device)], [0], [], None, torch.float32)


def test_a_scale_of_the_result(device):
    cpu, ours, _, _ = scaled_operands(device)
    one, three = torch.tensor(1.0), torch.tensor(3.0)
    for dtype in (torch.float32, FLOAT8[0]):
        expected = torch._scaled_mm(*cpu, one, one, scale_result=three, out_dtype=dtype).float()
        with strict():
            result = torch._scaled_mm(*ours, one.to(device), one.to(device), scale_result=three.to(device), out_dtype=dtype)
        torch.testing.assert_close(result.cpu().float(), expected, rtol=2**-3 if dtype == FLOAT8[0] else 1e-5, atol=1e-3)


def test_compiled_and_in_lazy_mode(device):
    a, b = integers(-128, 128, 24, 600).to(torch.int8), integers(-128, 128, 600, 8).to(torch.int8)
    (x, y), ours, _, _ = scaled_operands(device)
    scale = torch.tensor(0.25)

    def program(a, b, x, y, scale):
        return torch._int_mm(a, b) + 1, torch._scaled_mm(x, y, scale, scale, out_dtype=torch.float32) * 2

    expected, operands = program(a, b, x, y, scale), (a.to(device), b.to(device), *ours, scale.to(device))
    with torch_backend.lazy.record():
        lazy = program(*operands)
    for results in (lazy, torch.compile(program)(*operands)):
        assert torch.equal(results[0].cpu(), expected[0])
        torch.testing.assert_close(results[1].cpu(), expected[1], rtol=1e-4, atol=1e-3)


# ---- groups of matrices ---------------------------------------------------------------------------------------------

OFFS = [5, 5, 24]  # the second group is empty; of 32 rows or columns eight belong to no group
# The sizes of both matrices, and the parts of each group: of the first one, the second one and the result.
GROUPED = {
    "rows": ((32, 48), (3, 48, 16), lambda a, b, g, r: (a[r], b[g]), lambda out, g, r: out[r]),
    "columns": ((3, 16, 48), (48, 32), lambda a, b, g, r: (a[g], b[:, r]), lambda out, g, r: out[:, r]),
    "summed": ((16, 32), (32, 24), lambda a, b, g, r: (a[:, r], b[r]), lambda out, g, r: out[g]),
    "batches": ((3, 16, 48), (3, 48, 32), lambda a, b, g, r: (a[g], b[g]), lambda out, g, r: out[g]),
}


def groups():
    return [(g, slice(start, end)) for g, (start, end) in enumerate(zip([0, *OFFS], OFFS))]


@pytest.mark.parametrize("kind", GROUPED)
def test_products_of_groups(device, kind):
    sizes_a, sizes_b, operands, result = GROUPED[kind]
    a, b = torch.randn(sizes_a).bfloat16(), torch.randn(sizes_b).bfloat16()
    offs = None if kind == "batches" else torch.tensor(OFFS, dtype=torch.int32).to(device)
    with strict():
        ours = torch._grouped_mm(a.to(device), b.to(device), offs=offs)
    for g, r in groups():
        x, y = operands(a.double(), b.double(), g, r)
        torch.testing.assert_close(result(ours.cpu(), g, r).double(), x @ y, rtol=2**-7, atol=2**-5)


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32, None], ids=str)
@pytest.mark.parametrize("kind", GROUPED)
def test_float8_products_of_groups_with_scales(device, kind, out_dtype):
    """The reference is double precision: the CPU has no such operator."""
    sizes_a, sizes_b, operands, result = GROUPED[kind]
    a, b = torch.randn(sizes_a).to(FLOAT8[0]), torch.randn(sizes_b).transpose(-1, -2).contiguous().to(FLOAT8[0]).transpose(-1, -2)
    rows, columns, times = sizes_a[-2], sizes_b[-1], 3 if kind == "summed" else 1
    scale_a = torch.rand(3, rows) if len(sizes_a) == 3 else torch.rand(rows * times)
    scale_b = torch.rand(3, columns) if len(sizes_b) == 3 else torch.rand(columns * times)
    offs = None if kind == "batches" else torch.tensor(OFFS, dtype=torch.int32).to(device)
    with strict():
        ours = torch._scaled_grouped_mm(a.to(device), b.to(device), scale_a.to(device), scale_b.to(device), offs=offs, out_dtype=out_dtype)
        rows_of = dict(scale_recipe_a=ScalingType.RowWise, scale_recipe_b=ScalingType.RowWise, offs=offs, output_dtype=out_dtype)
        second = torch.nn.functional.scaled_grouped_mm(a.to(device), b.to(device), scale_a.to(device), scale_b=scale_b.to(device), **rows_of)
    assert torch.equal(ours.cpu(), second.cpu())
    assert ours.dtype == (out_dtype or torch.bfloat16)
    a_of, b_of = a.double(), b.double()
    if kind != "summed":
        a_of, b_of = a_of * scale_a.double().unsqueeze(-1), b_of * scale_b.double().unsqueeze(-2)
    for g, r in groups():
        x, y = operands(a_of, b_of, g, r)
        if kind == "summed":
            x, y = x * scale_a.view(3, rows, 1)[g].double(), y * scale_b.view(3, 1, columns)[g].double()
        step = 1e-5 if out_dtype == torch.float32 else 2**-7
        torch.testing.assert_close(result(ours.cpu(), g, r).double(), x @ y, rtol=step, atol=1e-4)
    assert kind in ("summed", "batches") or not result(ours.cpu(), 0, slice(OFFS[-1], None)).any()


@pytest.mark.parametrize("change, error", [
    (dict(offs=None), "_scaled_grouped_mm: expected offs for a matrix of 2 dimensions"),
    (dict(offs=torch.tensor([3, 2, 9], dtype=torch.int32)), r"offs\[1\] is 2, expected 3 to 32"),
    (dict(offs=torch.tensor([3, 9, 33], dtype=torch.int32)), r"offs\[2\] is 33, expected 9 to 32"),
    (dict(offs=torch.tensor([3, 9], dtype=torch.int32)), "expected 2 groups but got matrices of"),
    (dict(offs=torch.tensor([3, 9, 32])), "expected offs to be an int32 vector"),
    (dict(scale_a=torch.ones(31)), r"scales of the sizes \[31\] and \[3, 16\] do not fit"),
    (dict(scale_b=torch.ones(3, 16).to(torch.float8_e8m0fnu)), "expected a float32 scale for each row of self"),
    (dict(bias=torch.ones(16)), "a bias is not supported"),
    (dict(self=torch.ones(32, 48)), "expected float8 matrices but got Float"),
    (dict(self=torch.ones(32, 40).to(FLOAT8[0])), "cannot be multiplied"),
])  # fmt: skip
def test_invalid_products_of_groups_are_one_error(device, change, error):
    call = dict(self=torch.ones(32, 48).to(FLOAT8[0]), mat2=torch.ones(3, 48, 16).to(FLOAT8[0]), scale_a=torch.ones(32), scale_b=torch.ones(3, 16),
                offs=torch.tensor(OFFS, dtype=torch.int32))  # fmt: skip
    call = {name: value if value is None else value.to(device) for name, value in {**call, **change}.items()}
    with strict(), pytest.raises(RuntimeError, match=error):
        torch.ops.aten._scaled_grouped_mm(call.pop("self"), **call)


@pytest.mark.parametrize("change, error", [
    (dict(scale_recipe_b=ScalingType.BlockWise1x32), r"_scaled_grouped_mm_v2: expected the recipe RowWise \(1\) for both matrices but got \[1\] and \[3\]"),
    (dict(scale_recipe_a=[ScalingType.RowWise, ScalingType.TensorWise]), "expected a recipe for each scale but got 2 for 1 and 1 for 1"),
    (dict(swizzle_a=SwizzleType.SWIZZLE_32_4_4), r"expected scales without a swizzle but got \[1\] and \[\]"),
    (dict(contraction_dim=[0, 1]), r"expected contraction_dim to be empty or \[-1, -2\] but got \[0, 1\]"),
    (dict(bias=torch.ones(16)), "a bias is not supported"),
    (dict(offs=None), "expected offs for a matrix of 2 dimensions"),
])  # fmt: skip
def test_invalid_recipes_of_groups_are_one_error(device, change, error):
    call = dict(mat_a=torch.ones(32, 48).to(FLOAT8[0]), mat_b=torch.ones(3, 48, 16).to(FLOAT8[0]), scale_a=torch.ones(32), scale_b=torch.ones(3, 16),
                scale_recipe_a=ScalingType.RowWise, scale_recipe_b=ScalingType.RowWise, offs=torch.tensor(OFFS, dtype=torch.int32))  # fmt: skip
    call = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in {**call, **change}.items()}
    with strict(), pytest.raises(RuntimeError, match=error):
        torch.nn.functional.scaled_grouped_mm(**call)
