"""torch.compile with cpp_wrapper on the device: compiled C++ calls kernels and the device's own operators, with the
CPU's numbers."""

import pytest
import torch
import torch._inductor.config
from torch import nn

import torch_backend

pytestmark = pytest.mark.host_memory("inductor's C++ kernels read and write device addresses")


@pytest.fixture(autouse=True)
def cpp_wrapper(newly_compiled):
    with torch._inductor.config.patch(cpp_wrapper=True):
        yield


FUNCTIONS = {
    "fused": (lambda x: (x.sin() * 2 + x.cos()).sum(1), (6, 8)),
    "products": (lambda x: torch.addmm(x[0], x, x.t() @ x).softmax(-1), (8, 8)),
    "batched": (lambda x: torch.bmm(x, x.transpose(1, 2)).relu(), (3, 4, 5)),
    "sorting": (lambda x: torch.sort(x, dim=1)[0] + torch.topk(x, 2)[0].sum(), (5, 7)),
    "views": (lambda x: torch.cat([x.view(2, 12), x.t().reshape(2, 12)]).cumsum(0), (4, 6)),
    "scatter": (lambda x: torch.zeros_like(x).scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x), (4, 6)),
    "scatter_reduce": (lambda x: x.scatter_reduce(0, torch.zeros_like(x, dtype=torch.int64), x * 2, "amax"), (4, 6)),
    "index_put": (lambda x: x.clone().index_put_((torch.tensor([0, 2, 0], device=x.device),), x[:3], accumulate=True), (4, 6)),
    "fallback": (lambda x: torch.linalg.inv(x @ x.t() + torch.eye(4, device=x.device)), (4, 4)),
    "factories": (lambda x: x + torch.arange(6, device=x.device) + torch.full((6,), 2.0, device=x.device), (4, 6)),
    "attention": (lambda x: nn.functional.scaled_dot_product_attention(x, x, x), (2, 2, 4, 8)),
}


def test_operators_and_kernels(device):
    """In one program, because each compilation takes many seconds; with a kernel of the CPU."""

    def program(inputs, of_the_cpu):
        return [function(x) for x, (function, _) in zip(inputs, FUNCTIONS.values())], of_the_cpu.cos() * 2

    inputs, of_the_cpu = [torch.randn(shape) for _, shape in FUNCTIONS.values()], torch.randn(8)
    results, result_of_the_cpu = torch.compile(program)([x.to(device) for x in inputs], of_the_cpu)
    expected, expected_of_the_cpu = program(inputs, of_the_cpu)
    for name, ours, theirs in zip(FUNCTIONS, results, expected):
        assert ours.device == torch.device(device, 0), name
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4, msg=lambda text: f"{name}: {text}")
    assert result_of_the_cpu.device.type == "cpu"
    torch.testing.assert_close(result_of_the_cpu, expected_of_the_cpu)


def test_streams_of_a_function_are_refused_with_a_cure(device):
    def function(x):
        stream = torch.Stream(device=x.device)
        with stream:
            y = x + 1
        stream.synchronize()
        return y * 2

    with pytest.raises(Exception, match="does not support streams.*cpp_wrapper = False"):
        torch.compile(function)(torch.randn(8, device=device))


def test_it_is_cpp_that_calls_and_waits(device):
    from torch._inductor.utils import run_and_get_cpp_code

    size = 512
    compiled = torch.compile(lambda x: (x @ x).sin())
    x = torch.eye(size, device=device) / 4
    torch_backend.ops.reset()
    _, code = run_and_get_cpp_code(compiled, x)
    assert "torch_backend_wait_for_stream(0);" in code and "at::mm_out(" in code
    rows = {row.op: row for row in torch_backend.ops.report()}
    assert rows["mm"].native >= 1 and not any(row.fallback for row in rows.values())
    expected = torch.full((size,), 4.0).sin()
    for _ in range(20):
        queued = x
        for _ in range(3):
            queued = queued * 2
        torch.testing.assert_close(compiled(queued).cpu().diagonal(), expected)


@pytest.mark.slow
def test_training(device):
    def network():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 3 * 3, 16), nn.LayerNorm(16), nn.GELU(),
                             nn.Linear(16, 4))  # fmt: skip

    x, target = torch.randn(6, 1, 8, 8), torch.randint(0, 4, (6,))
    reference, net = network(), network().to(device)
    step = torch.compile(lambda x, y: nn.functional.cross_entropy(net(x), y))
    loss = step(x.to(device), target.to(device))
    expected = nn.functional.cross_entropy(reference(x), target)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss.cpu(), expected)
    for ours, theirs in zip(net.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # the kernel of the test above waits, too
def test_a_kernel_waits_for_what_is_queued(check_waiting):
    check_waiting()


@pytest.mark.slow
def test_the_second_device_and_changing_shapes(device):
    compiled = torch.compile(lambda x: ((x * 2) @ x.t()).exp().sum(0), dynamic=True)
    for index, n in enumerate((3, 5, 17)):
        x = torch.randn(n, 4) / 4
        place = torch.device(device, index % 2)
        result = compiled(x.to(place))
        assert result.device == place
        torch.testing.assert_close(result.cpu(), ((x * 2) @ x.t()).exp().sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.slow  # the first program has a kernel of the CPU, too
def test_the_cpu_in_the_same_process(device):
    x, y = torch.randn(8), torch.randn(8)
    ours, theirs = torch.compile(lambda x, y: (x.sin() + 1, y.cos() * 2))(x.to(device), y)
    torch.testing.assert_close(ours.cpu(), x.sin() + 1)
    torch.testing.assert_close(theirs, y.cos() * 2)
    assert theirs.device.type == "cpu"
