"""torch.compile(dynamic=True) of modules and operators, forward and backward, produces the CPU's results for several
sizes.

The device selects operators and layouts by sizes, which are symbolic while a graph is traced.
"""

import pytest
import torch
from databases import detached, difference, in_double, module_cases, on_the_cpu, operator_cases, outcome
from leaves import floating_leaves, is_floating, to, weighted_sum
from torch.utils import _pytree as pytree

pytestmark = pytest.mark.filterwarnings("ignore")


def doubled(dims):
    """Returns a function that doubles the tensors of a tree along some dimensions, without ties for sorts."""

    def change(x):
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
            return x
        larger = x.detach()
        for dim in dims(x.dim()):
            larger = torch.cat([larger, larger * 0.7310585 + 0.01 if is_floating(x) else larger], dim) if larger.shape[dim] else larger
        return larger.requires_grad_(x.requires_grad)

    return lambda tree: pytree.tree_map(change, tree)


CHANGES = [doubled(dims) for dims in (lambda n: range(min(n, 1)), lambda n: range(n)[-1:], range, lambda n: range(1, n - 1), lambda n: range(n)[1:2])]


def shapes(tree):
    return [x.shape for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def with_gradients(tree):
    return pytree.tree_map(lambda x: x.detach().requires_grad_() if is_floating(x) else x, tree)


class Calls:
    """A case with the operands of several calls, which differ in sizes. All calls have the same parameters."""

    def __init__(self, case):
        self.case = case
        self.function = on_the_cpu(case.make, "cpu", torch.float32)
        operands, self.parameters = case.arguments[:2], with_gradients(case.arguments[2:])
        self.operands = [next((tree for tree in (with_gradients(operands), operands) if self.runs(tree)), operands)]
        for change in CHANGES:
            other = change(self.operands[0])
            if len(self.operands) < 3 and shapes(other) not in map(shapes, self.operands) and self.runs(other):
                self.operands.append(other)

    def runs(self, operands):
        return not isinstance(on_the_cpu(self.on, "cpu", self.function, [operands]), Exception)

    def on(self, place, function, operands=None, widened=lambda tree: tree):
        """Returns the results and gradients of all calls, or the exception."""

        def call(*arguments):
            leaves = [x for x in pytree.tree_leaves(arguments) if is_floating(x) and x.requires_grad]
            results = function(*arguments)
            differentiable = [x for x in floating_leaves(results) if x.requires_grad]
            if not differentiable or not leaves:
                return detached(pytree.tree_leaves(results)), None
            return detached(pytree.tree_leaves(results)), torch.autograd.grad(weighted_sum(differentiable), leaves, allow_unused=True)

        results = [outcome(call, widened((*tree, *self.parameters)), place) for tree in operands or self.operands]
        return next((result for result in results if isinstance(result, Exception)), results)

    def compiled_on(self, place, fullgraph):
        torch._dynamo.reset()
        function = self.case.make(place, torch.float32)
        return self.on(place, torch.compile(function, backend="aot_eager", dynamic=True, fullgraph=fullgraph))


def difference_of(case, device, modes):
    """Returns (the difference or None, the number of sizes).

    The number is 0 if the CPU raises an error, or differs itself when it is compiled.
    """
    calls = Calls(case)
    if isinstance(expected := on_the_cpu(calls.on, "cpu", calls.function), Exception):
        return None, 0

    def judged(results):
        if isinstance(results, Exception):
            return f"{type(results).__name__}: {str(results)[:400]}"
        exact = lambda: on_the_cpu(calls.on, "cpu", case.make("cpu", torch.float64), None, in_double)
        return difference(results, expected, exact)

    for fullgraph in modes:
        text = judged(calls.compiled_on(device, fullgraph))
        if not text:
            return None, len(calls.operands)
        if not judged(on_the_cpu(calls.compiled_on, "cpu", fullgraph)):
            return f"{case.name}, fullgraph={fullgraph}: {text}", len(calls.operands)
    return None, 0


# Without `fullgraph`, PyTorch runs code eagerly that it cannot trace.
def check(cases, device, at_least, of_other_sizes, modes=(True, False)):
    found, sizes = zip(*(difference_of(case, device, modes) for case in cases))
    assert not any(found), "\n".join(filter(None, found))
    assert sum(size > 0 for size in sizes) >= at_least, "too few cases had a result on the CPU"
    assert sum(size > 1 for size in sizes) >= of_other_sizes, "too few cases ran with other sizes"


# For these, the device selects among its own operators by their sizes.
MODULES = {"nn.BatchNorm2d", "nn.GRUCell", "nn.LayerNorm"}
OPERATORS = {"nn.functional.conv2d", "nn.functional.cross_entropy", "nn.functional.embedding_bag", "nn.functional.group_norm",
             "nn.functional.interpolate.bilinear", "nn.functional.logsigmoid", "nn.functional.max_pool2d"}  # fmt: skip


def test_modules_with_operators_of_our_own(device):
    check([case for case in module_cases(torch.float32, 1) if case.name.split(",")[0] in MODULES], device, 4, 3)


def test_operators_of_our_own(device):
    check(list(operator_cases(torch.float32, 1, lambda info: info.full_name in OPERATORS)), device, 7, 6)


@pytest.mark.slow
def test_all_modules(device):
    check(module_cases(torch.float32, 2), device, 200, 100, modes=(False,))


# Random numbers differ from the CPU's; sizes of results of the others depend on data.
@pytest.mark.slow
def test_all_operators(device):
    check(operator_cases(torch.float32, 1, lambda info: True), device, 400, 200, modes=(False,))
