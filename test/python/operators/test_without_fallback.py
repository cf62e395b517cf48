"""Operators that ATen implements by others, but registers for its own devices only: they run on the device, not on the CPU."""

import pytest
import torch

import torch_backend


@pytest.fixture
def no_fallback():
    torch_backend.ops.reset()
    yield
    assert not [row.op for row in torch_backend.ops.report() if row.fallback]


def both(call, device, *tensors):
    found, expected = call(*(x.to(device) for x in tensors)), call(*tensors)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", [1, 2.5])
def test_reversed_subtraction(device, no_fallback, alpha):
    x, y = torch.randn(3, 4), torch.randn(4)
    both(lambda a, b: torch.rsub(a, b, alpha=alpha), device, x, y)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_gradients_of_embedding_bags(device, no_fallback, mode, padding):
    weight, words = torch.randn(10, 4), torch.tensor([1, 3, 3, 9, 0, 3, 5, 5])
    offsets, factors = torch.tensor([0, 3, 3, 6]), torch.rand(8)

    def gradient(weight, words, offsets, factors):
        weight, factors = weight.clone().requires_grad_(), factors.clone().requires_grad_(mode == "sum")
        bags = torch.nn.functional.embedding_bag(words, weight, offsets, mode=mode, padding_idx=padding, per_sample_weights=factors if mode == "sum" else None)
        bags.square().sum().backward()
        return torch.cat([weight.grad.flatten(), factors.grad]) if mode == "sum" else weight.grad

    both(gradient, device, weight, words, offsets, factors)


def test_a_step_with_embedding_bags_is_captured(device):
    bag = torch.nn.EmbeddingBag(10, 4, mode="sum").to(device)
    optimizer = torch.optim.SGD(bag.parameters(), lr=0.5)
    words, offsets = torch.tensor([1, 3, 3, 9, 0, 3], device=device), torch.tensor([0, 3, 3], device=device)

    def step():
        optimizer.zero_grad(set_to_none=False)
        bag(words, offsets).square().sum().backward()
        optimizer.step()

    step()
    graph, before = torch.accelerator.Graph(), bag.weight.detach().clone()
    with torch.get_device_module(device).graph(graph):
        step()
    graph.replay()
    found = bag.weight.detach().clone()
    with torch.no_grad():
        bag.weight.copy_(before)
    step()
    assert torch.equal(found, bag.weight.detach()) and not torch.equal(found, before)
