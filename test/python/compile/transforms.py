"""Transforms of functions of tensors: what torch.func and autograd compute with a function, to compare devices with each other.

Each takes a function and its arguments, of which the floating tensors are differentiated and batched."""

import torch
from conftest import floating_leaves, is_floating, weighted_sum
from torch.func import grad, jvp, vmap
from torch.utils import _pytree as pytree


def _by_tensors(function, arguments):
    """Returns a function of the floating tensors in `arguments` alone, and those."""
    leaves, spec = pytree.tree_flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if is_floating(leaf)]

    def call(*tensors):
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return floating_leaves(function(*pytree.tree_unflatten(filled, spec)))

    return call, [leaves[i] for i in places]


def _batch(tensors):
    return [torch.stack([tensor, tensor * 0.5]) for tensor in tensors]


def batched(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    return vmap(call, randomness="same")(*_batch(tensors))


def per_sample_gradients(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    every = tuple(range(len(tensors)))
    return vmap(grad(lambda *x: weighted_sum(call(*x)), argnums=every), randomness="same")(*_batch(tensors))


def forward_mode(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    return jvp(call, tuple(tensors), tuple((x * 3).cos() for x in tensors))


def _with_graph(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    return [x for x in call(*leaves) if x.requires_grad], leaves


def double_backward(function, arguments):
    results, leaves = _with_graph(function, arguments)
    gradients = torch.autograd.grad(weighted_sum(results), leaves, create_graph=True, allow_unused=True)
    total = sum(x.square().sum() for x in gradients if x is not None and x.requires_grad)
    return [gradients, torch.autograd.grad(total, leaves, allow_unused=True) if isinstance(total, torch.Tensor) else None]


def batched_gradients(function, arguments):
    results, leaves = _with_graph(function, arguments)
    weights = [torch.stack([torch.ones_like(x), x.detach()]) for x in results]
    return torch.autograd.grad(results, leaves, weights, is_grads_batched=True, allow_unused=True) if results else None


TRANSFORMS = [batched, per_sample_gradients, forward_mode, double_backward, batched_gradients]
