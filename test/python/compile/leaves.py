"""Tensors in trees of arguments and results, for the tests of torch.compile, functorch and FakeTensor."""

import torch
from torch.utils import _pytree as pytree


def to(place, tree):
    """Returns a tree with its tensors as leaves on another device."""

    def move(x):
        return x.detach().to(place).requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

    return pytree.tree_map(move, tree)


def is_floating(x):
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def floating_leaves(tree):
    return [x for x in pytree.tree_leaves(tree) if is_floating(x)]


def weighted_sum(tree):
    """Returns a number with another gradient for each element of the tensors."""

    def weights(x):
        return torch.arange(1, x.numel() + 1, dtype=torch.float64, device=x.device).reshape(x.shape).cos().to(x.dtype)

    return sum((x * weights(x)).sum() for x in floating_leaves(tree))
