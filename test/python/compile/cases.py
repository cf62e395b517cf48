"""Features of users' programs that torch.compile must support, each as a case: a function of a device and of a compile
function, that returns tensors.

As a program, `cases.py DEVICE NAME...`, it runs cases on a device and in the CPU's eager mode, and prints the failed
ones as JSON.
"""

import json
import sys
import traceback

import torch
from torch import nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F
from torch.utils import _pytree as pytree


def eager(function, **options):
    return function


def numbers(place, *shape, begin=-1.0, end=2.0):
    return torch.linspace(begin, end, torch.Size(shape).numel()).reshape(shape).to(place)


def network(make, place):
    torch.manual_seed(0)
    return make().to(place)


# ---- shapes ----
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.last(F.gelu(self.norm(self.first(x))))


def dynamic_shapes(place, compiled):
    function = compiled(network(Block, place), dynamic=True)
    return [function(numbers(place, 2, length, 8)) for length in (5, 7, 12)]


def second_length(place, compiled):
    make = lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    function = compiled(network(make, place))
    return [function(numbers(place, 2, length, 8)) for length in (5, 9, 11)]


def export_of(place, compiled, dynamic):
    module, example = network(Block, place), numbers(place, 2, 6, 8)
    if compiled is eager:
        return [module(example)]
    shapes = ({1: torch.export.Dim("length", min=2, max=64)},) if dynamic else None
    program = torch.export.export(module, (example,), dynamic_shapes=shapes)
    results = [program.module()(example), compiled(program.module())(example)]
    if dynamic:
        assert program.module()(numbers(place, 2, 9, 8)).shape == (2, 9, 8)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    return results[:1]


def export_static(place, compiled):
    return export_of(place, compiled, False)


def export_dynamic(place, compiled):
    return export_of(place, compiled, True)


# ---- control flow: subgraphs ----
def cond(place, compiled):
    function = compiled(lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, torch.cos, (x,)))
    return [function(numbers(place, 6)), function(-numbers(place, 6))]


def nested_cond(place, compiled):
    def inner(x):
        return torch.cond(x[0] > 0, torch.exp, torch.tanh, (x,))

    function = compiled(lambda x: torch.cond(x.sum() > 0, inner, torch.cos, (x,)) + 1)
    return [function(numbers(place, 6)), function(-numbers(place, 6)), function(numbers(place, 6) + 2)]


def loop_while(place, compiled):
    def function(x):
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, (y * 1.5).tanh() + 1), (start, x))

    return compiled(function)(numbers(place, 6))


# Without `fullgraph` torch 2.13 compiles neither of these on the CPU: DataDependentOutputException, as it does not
# trace `item()` then.
def scanned(place, compiled):
    function = compiled(lambda x: scan(lambda carry, row: (carry + row, (carry * row).sin()), torch.zeros_like(x[0]), x), fullgraph=True)
    return function(numbers(place, 3, 4))


def mapped(place, compiled):
    function = compiled(lambda x, y: map_over(lambda row, y: row.sin() * y, x, y), fullgraph=True)
    return function(numbers(place, 3, 4), numbers(place, 4))


@torch.compiler.nested_compile_region
def region(x, weight):
    return F.relu(x @ weight).sin()


def nested_region(place, compiled):
    function = compiled(lambda x, weight: region(region(x, weight) + 1, weight).sum(1))
    x, weight = numbers(place, 3, 4).requires_grad_(), numbers(place, 4, 4).requires_grad_()
    result = function(x, weight)
    result.sum().backward()
    return [result, x.grad, weight.grad]


# ---- training ----
def optimizer_of(cls, foreach):
    def steps(place, compiled):
        parameters = [nn.Parameter(numbers(place, 5)), nn.Parameter(numbers(place, 2, 3))]
        optimizer = cls(parameters, lr=0.1, foreach=foreach)
        step = compiled(optimizer.step)
        for number in range(3):
            for parameter in parameters:
                parameter.grad = parameter.detach().cos() * (number + 1)
            step()
        return [parameter.detach() for parameter in parameters]

    return steps


def training(place, compiled):
    module = network(Block, place)
    function, optimizer = compiled(module), torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = function(numbers(place, 2, 5, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def convolutions(place, compiled):
    make = lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3))
    module, x = network(make, place), numbers(place, 2, 3, 12, 12)
    trained = compiled(module)(x)
    trained.square().mean().backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    with torch.no_grad():
        return [trained, compiled(module.eval())(x), *gradients]


# ---- attention, recurrent cells ----
def attention_of(masked):
    def attend(place, compiled):
        mask = (numbers(place, 4, 4, begin=-3.0) if masked else None,)
        operands = [numbers(place, 1, 2, 4, 8, begin=begin).requires_grad_() for begin in (-1.0, -2.0, -3.0)]
        function = compiled(lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask[0]))
        result = function(*operands, *mask)
        result.sin().sum().backward()
        return [result, *(x.grad for x in operands)]

    return attend


def recurrent_of(cls):
    def run(place, compiled):
        module = network(lambda: cls(4, 8), place)
        x = numbers(place, 3, 4).requires_grad_()
        function = compiled(lambda x: module(x, module(x)))
        state = pytree.tree_leaves(function(x))
        sum(y.sin().sum() for y in state).backward()
        return [*state, x.grad]

    return run


CASES = {
    "dynamic shapes": dynamic_shapes,
    "second length": second_length,
    "export, static": export_static,
    "export, dynamic": export_dynamic,
    "cond": cond,
    "cond in cond": nested_cond,
    "while_loop": loop_while,
    "scan": scanned,
    "map": mapped,
    "nested_compile_region": nested_region,
    **{
        f"{cls.__name__}, foreach={foreach}": optimizer_of(cls, foreach)
        for cls in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
        for foreach in (True, False)
    },
    "training": training,
    "convolutions": convolutions,
    "attention": attention_of(False),
    "attention with a mask": attention_of(True),
    "LSTM cell": recurrent_of(nn.LSTMCell),
    "GRU cell": recurrent_of(nn.GRUCell),
}


def judge(name, device):
    """Runs a case compiled by inductor on a device and in the CPU's eager mode; raises AssertionError where they
    differ."""
    torch._dynamo.reset()
    expected = pytree.tree_leaves(CASES[name]("cpu", eager))
    results = pytree.tree_leaves(CASES[name](device, torch.compile))
    assert all(x.device.type == torch.device(device).type for x in results)
    torch.testing.assert_close([x.cpu() for x in results], expected, rtol=1e-3, atol=1e-4)


def main(device, *names):
    failures = {}
    for name in names or CASES:
        try:
            judge(name, device)
        except Exception:
            failures[name] = traceback.format_exc()[-3000:]
    print(json.dumps({"judged": len(names or CASES), "failures": failures}))


if __name__ == "__main__":
    import torch_backend  # noqa: F401

    main(*sys.argv[1:])
