"""Products of float4 and float8 whose blocks of 16 or 32 elements have scales (nvfp4, mxfp4, mxfp8), and the order of scales
of blocks of 128, without the CPU. The reference is double precision, of elements that are unpacked here."""

import pytest
import torch
import torch_backend.lazy
from native_reference import strict
from torch.nn.functional import ScalingType, SwizzleType, scaled_mm
from torch.testing._internal.common_quantized import to_blocked

FLOAT4, E4M3, E8M0 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn, torch.float8_e8m0fnu
NUMBERS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.double)
# The dtype of elements, that of scales, the elements of a block, the recipe.
FORMATS = {
    "nvfp4": (FLOAT4, E4M3, 16, ScalingType.BlockWise1x16),
    "mxfp4": (FLOAT4, E8M0, 32, ScalingType.BlockWise1x32),
    "mxfp8": (E4M3, E8M0, 32, ScalingType.BlockWise1x32),
    "mxfp8 of e5m2": (torch.float8_e5m2, E8M0, 32, ScalingType.BlockWise1x32),
}


def operand(form, rows, columns):
    """Returns random elements, the scales of their blocks, and the numbers that both are in double precision."""
    dtype, scale_dtype, block, _ = FORMATS[form]
    scales = torch.randint(120, 136, (rows, -(-columns // block)), dtype=torch.uint8).view(E8M0) if scale_dtype == E8M0 else \
        (torch.rand(rows, -(-columns // block)) * 3 + 0.1).to(E4M3)  # fmt: skip
    of_elements = scales.float().double().repeat_interleave(block, 1)[:, :columns]
    if dtype == FLOAT4:
        codes = torch.randint(0, 16, (rows, columns), dtype=torch.uint8)
        packed = (codes[:, ::2] | codes[:, 1::2] << 4).view(FLOAT4)
        return packed, scales, NUMBERS[codes.long()] * of_elements
    elements = torch.randn(rows, columns).to(dtype)
    return elements, scales, elements.double() * of_elements


def tiled(scales):
    """Returns scales in tiles of 128 rows and 4 blocks, by torch's own function."""
    return to_blocked(scales.view(torch.uint8)).view(scales.dtype)


SIZES = [(1, 32, 8), (5, 96, 24), (130, 288, 136), (3, 48, 2)]


@pytest.mark.parametrize("m, k, n", SIZES)
@pytest.mark.parametrize("form", FORMATS)
def test_products_of_blocks(device, form, m, k, n):
    a, scale_a, x = operand(form, m, k)
    b, scale_b, y = operand(form, n, k)
    recipe, bias = FORMATS[form][3], torch.randn(n)
    expected = x @ y.t()
    close = dict(rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    swizzle = dict(swizzle_a=SwizzleType.SWIZZLE_32_4_4, swizzle_b=SwizzleType.SWIZZLE_32_4_4, output_dtype=torch.float32)
    of_tiles = tiled(scale_a).to(device), tiled(scale_b).to(device)
    with strict():
        a, b = a.to(device), b.to(device).t()
        first = torch._scaled_mm(a, b, *of_tiles, bias=bias.to(device), out_dtype=torch.float32)
        second = scaled_mm(a, b, of_tiles[0], recipe, of_tiles[1], recipe, bias=bias.to(device), **swizzle)
        plain = scaled_mm(a, b, scale_a.to(device), recipe, scale_b.to(device), recipe, output_dtype=torch.float32)
        out = torch._scaled_mm(a, b, *of_tiles, out_dtype=torch.bfloat16, out=torch.empty(0, dtype=torch.bfloat16, device=device))
    torch.testing.assert_close(first.cpu().double(), expected + bias, **close)
    torch.testing.assert_close(plain.cpu().double(), expected, **close)
    assert torch.equal(second, first) and torch.equal(out, plain.bfloat16())


def test_two_levels_of_scales(device):
    """The canonical form of nvfp4: scales of blocks, and one of each tensor."""
    a, scale_a, x = operand("nvfp4", 20, 64)
    b, scale_b, y = operand("nvfp4", 12, 64)
    recipes = [ScalingType.BlockWise1x16, ScalingType.TensorWise]
    swizzle = [SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE]

    def of(scale, whole):
        return [tiled(scale).to(device), torch.tensor(whole).to(device)]

    with strict():
        ours = scaled_mm(a.to(device), b.to(device).t(), of(scale_a, 0.5), recipes, of(scale_b, 0.75), recipes, swizzle, swizzle, output_dtype=torch.float32)
    torch.testing.assert_close(ours.cpu().double(), x @ y.t() * 0.375, rtol=1e-5, atol=1e-3)


def test_every_code_and_every_scale(device):
    """Each of the 16 elements with each of 256 scales: a product with the unit matrix is exact."""
    codes = torch.arange(16, dtype=torch.uint8).repeat(256, 1)
    packed, unit = (codes[:, ::2] | codes[:, 1::2] << 4).view(FLOAT4), torch.eye(16, dtype=torch.uint8) * 2
    ones = torch.ones(16, 1).to(E4M3)
    scales = torch.arange(256, dtype=torch.uint8).view(E4M3).reshape(256, 1)
    with strict():
        ours = scaled_mm(packed.to(device), (unit[:, ::2] | unit[:, 1::2] << 4).view(FLOAT4).to(device).t(), scales.to(device), ScalingType.BlockWise1x16,
                         ones.to(device), ScalingType.BlockWise1x16, output_dtype=torch.float32)  # fmt: skip
    expected = NUMBERS.float() * scales.float()
    expected[expected == 0] = 0  # the sum of products has no negative zero
    assert torch.equal(ours.cpu().nan_to_num(99), expected.nan_to_num(99))


def test_sliced_and_compiled_operands(device):
    a, scale_a, x = operand("nvfp4", 40, 64)
    b, scale_b, y = operand("nvfp4", 16, 64)
    recipe = ScalingType.BlockWise1x16

    def program(a, b, of_a, of_b):
        return scaled_mm(a, b, of_a, recipe, of_b, recipe, output_dtype=torch.float32) + 1

    with strict(), torch_backend.lazy.record():
        half = a.view(torch.uint8).to(device)[::2].view(FLOAT4)
        ours = program(half, b.to(device).t(), scale_a.to(device)[::2], scale_b.to(device))
    torch.testing.assert_close(ours.cpu().double(), x[::2] @ y.t() + 1, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("change, error", [
    (dict(scale_a=torch.ones(511).to(E4M3)), "expected 512 scales in tiles of 128 x 4 for 5 x 64 elements in blocks of 16 but got a tensor of sizes .511."),
    (dict(scale_b=torch.ones(5, 4).to(E4M3)), "expected 512 scales in tiles of 128 x 4 for 8 x 64 elements"),
    (dict(scale_b=torch.ones(512).to(E8M0)), "float4 matrices with float8_e4m3fn scales, or .*, but got Float4_e2m1fn_x2 and .* with Float8_e4m3fn and Float8_e8m0"),
    (dict(scale_a=torch.ones(5, 1), scale_b=torch.ones(1, 8)), "expected float4 matrices with float8_e4m3fn scales"),
    (dict(mat2=torch.ones(32, 8).to(E4M3)), "but got Float4_e2m1fn_x2 and Float8_e4m3fn"),
    (dict(self=torch.ones(5, 32).to(E4M3), mat2=torch.ones(32, 8).to(E4M3)), "or float4 or float8 matrices with float8_e8m0fnu scales, but got Float8_e4m3fn"),
    (dict(mat2=torch.ones(16, 8, dtype=torch.uint8).view(FLOAT4)), "cannot be multiplied"),
    (dict(out_dtype=None), "results of float4 are not supported; pass another out_dtype"),
])  # fmt: skip
def test_invalid_products_of_blocks_are_one_error(device, change, error):
    a, b = (torch.ones(rows, 32, dtype=torch.uint8).view(FLOAT4) for rows in (5, 8))
    call = dict(self=a, mat2=b.t(), scale_a=torch.ones(512).to(E4M3), scale_b=torch.ones(512).to(E4M3), out_dtype=torch.float32)
    call = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in {**call, **change}.items()}
    with strict(), pytest.raises(RuntimeError, match=error):
        torch.ops.aten._scaled_mm(call.pop("self"), **call)


@pytest.mark.parametrize("recipes, scale, error", [
    ([ScalingType.BlockWise1x32], torch.ones(5, 4).to(E4M3), r"BlockWise1x32 with float8_e8m0fnu scales, but got the recipes \[3\] and \[3\] with scales of Float8_e4m3fn"),
    ([ScalingType.BlockWise1x16], torch.ones(5, 5).to(E4M3), "expected 20 scales for 5 x 64 elements in blocks of 16"),
    ([ScalingType.BlockWise1x16, ScalingType.RowWise], torch.ones(5, 4).to(E4M3), "a second TensorWise scale"),
    ([ScalingType.TensorWise], torch.ones(1), "expected for both matrices BlockWise1x16"),
])  # fmt: skip
def test_invalid_recipes_of_blocks_are_one_error(device, recipes, scale, error):
    a = torch.ones(5, 32, dtype=torch.uint8).view(FLOAT4).to(device)
    scales = [scale.to(device), torch.ones(1).to(device)][: len(recipes)]
    with strict(), pytest.raises(RuntimeError, match=error):
        scaled_mm(a, a.t(), scales, recipes, scales, recipes, output_dtype=torch.float32)
    with strict(), pytest.raises(RuntimeError, match="TensorWise scales of one float32 element but got Float of .2."):
        two = [torch.ones(5, 4).to(E4M3).to(device), torch.ones(2).to(device)]
        both = [ScalingType.BlockWise1x16, ScalingType.TensorWise]
        scaled_mm(a, a.t(), two, both, two, both, output_dtype=torch.float32)


def test_scales_of_blocks_of_128_in_torchs_order(device):
    """torch.nn.functional.scaled_mm: the scales of a column of mat2 are a row, those of squares are padded."""
    a, b = torch.randn(256, 384).to(E4M3), torch.randn(136, 384).to(E4M3)
    of_a, of_b, squares = torch.rand(256, 3), torch.rand(136, 3), torch.rand(4, 2)

    def each(scale, rows):
        return scale.double().repeat_interleave(128, 1) if len(scale) == rows else scale[:3].t().double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows]

    kinds = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    for (scale_a, kind_a), (scale_b, kind_b) in [((of_a, kinds[0]), (of_b, kinds[0])), ((of_a, kinds[0]), (squares, kinds[1])), ((squares, kinds[1]), (of_b, kinds[0]))]:
        expected = (a.double() * each(scale_a, 256)) @ (b.double() * each(scale_b, 136)).t()
        with strict():
            ours = scaled_mm(a.to(device), b.to(device).t(), scale_a.to(device), kind_a, scale_b.to(device), kind_b, output_dtype=torch.float32)
        torch.testing.assert_close(ours.cpu().double(), expected, rtol=1e-5, atol=1e-3)


def compiled_calls(device):
    """Returns calls whose scales inductor's own lowering of the operator drops, or refuses."""
    a, scale_a, _ = operand("nvfp4", 20, 64)
    b, scale_b, _ = operand("nvfp4", 12, 64)
    x, y = torch.randn(256, 384).to(E4M3).to(device), torch.randn(136, 384).to(E4M3).to(device)
    half, two = torch.tensor(0.5).to(device), [ScalingType.BlockWise1x16, ScalingType.TensorWise]
    plain, tiles, rows = [s.to(device) for s in (scale_a, scale_b)], [tiled(s).to(device) for s in (scale_a, scale_b)], torch.rand(256, 3).to(device)
    swizzle = [SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE]
    a, b = a.to(device), b.to(device).t()
    return {
        "blocks": lambda: scaled_mm(a, b, plain[0], two[0], plain[1], two[0], output_dtype=torch.float32),
        "two levels": lambda: scaled_mm(a, b, [plain[0], half], two, [plain[1], half], two, output_dtype=torch.float32),
        "tiles": lambda: scaled_mm(a, b, [tiles[0], half], two, [tiles[1], half], two, swizzle, swizzle, output_dtype=torch.float32),
        "blocks of 128": lambda: scaled_mm(x, y.t(), rows, ScalingType.BlockWise1x128, rows[:136], ScalingType.BlockWise1x128, output_dtype=torch.float32),
        "scale of the result": lambda: torch._scaled_mm(x, y.t(), half, half, scale_result=half * 0.01, out_dtype=E4M3).float(),
        "rows of mat2": lambda: torch._scaled_mm(x, y.t().contiguous(), half, half, out_dtype=torch.float32),
    }


@pytest.mark.parametrize("name", ["blocks", "two levels", "tiles", "blocks of 128", "scale of the result", "rows of mat2"])
def test_compiled_products_have_all_their_scales(device, name):
    call = compiled_calls(device)[name]
    assert torch.equal(torch.compile(lambda: call() + 1)(), call() + 1)
