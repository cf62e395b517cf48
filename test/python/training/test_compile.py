"""torch.compile: inductor's kernels on the device produce the CPU's numbers, for inference and training, with a busy
stream."""

import pytest
import torch
import torch._inductor.config
from torch import nn

pytestmark = [pytest.mark.host_memory("inductor's C++ kernels read and write device addresses"), pytest.mark.usefixtures("newly_compiled")]


def function(x, y):
    return (torch.relu(x @ y + 1) * 2).sum(-1).softmax(0)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def test_inference(device):
    x, y = torch.randn(8, 16), torch.randn(16, 32)
    compiled = torch.compile(function)
    result = compiled(x.to(device), y.to(device))
    assert result.device.type == device
    torch.testing.assert_close(result.cpu(), function(x, y))


def test_kernels_are_generated(device):
    from torch._inductor.utils import run_and_get_code

    x = torch.randn(64, device=device)
    result, code = run_and_get_code(torch.compile(lambda x: torch.sin(x) * 2 + x.cos()), x)
    assert any("cpp_fused" in source and "queue_on_host(" in source for source in code)
    torch.testing.assert_close(result.cpu(), torch.sin(x.cpu()) * 2 + x.cpu().cos())


def test_training(device):
    reference, x, target = network(), torch.randn(16, 8), torch.randint(0, 4, (16,))
    net = network().to(device)
    step = torch.compile(lambda x, y: nn.functional.cross_entropy(net(x), y))
    for _ in range(3):
        loss = step(x.to(device), target.to(device))
        expected = nn.functional.cross_entropy(reference(x), target)
        loss.backward()
        expected.backward()
        torch.testing.assert_close(loss.cpu(), expected)
        for ours, theirs in zip(net.parameters(), reference.parameters()):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
            with torch.no_grad():
                ours -= 0.1 * ours.grad
                theirs -= 0.1 * theirs.grad
            ours.grad = theirs.grad = None


def test_a_kernel_waits_for_what_is_queued(check_waiting):
    check_waiting()


def test_the_second_device(device):
    x = torch.randn(8, 8)
    result = torch.compile(lambda x: (x * 2).sum(1).exp())(x.to(f"{device}:1"))
    assert result.device == torch.device(device, 1)
    torch.testing.assert_close(result.cpu(), (x * 2).sum(1).exp())


def test_changing_shapes(device):
    compiled = torch.compile(lambda x: (x * 2 + 1).sum(0), dynamic=True)
    for n in (3, 5, 17):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x.to(device)).cpu(), (x * 2 + 1).sum(0))
