"""What inductor's C++ kernels for a device in the host's memory compute and call: the device's functions, masks, and
operators that are called instead of loops.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch._inductor.utils import run_and_get_code

pytestmark = [pytest.mark.host_memory("inductor's C++ kernels read and write device addresses"), pytest.mark.usefixtures("fresh_dynamo")]

SPECIAL = (0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 1e-39, 88.8, -104.0, -87.5, -1.0, -2.0, 3e38, -3e38)
# function: most units of the last place that float32 is wrong
FUNCTIONS = {torch.expm1: 4, torch.log: 1, torch.log1p: 1.5, torch.tanh: 3, torch.sigmoid: 3, torch.erf: 2.5}


def code_of(function, *given):
    _, code = run_and_get_code(torch.compile(function), *given)
    return "\n".join(code)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions_are_accurate(function, device):
    """Also near 0, where exp(x) - 1 and the CPU's own erf of vectors have no correct bit."""
    near = torch.logspace(-30, 0, 4003)
    x = torch.cat([near, -near, torch.linspace(-100, 100, 40009), torch.linspace(-5, 5, 40009), torch.tensor(SPECIAL)])
    result = torch.compile(function)(x.to(device)).cpu()
    expected = function(x.double())
    rounded = expected.float()
    same = (result == rounded) | (result.isnan() & rounded.isnan())
    unit = (torch.nextafter(rounded.abs(), torch.tensor(torch.inf)) - rounded.abs()).double()
    errors = ((result.double() - expected).abs() / unit)[~same]
    assert errors.numel() == 0 or errors.max() <= FUNCTIONS[function], (function, errors.max())
    zeros = x == 0
    if function not in (torch.log, torch.sigmoid):
        assert torch.equal(result[zeros].signbit(), x[zeros].signbit())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)], ids=str)
def test_functions_of_other_dtypes(dtype, tolerance, device):
    def function(x):
        return x.expm1(), x.tanh(), x.sigmoid(), x.erf(), (x.abs() + 1).log(), x.abs().log1p()

    x = torch.linspace(-4, 4, 1003, dtype=dtype)
    for ours, theirs in zip(torch.compile(function)(x.to(device)), function(x.double())):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("count", [1, 7, 8, 15, 16, 17, 31, 33, 4097])
def test_masks_are_read_and_stored(count, device):
    mask, x = torch.rand(count) > 0.5, torch.randn(count)
    kept, positive = torch.compile(lambda m, x: (torch.where(m, x, 0.5), x > 0))(mask.to(device), x.to(device))
    assert torch.equal(kept.cpu(), torch.where(mask, x, 0.5))
    assert torch.equal(positive.cpu(), x > 0)


def test_pooling_backward_is_the_devices_operator_in_the_first_graph_of_a_process(run_python, device, tmp_path):
    """torch traces the first graph before it starts inductor for the device."""
    run_python(f"""
import torch, torch_backend
from torch.nn import functional as F
from torch._inductor.utils import run_and_get_code
x = torch.randn(2, 3, 17, 19)
leaves = [x.clone().to(place).requires_grad_() for place in ("cpu", "{device}")]
F.max_pool2d(leaves[0].relu(), 3, 2).sum().backward()
_, code = run_and_get_code(lambda: torch.compile(lambda x: F.max_pool2d(x.relu(), 3, 2))(leaves[1]).sum().backward())
assert any("max_pool2d_with_indices_backward.default(" in source for source in code), code
assert torch.equal(leaves[0].grad, leaves[1].grad.cpu())
""", TORCHINDUCTOR_CACHE_DIR=tmp_path / "cache", TORCH_BACKEND=device)  # fmt: skip


def test_a_convolution_adds_its_bias(device):
    layer, x = nn.Conv2d(3, 5, 3).to(device), torch.randn(2, 3, 9, 9, device=device)
    code = code_of(lambda x: layer(x), x)
    assert "aten.convolution.default(" in code
    assert "_on_host(" not in "".join(line for line in code.splitlines() if line.startswith("        "))


def test_a_concatenation_is_copies(device):
    """A concatenation in one loop would select the input of each element."""
    x, y = torch.randn(8, 16, 32, device=device), torch.randn(8, 32, 4, device=device)
    compiled = torch.compile(lambda x, y: torch.cat([x, y.transpose(1, 2).sin().transpose(1, 2).reshape(8, 4, 32)], 1) + 1)
    torch.testing.assert_close(compiled(x, y).cpu(), (torch.cat([x.cpu(), y.cpu().sin().reshape(8, 4, 32)], 1) + 1))
    assert "masked" not in code_of(lambda x, y: torch.cat([x, y.reshape(8, 4, 32)], 1) + 1, x, y)


TRANSPOSED = {
    "sum": lambda x, y: (x.transpose(1, 2) + y).sum(-1),
    "layer norm": lambda x, y: F.layer_norm(x.transpose(1, 2) + y, (64,)),
    "variance and sum": lambda x, y: ((x.transpose(1, 2) + y).var(-1), x.transpose(1, 2) + y),
    "maximum": lambda x, y: (x.transpose(1, 2) + y).tanh().amax((0, 1)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_reductions_of_transposed_operands(name, device):
    """Their loops are tiles of vectors."""
    function, x, y = TRANSPOSED[name], torch.randn(8, 64, 16), torch.randn(8, 16, 64)
    found = torch.utils._pytree.tree_leaves(torch.compile(function)(x.to(device), y.to(device)))
    for ours, theirs in zip(found, torch.utils._pytree.tree_leaves(function(x.double(), y.double()))):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-5, atol=1e-5)
