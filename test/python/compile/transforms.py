"""Transforms of functions of tensors: computations of torch.func and autograd with a function, to compare devices.

Each takes a function and its arguments, of which the floating tensors are differentiated and batched."""

import torch
from leaves import floating_leaves, is_floating, weighted_sum
from torch.autograd import forward_ad
from torch.func import grad, jvp, vjp, vmap
from torch.utils import _pytree as pytree


def _by_tensors(function, arguments):
    """Returns a function of only the floating tensors in `arguments`, and these tensors."""
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


def _tangent(x):
    return (x * 3).cos()


def forward_mode(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    return jvp(call, tuple(tensors), tuple(map(_tangent, tensors)))


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


# ---- batches of some operands, and of batches ----
def _batched_where(is_batched, call, tensors):
    """Applies a function over the last dimension of some tensors; raises an error if it would be all or none."""
    chosen = [is_batched(place) for place in range(len(tensors))]
    if all(chosen) or not any(chosen):
        raise ValueError("no operand with and one without a batch")
    operands = [torch.stack([x, x * 0.5], -1) if batched else x for x, batched in zip(tensors, chosen)]
    return vmap(call, in_dims=tuple(-1 if batched else None for batched in chosen), randomness="same")(*operands)


def _is_first(place):
    return place == 0


def _is_not_first(place):
    return place != 0


def batched_first(function, arguments):
    return _batched_where(_is_first, *_by_tensors(function, arguments))


def batched_rest(function, arguments):
    return _batched_where(_is_not_first, *_by_tensors(function, arguments))


def _gradients(call, tensors):
    return grad(lambda *x: weighted_sum(call(*x)), argnums=tuple(range(len(tensors))))


def per_sample_gradients_of_first(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    return _batched_where(_is_first, _gradients(call, tensors), tensors)


def per_sample_gradients_of_rest(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    return _batched_where(_is_not_first, _gradients(call, tensors), tensors)


def nested_batches(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    return vmap(vmap(call, randomness="same"), randomness="same")(*_batch(_batch(tensors)))


# ---- forward mode outside torch.func, and combinations of both modes ----
def _unpacked(duals):
    return [tuple(forward_ad.unpack_dual(x)) for x in duals if x is not None]


def dual_numbers(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    with forward_ad.dual_level():
        return _unpacked(call(*(forward_ad.make_dual(x.detach(), _tangent(x.detach())) for x in tensors)))


def dual_numbers_of_gradients(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    with forward_ad.dual_level():
        leaves = [x.detach().requires_grad_() for x in tensors]
        total = weighted_sum(call(*(forward_ad.make_dual(x, _tangent(x.detach())) for x in leaves)))
        return _unpacked(torch.autograd.grad(total, leaves, allow_unused=True))


def forward_over_reverse(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    return jvp(_gradients(call, tensors), tuple(tensors), tuple(map(_tangent, tensors)))


def reverse_over_forward(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    tangents = tuple(map(_tangent, tensors))
    return _gradients(lambda *x: jvp(call, x, tangents), tensors)(*tensors)


def reverse_over_reverse(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    return _gradients(_gradients(call, tensors), tensors)(*tensors)


def batched_tangents(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    tangents = [torch.stack([_tangent(x), x.sin()]) for x in tensors]
    return vmap(lambda *t: jvp(call, tuple(tensors), t), randomness="same")(*tangents)


def batched_cotangents(function, arguments):
    call, tensors = _by_tensors(function, arguments)
    results, backward = vjp(call, *tensors)
    return vmap(backward, randomness="same")([torch.stack([x.cos(), x.sin()]) for x in results])


TRANSFORMS = [batched, per_sample_gradients, forward_mode, double_backward, batched_gradients]
COMBINATIONS = [
    batched_first,
    batched_rest,
    per_sample_gradients_of_first,
    per_sample_gradients_of_rest,
    nested_batches,
    dual_numbers,
    dual_numbers_of_gradients,
    forward_over_reverse,
    reverse_over_forward,
    reverse_over_reverse,
    batched_tangents,
    batched_cotangents,
]
