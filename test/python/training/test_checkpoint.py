"""torch.utils.checkpoint on the device: the second forward uses the random numbers, the autocast mode and the device of
the first one."""

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

both_kinds = pytest.mark.parametrize("reentrant", [True, False])


def make_net(device, seed=5):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.4), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)


def gradients(net, x, forward):
    x = x.detach().clone().requires_grad_()
    torch.manual_seed(11)
    result = forward(x)
    result.sum().backward()
    return [result.detach().cpu(), x.grad.cpu(), *(parameter.grad.cpu() for parameter in net.parameters())]


@both_kinds
@pytest.mark.parametrize("index", [0, 1])
def test_gradients_with_dropout_are_those_without_checkpointing(device, reentrant, index):
    device = f"{device}:{index}"
    net, twin, x = make_net(device), make_net(device), torch.randn(8, 16, device=device)
    plain = gradients(net, x, net)
    saved = gradients(twin, x, lambda x: checkpoint(twin, x, use_reentrant=reentrant))
    assert all(map(torch.equal, plain, saved))


def test_gradients_are_the_cpus(device):
    net, x = make_net("cpu").eval(), torch.randn(8, 16)
    expected = gradients(net, x, net)
    twin = make_net("cpu").eval().to(device)
    actual = gradients(twin, x.to(device), lambda x: checkpoint(twin, x, use_reentrant=False))
    torch.testing.assert_close(actual, expected)


def run_twice(device, argument, reentrant, body, **options):
    """Runs a checkpointed function that calls `body`, and the backward pass; returns the states that both forwards
    observed."""
    weight, seen = torch.randn(64, 64, device=device, requires_grad=True), []

    def function(x):
        result, sight = body(x.to(device) @ weight)
        seen.append(sight)
        # after the compared values: without reentrance the second forward ends early
        return torch.relu(result) @ weight

    checkpoint(function, argument, use_reentrant=reentrant, **options).float().sum().backward()
    assert len(seen) == 2
    return seen


def dropped(product):
    result = nn.functional.dropout(product, 0.5)
    return result, (result == 0).cpu()


@both_kinds
def test_the_state_of_the_generators_is_kept_and_put_back(module, device, reentrant):
    argument, states = torch.randn(8, 64, device=f"{device}:1", requires_grad=True), []

    def body(product):
        states.append(module.get_rng_state(1))
        result, zeros = dropped(product)
        states.append(module.get_rng_state(1))
        return result, zeros

    first, second = run_twice(f"{device}:1", argument, reentrant, body)
    assert torch.equal(first, second)
    assert torch.equal(states[0], states[2]) and torch.equal(states[1], states[3]) and not torch.equal(states[0], states[1])
    assert torch.equal(module.get_rng_state(1), states[1])  # as after one forward pass: backward consumed no numbers


@both_kinds
def test_without_preserving_the_second_forward_generates_new_numbers(device, reentrant):
    argument = torch.randn(8, 64, device=device, requires_grad=True)
    first, second = run_twice(device, argument, reentrant, dropped, preserve_rng_state=False)
    assert not torch.equal(first, second)


@both_kinds
@pytest.mark.parametrize("place", ["device", "cpu"])
def test_autocast_is_the_same_in_the_second_forward(device, reentrant, place):
    argument = torch.randn(8, 64, device=device if place == "device" else "cpu", requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert run_twice(device, argument, reentrant, lambda product: (product, product.dtype)) == [torch.bfloat16] * 2


@both_kinds
def test_a_function_over_two_devices(device, reentrant):
    """One after the other: PyTorch lets the backward threads of two devices race for the second forward of a function
    (pytorch#96764)."""
    a = torch.randn(4, 4, device=f"{device}:0", requires_grad=True)
    b = torch.randn(4, 4, device=f"{device}:1", requires_grad=True)
    seen = []

    def function(a, b):
        masks = [nn.functional.dropout(torch.ones_like(x), 0.5) for x in (a, b)]
        seen.append([mask.cpu() for mask in masks])
        return ((a * masks[0]).exp().to(b.device) * b * masks[1]).exp().sum()

    checkpoint(function, a, b, use_reentrant=reentrant).backward()
    assert all(map(torch.equal, *seen)) and a.grad.device.index == 0 and b.grad.device.index == 1


@both_kinds
def test_checkpoint_sequential(device, reentrant):
    net, twin, x = make_net(device), make_net(device), torch.randn(8, 16, device=device)
    plain = gradients(net, x, net)
    saved = gradients(twin, x, lambda x: checkpoint_sequential(twin, 3, x, use_reentrant=reentrant))
    assert all(map(torch.equal, plain, saved))


def test_nested_checkpoints(device):
    net, twin, x = make_net(device), make_net(device), torch.randn(8, 16, device=device)
    inner = functools.partial(checkpoint, twin[:4], use_reentrant=False)
    saved = gradients(twin, x, lambda x: checkpoint(lambda x: twin[4:](inner(x)), x, use_reentrant=False))
    assert all(map(torch.equal, gradients(net, x, net), saved))


def test_selective_checkpointing_saves_the_products(device):
    net, twin, x = make_net(device), make_net(device), torch.randn(8, 16, device=device)
    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    saved = gradients(twin, x, lambda x: checkpoint(twin, x, use_reentrant=False, context_fn=contexts))
    assert all(map(torch.equal, gradients(net, x, net), saved))


def test_memory_is_saved(module, device):
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(8))).to(device)
    x = torch.randn(4096, 64, device=device, requires_grad=True)

    def held(forward):
        before = module.memory_allocated()
        result = forward(x)
        return module.memory_allocated() - before, result

    assert held(lambda x: checkpoint_sequential(layers, 8, x, use_reentrant=False))[0] < held(layers)[0] / 1.5


def test_a_second_forward_of_another_shape_is_noticed(device):
    shapes = iter([4, 5])
    x = torch.ones(3, device=device, requires_grad=True)
    result = checkpoint(lambda x: (x.sum() * torch.ones(next(shapes), device=device)).exp().sum(), x, use_reentrant=False)
    with pytest.raises(CheckpointError, match=f"(?s)different metadata.*{device}"):
        result.backward()


@pytest.mark.parametrize("pinned", [False, True])
def test_saved_tensors_on_the_cpu(device, pinned):
    net, twin, x = make_net(device), make_net(device), torch.randn(8, 16, device=device)

    def forward(x):
        with torch.autograd.graph.save_on_cpu(pin_memory=pinned):
            return twin(x)

    assert all(map(torch.equal, gradients(net, x, net), gradients(twin, x, forward)))
