"""Results have the CPU's memory layout, also where dimensions of size 1 make the order ambiguous: `is_contiguous()`
ignores their strides, and TensorIterator sorts dimensions by them. torch.compile plans memory with the CPU's rule."""

import pytest
import torch
import torch.nn.functional as F

SHAPES = [(10, 3, 1, 1), (1, 3, 1, 1), (10, 1, 4, 1), (10, 1, 1, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 5), (1, 1, 1, 1), (5, 1), (1, 5), (1, 4, 1),
          (3, 1, 2), (2, 3, 4, 5)]  # fmt: skip
OPERATORS = {
    "tensor * number": lambda x: x * 5, "number * tensor": lambda x: 5 * x, "number - tensor": lambda x: 1 - x, "tensor / number": lambda x: x / 2,
    "tensor // number": lambda x: x // 2, "add with alpha": lambda x: torch.add(x, 1, alpha=2), "half + number": lambda x: x.half() + 1,
    "tensor > number": lambda x: x > 0, "tensor == number": lambda x: x == 1, "tensor == tensor": lambda x: x == x,
    "tensor + 0-dimensional": lambda x: x + torch.tensor(2.0, device=x.device), "tensor + row": lambda x: x + torch.ones(x.shape[-1], device=x.device),
    "tensor * one element": lambda x: x * torch.ones(1, device=x.device), "tensor + column": lambda x: x + x[..., :1],
    "tensor + tensor": lambda x: x + x, "maximum": torch.maximum, "atan2": torch.atan2, "addcmul": lambda x: torch.addcmul(x, x, x),
    "lerp": lambda x: torch.lerp(x, x, 0.5), "promotion": lambda x: x.double() + x, "where": lambda x: torch.where(x > 0, x, 0.0),
    "pow": lambda x: x**2, "a broken power": lambda x: x.abs() ** 3.5, "clamp": lambda x: x.clamp(0, 1), "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh,
    "relu": torch.relu, "exp": torch.exp, "neg": torch.neg, "not": lambda x: ~(x > 0), "gelu": F.gelu, "softplus": F.softplus, "isnan": torch.isnan,
    "copysign": lambda x: torch.copysign(x, -1), "gelu_backward": lambda x: torch.ops.aten.gelu_backward(x, x),
    "threshold_backward": lambda x: torch.ops.aten.threshold_backward(x, x, 0.0), "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "clone": torch.clone, "contiguous": lambda x: x.contiguous(), "empty_like": torch.empty_like, "full_like": lambda x: torch.full_like(x, 2),
    "double": lambda x: x.double(), "half": lambda x: x.half(),
}  # fmt: skip
BINARY = {"maximum", "atan2"}


def layouts(shape):
    """Tensors of a shape in other orders; the last one has strides in dimensions of size 1 that no new tensor has."""
    yield torch.randn(shape)
    if len(shape) == 4:
        yield torch.randn(shape).contiguous(memory_format=torch.channels_last)
    yield torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))
    yield torch.randn(*shape[:-1], shape[-1] * 2)[..., ::2]
    strides, count = [], 1
    for size in reversed(shape):
        strides.insert(0, 7 if size == 1 else count)
        count *= size
    yield torch.empty_strided(shape, strides).normal_()


@pytest.mark.parametrize("name", OPERATORS)
def test_strides_of_results(name, device):
    operator, judged = OPERATORS[name], 0
    for shape in SHAPES:
        for x in layouts(shape):
            y = torch.empty_strided(x.shape, x.stride(), device=device).copy_(x)
            operands = (x, x) if name in BINARY else (x,)
            expected, result = operator(*operands), operator(*((y,) * len(operands)))
            assert result.stride() == expected.stride(), (shape, x.stride())
            if "empty" not in name:
                torch.testing.assert_close(result.cpu(), expected)
            judged += 1
    assert judged > 50
