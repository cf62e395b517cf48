"""torch.optim on the device: each implementation takes the CPU's steps, natively; foreach operators and GradScaler's as
well."""

import copy

import pytest
import torch
from native_reference import native_count
from torch_backend.fallback import strict

OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "SGD, momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "SGD, nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "Adam": (torch.optim.Adam, {"lr": 0.01}),
    "Adam, decay": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95), "maximize": True}),
    "Adam, amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "AdamW, amsgrad": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "Adagrad, decay": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01}),
}
KERNELS = ("_fused_adam_", "_fused_sgd_", "_fused_adagrad_")


def parameters(dtype):
    """Dense, transposed, empty and 0-dimensional: the parameters that a model may have."""
    generator = torch.Generator().manual_seed(5)
    shapes = ((7, 5), (1000,), (0, 3), ())
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    return [*tensors, torch.randn(6, 4, generator=generator, dtype=torch.float64).to(dtype).t()]


def gradients(step, dtype):
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype) for p in parameters(dtype)]


def train(name, where, dtype, steps=4, computed=None, **keywords):
    """Takes some steps and returns the parameters, on the CPU; `computed` is another dtype for the same numbers."""
    make, settings = OPTIMIZERS[name]
    held = [torch.nn.Parameter(p.to(where, computed or dtype)) for p in parameters(dtype)]
    optimizer = make(held, **{**settings, **keywords})
    for step in range(steps):
        for parameter, gradient in zip(held, gradients(step, dtype)):
            parameter.grad = gradient.to(where, computed or dtype)
        optimizer.step()
    return [p.detach().cpu() for p in held]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("way", ["default", "foreach", "fused", "plain"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_equal_the_cpus_without_a_fallback(name, way, dtype, device):
    keywords = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}, "plain": {"foreach": False}}[way]
    theirs = train(name, "cpu", dtype, foreach=False)
    with strict():
        ours = train(name, device, dtype, **keywords)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-13
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["SGD, momentum", "Adam", "AdamW", "Adagrad"])
def test_fused_step_is_one_launch_per_parameter(name, device):
    before = native_count(KERNELS)
    train(name, device, torch.float32, steps=2, fused=True)
    assert native_count(KERNELS) - before == 2 * sum(p.numel() > 0 for p in parameters(torch.float32))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_fused_steps_in_half_precision_are_those_of_double_precision_without_a_fallback(name, dtype, device):
    """The reference is double precision: torch 2.13's own fused SGD does not change half-precision parameters of 16 or
    more elements."""
    exact = train(name, "cpu", dtype, steps=2, computed=torch.float64, foreach=False)
    with strict():
        ours = train(name, device, dtype, steps=2, fused=True)
    tolerance = 4 * torch.finfo(dtype).eps  # parameters and state are rounded at each step
    for a, b in zip(ours, exact):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["SGD, momentum", "Adam", "AdamW"])
def test_learning_rate_may_be_a_tensor_of_either_side(name, device):
    theirs = train(name, "cpu", torch.float32)
    rate = OPTIMIZERS[name][1]["lr"]
    for where in ("cpu", device):
        with strict():
            ours = train(name, device, torch.float32, fused=True, lr=torch.tensor(rate, device=where))
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["SGD, momentum", "Adam", "AdamW", "Adagrad"])
def test_found_infinity_leaves_everything_as_it_was(name, device):
    make, settings = OPTIMIZERS[name]
    held = torch.nn.Parameter(torch.ones(5, device=device))
    optimizer = make([held], fused=True, **settings)
    held.grad = torch.full((5,), 8.0, device=device)
    optimizer.step()
    state = copy.deepcopy([x.cpu() for x in optimizer.state[held].values() if torch.is_tensor(x)])
    value = held.detach().cpu().clone()
    optimizer.grad_scale = torch.tensor(4.0, device=device)
    optimizer.found_inf = torch.tensor(1.0, device=device)
    with strict():
        optimizer.step()
    assert torch.equal(held.detach().cpu(), value)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(state, [x for x in optimizer.state[held].values() if torch.is_tensor(x)]))
    optimizer.found_inf = torch.tensor(0.0, device=device)
    with strict():
        optimizer.step()
    assert held.grad.cpu().tolist() == [2.0] * 5
    assert not torch.equal(held.detach().cpu(), value)


# ---- GradScaler's operators ----
def test_unscaling_finds_infinity_and_nan(device):
    for wrong, expected in ((1.0, 0.0), (float("inf"), 1.0), (-float("inf"), 1.0), (float("nan"), 1.0)):
        grads = [torch.full((3, 2), 4.0, device=device), torch.tensor([1.0, wrong], device=device), torch.zeros(0, device=device)]
        found = torch.zeros(1, device=device)
        with strict():
            torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.tensor([0.5], device=device))
        assert found.item() == expected
        assert grads[0].cpu().tolist() == [[2.0, 2.0]] * 3


def test_scale_grows_and_shrinks_as_on_the_cpu(device):
    for scale, tracker, found in ((8.0, 0, 0.0), (8.0, 2, 0.0), (8.0, 2, 1.0), (3e38, 2, 0.0)):
        results = []
        for where in ("cpu", device):
            tensors = (torch.tensor([scale], device=where), torch.tensor([tracker], dtype=torch.int32, device=where),
                       torch.tensor([found], device=where))  # fmt: skip
            torch._amp_update_scale_(*tensors, 2.0, 0.25, 3)
            results.append([t.cpu() for t in tensors])
        assert all(torch.equal(a, b) for a, b in zip(*results)), (scale, tracker, found, results)


# ---- foreach operators ----
FOREACH = {
    "_foreach_add": ((1.5,), "list"), "_foreach_mul": ((2.0,), "list"), "_foreach_sub": ((0.5,), "list"), "_foreach_div": ((2.0,), "list"),
    "_foreach_maximum": ((0.5,), "list"), "_foreach_minimum": ((0.5,), "list"), "_foreach_clamp_min": ((0.1,), "list"),
    "_foreach_clamp_max": ((0.1,), "list"), "_foreach_pow": ((2.0,), None), "_foreach_sqrt": (None, None), "_foreach_neg": (None, None),
    "_foreach_exp": (None, None), "_foreach_log": (None, None), "_foreach_abs": (None, None), "_foreach_sigmoid": (None, None),
    "_foreach_tanh": (None, None), "_foreach_erf": (None, None), "_foreach_erfc": (None, None), "_foreach_lgamma": (None, None),
    "_foreach_floor": (None, None), "_foreach_ceil": (None, None), "_foreach_round": (None, None), "_foreach_trunc": (None, None),
    "_foreach_frac": (None, None), "_foreach_reciprocal": (None, None), "_foreach_rsqrt": (None, None), "_foreach_sign": (None, None),
    "_foreach_norm": ((2,), None), "_foreach_asin": (None, None), "_foreach_acos": (None, None), "_foreach_atan": (None, None),
    "_foreach_sin": (None, None), "_foreach_cos": (None, None), "_foreach_tan": (None, None), "_foreach_sinh": (None, None),
    "_foreach_cosh": (None, None), "_foreach_expm1": (None, None), "_foreach_log1p": (None, None), "_foreach_log2": (None, None),
    "_foreach_log10": (None, None), "_foreach_lerp": ((0.3,), "both"), "_foreach_addcmul": ((0.5,), "three"),
    "_foreach_addcdiv": ((0.5,), "three"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREACH)
def test_foreach_operators_run_natively(name, device):
    numbers, lists = FOREACH[name]
    numbers = numbers or ()
    generator = torch.Generator().manual_seed(3)
    first, second, third = ([torch.rand(shape, generator=generator) * 0.8 + 0.1 for shape in ((3, 4), (5,), ())] for _ in range(3))
    cases = {None: [(first, *numbers)], "list": [(first, *numbers), (first, second)], "both": [(first, second, *numbers)],
             "three": [(first, second, third, *numbers)]}[lists]  # fmt: skip
    function = getattr(torch, name)
    for case in cases:
        placed = [[t.to(device) for t in x] if isinstance(x, list) else x for x in case]
        with strict():
            ours = function(*placed)
        for a, b in zip(ours, function(*case)):
            torch.testing.assert_close(a.cpu(), b, rtol=3e-6, atol=3e-6)
