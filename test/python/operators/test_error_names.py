"""Errors name operators of PyTorch: neither kernels nor the device's internal operators."""

import re

import pytest
import torch
import torch.nn.functional as F

from torch_backend import _C
from torch_backend.fallback import strict

aten = torch.ops.aten
ATEN = {schema.name.removeprefix("aten::") for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")}
OVERLOADS = {f"{schema.name}.{schema.overload_name}".removesuffix(".").removeprefix("aten::") for schema in torch._C._jit_get_all_schemas()}


def ours():
    """The operators of the device that PyTorch does not have."""
    return [name for name in _C.operator_names() if "::" not in name and name not in OVERLOADS]


def indices(*values):
    return lambda device: torch.tensor(values, device=device)


BAD, SQUARE = indices(0, 7), indices([0, 7], [1, 2])
# name: (call, arguments before the index); x is a matrix of 3 x 3, i an index with an invalid element, v a matrix of
# numbers.
INDEXED = {
    "index": lambda x, i, s, v: x[i],
    "index of two": lambda x, i, s, v: x[i, i],
    "index in the second dimension": lambda x, i, s, v: x[:, i],
    "take": lambda x, i, s, v: x.take(i * 5),
    "gather": lambda x, i, s, v: x.gather(0, s),
    "index_select": lambda x, i, s, v: x.index_select(1, i),
    "embedding": lambda x, i, s, v: F.embedding(i, x),
    "embedding_bag": lambda x, i, s, v: F.embedding_bag(s, x),
    "embedding_dense_backward": lambda x, i, s, v: aten.embedding_dense_backward(x[:2], i, 3, -1, False),
    "index_put": lambda x, i, s, v: x.index_put_((i,), v[0, 0]),
    "index_put of two": lambda x, i, s, v: x.index_put_((i, i), v[0, 0]),
    "index_put with sums": lambda x, i, s, v: x.index_put_((i,), v[0, 0], accumulate=True),
    "put": lambda x, i, s, v: x.put_(i * 5, v[0]),
    "put with sums": lambda x, i, s, v: x.put_(i * 5, v[0], accumulate=True),
    "scatter": lambda x, i, s, v: x.scatter(0, s, v),
    "scatter a number": lambda x, i, s, v: x.scatter(0, s, 2.0),
    "scatter with products": lambda x, i, s, v: x.scatter(0, s, v, reduce="multiply"),
    "scatter_add": lambda x, i, s, v: x.scatter_add(0, s, v),
    "scatter_reduce": lambda x, i, s, v: x.scatter_reduce(0, s, v, reduce="amax"),
    "index_add": lambda x, i, s, v: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i, s, v: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i, s, v: x.index_fill(0, i, 1.0),
    "index_reduce": lambda x, i, s, v: x.index_reduce(0, i, x[:2], "amax"),
}
OTHERS = {
    "nll_loss": (lambda x: F.nll_loss(x, torch.full((3,), 5, device=x.device)), "Target 5 is out of bounds"),
    "nll_loss of images": (lambda x: F.nll_loss(x.view(1, 3, 3, 1), torch.full((1, 3, 1), 5, device=x.device)), "Target 5 is out of bounds"),
    "binary_cross_entropy": (lambda x: F.binary_cross_entropy(x + 3, x), "should be between 0 and 1"),
    "bernoulli": (lambda x: torch.bernoulli(x + 3), "should be between 0 and 1"),
    "floor_divide": (lambda x: x.long() // x.new_zeros((), dtype=torch.long), "ZeroDivisionError"),
    "remainder": (lambda x: x.long() % x.new_zeros((), dtype=torch.long), "ZeroDivisionError"),
    "div": (lambda x: torch.div(x.long(), x.new_zeros((), dtype=torch.long), rounding_mode="trunc"), "ZeroDivisionError"),
}


def message(module, call):
    module.synchronize()
    with strict(), pytest.raises((IndexError, RuntimeError)) as raised:
        call()
        module.synchronize()
    module.synchronize()
    return str(raised.value)


def named(text, what):
    """Returns the operator name before a message."""
    found = re.search(rf"(?:^|: )([A-Za-z_0-9.]+): (?:index -?\d+ is out of bounds|.*{what})", text)
    return found[1] if found else None


@pytest.mark.parametrize("lazily", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_bounds_is_one_of_an_operator_of_torch(name, lazily, device, module):
    from torch_backend import lazy

    x, v = torch.rand(3, 3, device=device), torch.rand(2, 2, device=device)
    i, s = BAD(device), SQUARE(device)
    with lazy.record(device) if lazily else strict():
        text = message(module, lambda: INDEXED[name](x, i, s, v))
    operator = named(text, "is out of bounds")
    assert operator is not None, text
    assert operator.split(".")[0] in ATEN and (operator in ATEN or operator in OVERLOADS), text
    assert not any(inner in text for inner in ours()), text


@pytest.mark.parametrize("name", OTHERS)
def test_a_value_that_is_an_error_is_one_of_an_operator_of_torch(name, device, module):
    call, what = OTHERS[name]
    x = torch.rand(3, 3, device=device)
    text = message(module, lambda: call(x))
    operator = named(text, what)
    assert operator is not None and (operator in ATEN or operator in OVERLOADS), text
    assert operator.startswith(name.split(" ")[0]), text


def test_there_are_operators_that_torch_does_not_have():
    assert {"index.lines", "scatter_reduce.lines", "_check_divisor"} <= set(ours())
