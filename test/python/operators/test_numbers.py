"""Numbers of another kind than the tensors: complex numbers without and with an imaginary part, and bools, given to
operators of real tensors. The reference is the CPU: the result, or the error and its text."""

import pytest
import torch

INPUTS = {
    "float32": torch.tensor([1.0, -0.5, 5.0, 7.0]),
    "float16": torch.tensor([1.0, -0.5, 5.0, 7.0]).half(),
    "int64": torch.tensor([1, 0, 5, 7]),
    "bool": torch.tensor([True, False, True, True]),
}
PROGRAMS = {
    "clamp min": lambda x, n: x.clamp(min=n),
    "clamp max": lambda x, n: x.clamp(max=n),
    "clamp both": lambda x, n: x.clamp(1, n),
    "clamp_ max": lambda x, n: x.clone().clamp_(max=n),
    "clamp out": lambda x, n: torch.clamp(x, max=n, out=torch.empty_like(x)),
    "clamp_max": lambda x, n: torch.clamp_max(x, n),
    "clamp_min_": lambda x, n: torch.clamp_min_(x.clone(), n),
    "addr alpha": lambda x, n: torch.addr(x.expand(4, 4), x, x, alpha=n),
    "addr beta": lambda x, n: torch.addr(x.expand(4, 4), x, x, beta=n),
    "addmm": lambda x, n: torch.addmm(x.expand(4, 4), x.expand(4, 4), x.expand(4, 4), beta=n, alpha=n),
    "addmv": lambda x, n: torch.addmv(x, x.expand(4, 4), x, beta=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "index_add": lambda x, n: x.index_add(0, torch.tensor([0, 2], device=x.device), x[:2], alpha=n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0, 2], device=x.device), n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "add": lambda x, n: x + n,
    "add alpha": lambda x, n: torch.add(x, x, alpha=n),
    "add_": lambda x, n: x.clone().add_(n),
    "mul": lambda x, n: n * x,
    "pow": lambda x, n: x**n,
    "lerp": lambda x, n: torch.lerp(x, x + 1, n),
    "eq": lambda x, n: x == n,
    "fill_": lambda x, n: torch.empty_like(x).fill_(n),
    "where": lambda x, n: torch.where(x > 1, x, n),
    "threshold": lambda x, n: torch.nn.functional.threshold(x, n, n),
    "leaky_relu": lambda x, n: torch.nn.functional.leaky_relu(x, n),
    "elu": lambda x, n: torch.nn.functional.elu(x, n),
    "softshrink": lambda x, n: torch.nn.functional.softshrink(x, n),
    "dist": lambda x, n: torch.dist(x, x + 1, n),
    "norm": lambda x, n: torch.linalg.vector_norm(x, n),
    "constant_pad": lambda x, n: torch.constant_pad_nd(x, [1, 1], n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([0, 2], device=x.device), n),
    "full_like": lambda x, n: torch.full_like(x, n),
    "foreach_add": lambda x, n: torch._foreach_add([x], n)[0],
}


def outcome(program, x, number):
    try:
        return program(x, number).cpu()
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        return type(error), str(error).split("\n")[0]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("number", [2 + 0j, 1 + 2j, 2j, True, False], ids=str)
@pytest.mark.parametrize("dtype", INPUTS)
def test_numbers_of_other_kinds(device, dtype, number, name):
    x, program = INPUTS[dtype], PROGRAMS[name]
    ours, theirs = outcome(program, x.to(device), number), outcome(program, x, number)
    if isinstance(theirs, tuple):
        assert ours == theirs
    else:
        torch.testing.assert_close(ours, theirs, equal_nan=True)
