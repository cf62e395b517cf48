"""torch.autocast and GradScaler on the device, as on CUDA."""

import pytest
import torch
from torch import nn

import torch_backend
from torch_backend.fallback import strict

torch.manual_seed(0)


def operators_with_kernel(key):
    return {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")
            and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}  # fmt: skip


def test_the_lists_are_those_of_cuda():
    cuda = operators_with_kernel("AutocastCUDA")
    assert len(cuda) > 100
    networks = {f"aten::{kind}.{form}" for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu") for form in ("input", "data")}
    # torch casts a recurrent network for CUDA where it calls cuDNN
    assert operators_with_kernel("AutocastPrivateUse1") == {name for name in cuda if "cudnn" not in name} | networks


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_run_in_the_lower_precision_and_exponentials_in_float32(device, dtype):
    x = torch.randn(4, 4, device=device)
    with torch.autocast(device, dtype=dtype):
        assert (x @ x).dtype is dtype
        assert nn.functional.linear(x, x).dtype is dtype
        assert torch.exp(x.to(dtype)).dtype is torch.float32
        assert torch.softmax(x.to(dtype), -1).dtype is torch.float32
        assert (x.to(dtype) + x).dtype is torch.float32
        assert torch.relu(x.to(dtype)).dtype is dtype
        assert x.to(dtype).norm().dtype is torch.float32
    assert (x @ x).dtype is torch.float32


def test_attention_takes_mixed_operands(device):
    query = torch.randn(2, 2, 5, 8, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = nn.functional.scaled_dot_product_attention(query, query.bfloat16(), query)
    assert result.dtype is torch.bfloat16
    expected = nn.functional.scaled_dot_product_attention(*[query.cpu().bfloat16()] * 3)
    torch.testing.assert_close(result.cpu(), expected, atol=2e-2, rtol=2e-2)


def test_promotion_takes_the_widest_dtype(device):
    a, b = torch.randn(3, device=device), torch.randn(3, device=device).half()
    with torch.autocast(device, dtype=torch.float16):
        assert torch.atan2(a, b).dtype is torch.float32
        assert torch.atan2(b, b).dtype is torch.float16
        assert torch.dot(a, b).dtype is torch.float32


def test_binary_cross_entropy_is_refused(device):
    x = torch.rand(3, device=device)
    with torch.autocast(device, dtype=torch.float16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        nn.functional.binary_cross_entropy(x, x)


def test_disabling_and_nesting(device):
    x = torch.randn(3, 3, device=device)
    with torch.autocast(device, dtype=torch.float16):
        with torch.autocast(device, enabled=False):
            assert (x @ x).dtype is torch.float32
        with torch.autocast(device, dtype=torch.bfloat16):
            assert (x @ x).dtype is torch.bfloat16
        assert (x @ x).dtype is torch.float16


def test_an_unsupported_dtype_warns_and_disables(device):
    x = torch.randn(3, 3, device=device)
    with pytest.warns(UserWarning, match="not supported|only supports"):
        context = torch.autocast(device, dtype=torch.float64)
    with context:
        assert (x @ x).dtype is torch.float32


def test_the_device_module_has_its_own_names(device):
    module = torch.get_device_module(device)
    x = torch.randn(3, 3, device=device)
    with module.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
    assert torch.get_autocast_dtype(device) is torch.float16  # CUDA's default


def make_problem(device):
    generator = torch.Generator().manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    x = torch.randn(64, 8, generator=generator)
    return net.to(device), x.to(device), (x.sum(1, keepdim=True) * 0.5).to(device)


def train(device, dtype, scaler):
    net, x, y = make_problem(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            loss = nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, net


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_training_under_autocast_follows_the_cpu_in_float32(device, dtype):
    losses, net = train(device, dtype, torch.amp.GradScaler(device, init_scale=1024.0))
    plain, _ = train("cpu", torch.bfloat16, torch.amp.GradScaler("cpu", enabled=False))
    assert all(parameter.device.type == device and parameter.dtype is torch.float32 for parameter in net.parameters())
    assert losses[-1] < 0.2 * losses[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(plain), rtol=0.1, atol=0.02)


def test_the_scaler_skips_a_step_with_infinite_gradients_and_halves_the_scale(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.get_device_module(device).amp.GradScaler(init_scale=8.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4.0
    assert weight.tolist() == [1.0, 1.0, 1.0]
    weight.grad = None
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    assert weight.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("layout", ["dense", "strided", "transposed", "empty"])
def test_gradients_are_unscaled_by_a_factor_that_their_dtype_cannot_hold(device, dtype, layout):
    """60000 * 2^-25 is representable in float16, 2^-25 is not. One kernel computes the product, like the CPU."""
    x = torch.full((6, 8), 60000.0, dtype=dtype)
    x[1] = torch.linspace(-3, 3, 8).to(dtype)
    of = {"dense": lambda x: x, "strided": lambda x: x[::2, ::3], "transposed": lambda x: x.t(), "empty": lambda x: x[:0]}[layout]
    for bad in (None, float("inf"), float("nan"), -float("inf")):
        grads = [x.clone(), x.clone()]
        if bad is not None:
            grads[1][0, 0] = bad
        ours = [grad.to(device) for grad in grads]
        found, ours_found, factor = torch.zeros(1), torch.zeros(1, device=device), torch.tensor([2.0**-25])
        torch._amp_foreach_non_finite_check_and_unscale_([of(grad) for grad in grads], found, factor)
        with strict():
            torch._amp_foreach_non_finite_check_and_unscale_([of(grad) for grad in ours], ours_found, factor.to(device))
        assert ours_found.item() == found.item() == float(bad is not None and layout != "empty")
        for a, b in zip(ours, grads):
            torch.testing.assert_close(a.cpu(), b, rtol=0, atol=0, equal_nan=True)


def test_a_gradient_is_unscaled_by_one_kernel(device):
    grads = [torch.ones(3, device=device) for _ in range(5)]
    torch_backend.ops.reset()
    torch._amp_foreach_non_finite_check_and_unscale_(grads, torch.zeros(1, device=device), torch.ones(1, device=device))
    assert sum(row.native for row in torch_backend.ops.report()) == 5


def test_state_of_the_scaler_travels(device):
    scaler = torch.amp.GradScaler(device, init_scale=512.0)
    scaler.scale(torch.ones(1, device=device))
    copy = torch.amp.GradScaler(device)
    copy.load_state_dict(scaler.state_dict())
    assert copy.get_scale() == 512.0


def test_the_modules_autocast_takes_its_arguments_as_torch_cudas(device):
    module, x = torch.get_device_module(device), torch.ones(3, 3, device=device)
    with module.amp.autocast():
        assert (x @ x).dtype is torch.float16
    with module.amp.autocast(True, torch.bfloat16), module.amp.autocast(False):
        assert (x @ x).dtype is torch.float32

    @module.amp.autocast(dtype=torch.bfloat16)
    def product(x):
        return x @ x

    assert product(x).dtype is torch.bfloat16 and not torch.is_autocast_enabled(device)


@pytest.mark.parametrize("kind", ["torch.amp", "module"])
def test_functions_of_our_own_choose_their_precision(device, kind):
    amp = torch.get_device_module(device).amp
    forward_decorator, backward_decorator = {
        "torch.amp": (torch.amp.custom_fwd(device_type=device, cast_inputs=torch.float32), torch.amp.custom_bwd(device_type=device)),
        "module": (amp.custom_fwd(cast_inputs=torch.float32), amp.custom_bwd),
    }[kind]
    seen = []

    class Square(torch.autograd.Function):
        @staticmethod
        @forward_decorator
        def forward(ctx, x):
            ctx.save_for_backward(x)
            seen.append((x.dtype, torch.is_autocast_enabled(device)))
            return x @ x

        @staticmethod
        @backward_decorator
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            seen.append((x.dtype, torch.is_autocast_enabled(device)))
            return grad @ x.t() + x.t() @ grad

    x = torch.ones(3, 3, dtype=torch.float16, device=device, requires_grad=True)
    with torch.autocast(device):
        result = Square.apply(x)
    assert result.dtype is torch.float32
    result.sum().backward()
    assert seen == [(torch.float32, False)] * 2 and x.grad.dtype is torch.float16


def test_torchs_properties_of_autocast_on_the_device(device):
    assert torch.amp.is_autocast_available(device)
    assert not torch.is_autocast_enabled(device)
    torch.set_autocast_dtype(device, torch.bfloat16)
    try:
        with torch.autocast(device):
            assert torch.is_autocast_enabled(device)
            assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype is torch.bfloat16
    finally:
        torch.set_autocast_dtype(device, torch.float16)


def test_the_modules_scaler_takes_its_arguments_as_torch_cudas(device):
    scaler = torch.get_device_module(device).amp.GradScaler(16.0, 4.0, 0.25, 3, enabled=True)
    assert (scaler.get_scale(), scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (16.0, 4.0, 0.25, 3)
    assert scaler.scale(torch.ones(1, device=device)).item() == 16 and scaler.is_enabled()
