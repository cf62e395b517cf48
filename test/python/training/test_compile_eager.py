"""torch.compile without code generation: `eager` (graph capture) and `aot_eager` (traced gradients) train as plain
PyTorch does."""

import pytest
import torch
from torch import nn

COMPILERS = ["eager", "aot_eager"]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Network(nn.Module):
    """A convolution, attention over its positions, and a classifier."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(1, 16, 3, padding=1), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.convolution(x)).flatten(2).transpose(1, 2)
        query, key, value = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        x = x + nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(x.mean(1))


def train(device, compiler=None, steps=5, make=Network, shape=(6, 1, 4, 4), **options):
    """Returns the losses of the steps and the final parameters."""
    torch.manual_seed(0)
    network, x, target = make(), torch.randn(shape), torch.randint(0, 3, (shape[0],))
    network, x, target = network.to(device), x.to(device), target.to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    model = network if compiler is None else torch.compile(network, backend=compiler, **options)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu() for parameter in network.parameters()]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_training_equals_eager_mode_and_the_cpu(device, compiler):
    eager, compiled, cpu = train(device), train(device, compiler, fullgraph=True), train("cpu")
    assert compiled[0] == pytest.approx(eager[0], rel=1e-5) and eager[0] == pytest.approx(cpu[0], rel=1e-4)
    assert compiled[0][-1] < compiled[0][0]
    for ours, theirs in zip(compiled[1], eager[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_recurrent_networks(device, compiler):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.out(self.rnn(x)[0][:, -1])

    results = [train(device, c, make=Recurrent, shape=(5, 6, 4))[0] for c in (None, compiler)]
    assert results[1] == pytest.approx(results[0], rel=1e-5)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_shapes_that_change_are_compiled_once(device, compiler):
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward if compiler == "eager" else aot_module_simplified(graph, inputs, fw_compiler=lambda g, _: make_boxed_func(g.forward))

    from functorch.compile import aot_module_simplified, make_boxed_func

    model = torch.compile(lambda x: (x * 2).softmax(-1).sum(0), backend=counting, dynamic=True)
    for size in (3, 7, 12):
        x = torch.randn(size, 4)
        torch.testing.assert_close(model(x.to(device)).cpu(), (x * 2).softmax(-1).sum(0))
    assert len(graphs) == 1


@pytest.mark.parametrize("compiler", COMPILERS)
def test_views_and_writes_in_place_are_kept(device, compiler):
    def function(x):
        y = x.view(2, 6)[:, 1:4]
        y.mul_(3)
        x.add_(1)
        return y.t(), x

    results = []
    for place, call in (("cpu", function), (device, torch.compile(function, backend=compiler))):
        x = torch.arange(12.0, device=place)
        view, same = call(x)
        assert same is x and view.data_ptr() != 0
        results.append([view.cpu(), x.cpu()])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_random_numbers_follow_the_seed(device):
    dropout = torch.compile(lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x), backend="aot_eager")
    x = torch.ones(1000, device=device)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(dropout(x).cpu())
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_graph_break_and_autocast(device, compiler):
    @torch.compile(backend=compiler)
    def function(x, weight):
        with torch.autocast(device, dtype=torch.bfloat16):
            y = x @ weight
        torch._dynamo.graph_break()
        return y.float().sum() * 2

    x, weight = torch.randn(4, 8), torch.randn(8, 3)
    leaf = weight.to(device).requires_grad_()
    result = function(x.to(device), leaf)
    result.backward()
    expected = (x.bfloat16() @ weight.bfloat16()).float().sum() * 2
    torch.testing.assert_close(result.detach().cpu(), expected, rtol=2e-2, atol=0.5)
    torch.testing.assert_close(leaf.grad.cpu(), (2 * x.sum(0))[:, None].expand(8, 3), rtol=2e-2, atol=0.1)


@pytest.mark.parametrize("options", [{}, {"dropout_p": 0.5}, {"enable_gqa": True}], ids=str)
def test_attention_traces_to_the_devices_operator(device, options):
    from functorch.compile import aot_function, make_boxed_func

    names = []

    def look(graph, _):
        names.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    kv_heads = 1 if "enable_gqa" in options else 2
    leaves = [torch.randn(1, heads, 4, 8).to(device).requires_grad_() for heads in (2, kv_heads, kv_heads)]

    def attend(*leaves):
        return nn.functional.scaled_dot_product_attention(*leaves, **options)

    traced = aot_function(attend, look)
    torch.manual_seed(3)
    result = traced(*leaves)
    grads = torch.autograd.grad(result.sum(), leaves)
    assert any("fused_attention_overrideable" in name for name in names), names
    torch.manual_seed(3)
    expected = attend(*leaves)
    torch.testing.assert_close(result, expected)
    for ours, theirs in zip(grads, torch.autograd.grad(expected.sum(), leaves), strict=True):
        torch.testing.assert_close(ours, theirs)
