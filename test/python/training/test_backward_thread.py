"""Backward passes run on the calling thread in a process with one device, and on autograd's thread of each device in a
process with several; the user's own setting takes precedence."""

import textwrap
import threading

import pytest
import torch

multithreading = torch._C._is_multithreading_enabled


@pytest.fixture
def lines(run_python):
    """Runs a script on the fake device; returns the lines of its output."""

    def run(script, **settings):
        return run_python(textwrap.dedent(script), TORCH_BACKEND="fake", timeout=300, **settings).stdout.splitlines()

    return run


WHERE = textwrap.dedent("""
    import threading, torch, torch_backend
    torch_backend.use("fake")
    threads = set()
    def step(device):
        x = torch.ones(3, requires_grad=True, device=device)
        x.register_hook(lambda grad: threads.add(threading.get_ident()))
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]
        own = threads == {threading.get_ident()}
        threads.clear()
        return "own" if own else "autograd's"
""")


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_one_device_backward_runs_on_the_calling_thread(lines, asynchronous):
    script = WHERE + textwrap.dedent("""
    print(step("fake:0"))
    results = []
    others = [threading.Thread(target=lambda: results.append(step("fake:0"))) for _ in range(2)]
    for other in others:
        other.start()
        other.join()
    print(*results, sep="\\n")
    """)
    assert lines(script, HAL_FAKE_DEVICES="1", HAL_FAKE_ASYNC=asynchronous) == ["own"] * 3


def test_several_devices_keep_autograds_threads(lines):
    script = WHERE + 'print(step("fake:0"), step("fake:1"), sep="\\n")'
    assert lines(script, HAL_FAKE_DEVICES="2") == ["autograd's"] * 2


def test_the_setting_leaves_it_to_torch(lines):
    assert lines(WHERE + 'print(step("fake"))', HAL_FAKE_DEVICES="1", TORCH_BACKEND_AUTOGRAD_THREADS="1") == ["autograd's"]


def test_the_users_own_setting_holds(lines):
    script = WHERE + textwrap.dedent("""
    print(step("fake"))
    with torch.autograd.set_multithreading_enabled(True):
        print(step("fake"))
    print(step("fake"))
    """)
    assert lines(script, HAL_FAKE_DEVICES="1") == ["own", "autograd's", "own"]


def test_passes_within_passes_and_checkpoints_are_right_on_calling_threads(lines):
    script = """
    import copy, threading, torch, torch_backend
    from torch.utils.checkpoint import checkpoint
    torch_backend.use("fake")
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x
        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                inner = ctx.saved_tensors[0].detach().requires_grad_()
                (inner * inner).sum().backward()
            return grad * inner.grad
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    def gradients(device):
        net = copy.deepcopy(network).to(device)
        x = torch.linspace(-1, 1, 8).reshape(2, 4).to(device).requires_grad_()
        for reentrant in (False, True):
            y = checkpoint(net, Nested.apply(x), use_reentrant=reentrant)
            y.square().sum().backward()
        return [x.grad.cpu(), *(p.grad.cpu() for p in net.parameters())]
    right = []
    def compare():
        for ours, theirs in zip(gradients("fake"), gradients("cpu")):
            torch.testing.assert_close(ours, theirs)
        right.append("right")
    workers = [threading.Thread(target=compare) for _ in range(4)]
    for worker in workers:
        worker.start()
    compare()
    for worker in workers:
        worker.join()
    print(*right, sep="\\n")
    """
    assert lines(script, HAL_FAKE_DEVICES="1") == ["right"] * 5


def test_a_thread_starts_with_torchs_default_and_decides_at_its_first_use(device):
    seen = []

    def use():
        seen.append(multithreading())
        torch.ones(3, device=device)
        seen.append(multithreading())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [True, torch.get_device_module(device).device_count() > 1]
