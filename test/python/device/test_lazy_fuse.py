"""torch_backend.lazy.fuse: ordinary programs whose element-wise neighbors run as one kernel, compared with the same programs
without it."""

import pytest
import torch

from torch_backend import lazy

COUNT = 1 << 16


@pytest.fixture(autouse=True)
def stopped():
    lazy.reset_metrics()
    yield
    lazy.stop()
    assert not lazy.is_recording() and not lazy.is_fusing()


def chain(x, y):
    z = x
    for _ in range(4):
        z = (z * 1.5 + y).tanh() - 0.5
    return z


def norm(x, y):
    centered = x - x.mean(-1, keepdim=True)
    return centered * torch.rsqrt(centered.pow(2).mean(-1, keepdim=True) + 1e-5) + y


def mixed(x, y):
    rows = (x.view(256, -1) @ y.view(256, -1).t()).softmax(-1)
    x.mul_(0.5)[:, :7].add_(1)
    return rows.sum(0), x.cumsum(0), torch.nn.functional.layer_norm(x * y, x.shape[1:]), x.clone().fill_(3), x.to(torch.bfloat16) + 1


@pytest.mark.parametrize("program", [chain, norm, mixed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("least, busy", [(0, False), (1, False), (0, True)])
def test_programs_have_equal_bits(device, program, dtype, least, busy):
    operands = [torch.randn(256, COUNT // 256, device=device, dtype=torch.float32).to(dtype) for _ in range(2)]
    expected = program(*(x.clone() for x in operands))
    torch.accelerator.synchronize()
    lazy.fuse(least=least, busy=busy)
    for _ in range(3):
        found = program(*(x.clone() for x in operands))
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected))):
            assert torch.equal(one.cpu(), other.cpu())
    assert (busy or lazy.metrics()["groups"] > 0) and lazy.metrics()["pending"] == 0


def test_the_work_of_a_group_is_shown_and_queued_on_request(device):
    x = torch.randn(COUNT, device=device)
    lazy.fuse(busy=False)
    for _ in range(20):  # a group ends when the program pauses, as it may on a busy machine
        y = x * 2 + 1
        if "mul" in (text := lazy.text()):
            break
    assert "mul" in text and "add" in text, text
    lazy.mark_step()
    assert lazy.metrics()["pending"] == 0 and "mul" not in lazy.text()
    assert torch.equal(y.cpu(), x.cpu() * 2 + 1)


def test_a_training_step_has_equal_bits_and_peak_memory(device):
    def train(steps):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.LayerNorm(512), torch.nn.Linear(512, 10)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        x, losses = torch.randn(128, 128).to(device), []
        torch.get_device_module(device).reset_peak_memory_stats()
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        peak = torch.get_device_module(device).max_memory_allocated()
        return torch.stack(losses).cpu(), [p.detach().cpu() for p in model.parameters()], peak

    losses, parameters, peak = train(12)
    lazy.fuse(busy=False)
    fused_losses, fused_parameters, fused_peak = train(12)
    assert torch.equal(losses, fused_losses) and all(map(torch.equal, parameters, fused_parameters))
    assert fused_peak <= 1.1 * peak, (peak, fused_peak)
    assert lazy.metrics()["groups"] > 0


def test_small_operators_are_not_deferred(device):
    x = torch.ones(100, device=device)
    lazy.fuse(busy=False)
    y = (x + 1) * 2
    assert lazy.metrics()["recorded"] == 0
    z = torch.ones(COUNT, device=device) + 1
    assert lazy.metrics()["recorded"] > 0
    assert (y == 4).all() and (z == 2).all()


def test_a_recording_replaces_fuse_on_its_stream_until_it_ends(device):
    x = torch.ones(COUNT, device=device)
    lazy.fuse(busy=False)
    y = x + 1
    with lazy.record():
        assert lazy.is_recording()
        z = y @ y  # deferred, which fuse does not do with products
        assert lazy.metrics()["pending"] > 0
    assert not lazy.is_recording() and lazy.is_fusing()
    lazy.reset_metrics()
    w = x + 2
    assert lazy.metrics()["recorded"] == 1
    assert z == 4 * COUNT and (w == 3).all()


def test_another_stream_waits_for_the_group(device):
    x, stream = torch.ones(COUNT, device=device), torch.Stream(device)
    lazy.fuse(busy=False)
    for turn in range(5):
        x.add_(1)
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            y = x * 2  # not deferred: fuse was called on the other stream
        torch.accelerator.current_stream().wait_stream(stream)
        assert (y == 2 * (turn + 2)).all()


def test_errors_are_those_of_eager_mode(device):
    lazy.fuse(busy=False)
    x = torch.ones(COUNT, device=device)
    y = x + 1
    with pytest.raises(RuntimeError, match="must match the size"):
        y + torch.ones(3, device=device)
    with pytest.raises(IndexError):
        y.sum(3)
    assert (y == 2).all()


def test_a_graph_is_captured_while_groups_are_deferred(device):
    lazy.fuse(busy=False)
    x = torch.ones(COUNT, device=device)
    y = x + 1
    graph = torch.accelerator.Graph()
    with torch.get_device_module(device).graph(graph):
        z = y * 3
    for turn in range(3):
        y.add_(1)
        graph.replay()
        assert (z == 3 * (turn + 3)).all()


def test_backward_runs_on_other_threads(run_python):
    done = run_python("""
        import threading
        import torch, torch_backend
        from torch_backend import lazy
        lazy.fuse(busy=False)
        x = torch.randn(1 << 16, device="fake", requires_grad=True)
        def run():
            for _ in range(20):
                (x.tanh() * x * 2).sum().backward()
        threads = [threading.Thread(target=run) for _ in range(3)]
        [t.start() for t in threads]; [t.join() for t in threads]
        y = x.detach().cpu().requires_grad_()
        for _ in range(60):
            (y.tanh() * y * 2).sum().backward()
        torch.testing.assert_close(x.grad.cpu(), y.grad, rtol=1e-4, atol=1e-3)
        print("all", lazy.metrics()["groups"] > 0)
    """, TORCH_BACKEND="fake", TORCH_BACKEND_AUTOGRAD_THREADS="1")
    assert "all True" in done.stdout


def test_the_setting_begins_with_the_first_tensor(run_python):
    script = """
        import torch, torch_backend
        from torch_backend import lazy
        assert not torch.fake.is_initialized()
        x = torch.ones(1 << 16, device="fake")
        for _ in range(100):  # an operator waits only while the device is busy
            y = (x + 1) * 2
        print(lazy.is_fusing(), lazy.metrics()["recorded"], (y == 4).all().item())
    """
    done = run_python(script, TORCH_BACKEND="fake", TORCH_BACKEND_FUSE="1")
    assert done.stdout.split()[0] == "True" and int(done.stdout.split()[1]) >= 2 and done.stdout.split()[2] == "True"
    assert run_python(script, TORCH_BACKEND="fake", TORCH_BACKEND_FUSE="0").stdout.split() == ["False", "0", "True"]
    refused = run_python(script, TORCH_BACKEND="fake", TORCH_BACKEND_FUSE="yes", check=False)
    assert refused.returncode and "TORCH_BACKEND_FUSE is 'yes'; use 0 or 1" in refused.stderr


def test_work_is_deferred_from_the_first_use_on_request(run_python):
    script = """
        import torch, torch_backend
        from torch_backend import lazy
        assert not torch.fake.is_initialized()
        x = torch.ones(4, device="fake") + 1
        print(lazy.is_recording(), lazy.is_recording(1), lazy.is_fusing(), lazy.metrics()["pending"] > 0)
        with lazy.record(limit=1000):
            y = x * 2
        assert y.tolist() == [4] * 4
        lazy.stop()
        print(lazy.is_recording())
        with lazy.record():
            assert (y + 1).tolist() == [5] * 4
        print(lazy.is_recording())
    """
    for more in ({}, {"TORCH_BACKEND_FUSE": "1"}):
        done = run_python(script, TORCH_BACKEND="fake", TORCH_BACKEND_DEFER="1", HAL_FAKE_DEVICES="2", **more)
        assert done.stdout.split() == ["True", "True", "False", "True", "False", "False"], done.stdout
    assert run_python(script, TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2").stdout.split()[0] == "False"
    refused = run_python(script, TORCH_BACKEND="fake", TORCH_BACKEND_DEFER="yes", check=False)
    assert refused.returncode and "TORCH_BACKEND_DEFER is 'yes'; use 0 or 1" in refused.stderr


def test_own_operators_are_called_at_once(run_python, build_plugin):
    done = run_python("""
        import torch, torch_backend
        from torch_backend import lazy
        lazy.fuse(least=1, busy=False)
        x = torch.ones(100, device="five")
        torch_backend.ops.reset()
        y = torch.relu(x + 1)
        print(sum(row.plugin for row in torch_backend.ops.report()), lazy.metrics()["recorded"])
    """, TORCH_BACKEND=build_plugin("takes_all"), HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert done.stdout.split() == ["2", "0"]


@pytest.mark.fresh_interpreter("the process ends with a group that is deferred")
@pytest.mark.parametrize("ends", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_a_process_ends_with_a_deferred_group(run_python, ends):
    for _ in range(ends):
        done = run_python("""
            import torch, torch_backend
            from torch_backend import lazy
            lazy.fuse(busy=False)
            x = torch.ones(1 << 16, device="fake") + 1
            print("end")
        """, TORCH_BACKEND="fake")
        assert done.stdout == "end\n" and not done.stderr


@pytest.mark.parametrize("asynchronous", [0, 1])
def test_errors_of_deferred_work_end_neither_fuse_nor_a_recording(run_python, asynchronous):
    """With HAL_FAKE_ASYNC=0 the work fails when it is launched, with 1 at the read."""
    run_python(
        """
        import pytest
        import torch
        from torch_backend import lazy

        x = torch.ones(1 << 16, dtype=torch.int64, device="fake")
        y, side = torch.zeros_like(x), torch.Stream("fake")

        def fails(call):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                call()
                torch.accelerator.synchronize()

        def is_deferring():
            before = lazy.metrics()["recorded"]
            x + 1
            return lazy.metrics()["recorded"] > before

        def enter():
            with lazy.record():
                pass

        def divide():
            with lazy.record():
                x // y

        lazy.fuse(busy=False)
        x // y
        fails(enter)
        assert lazy.is_fusing() and is_deferring()
        fails(divide)
        assert lazy.is_fusing() and is_deferring()
        x // y
        fails(lazy.stop)
        assert not lazy.is_fusing() and not is_deferring()

        with side:
            lazy.fuse(busy=False)
            x // y
        counted = lazy.metrics()["recorded"]
        fails(lazy.stop)  # of another stream
        assert not lazy.is_fusing() and lazy.metrics()["recorded"] == counted
    """,
        TORCH_BACKEND="fake",
        HAL_FAKE_ASYNC=asynchronous,
    )


def test_errors_name_the_line_of_their_own_recording(device):
    x = torch.ones(COUNT, dtype=torch.int64, device=device)
    y = torch.zeros_like(x)
    lazy.fuse(lines=True, busy=False)
    line = 1 + (lambda: None).__code__.co_firstlineno
    quotient = x // y
    with pytest.raises(RuntimeError, match=f"test_lazy_fuse.py:{line}: .*ZeroDivisionError"), lazy.record(lines=True):
        x + 1
        quotient.cpu()


def test_fuse_returns_to_its_stream_after_a_recording(device, monkeypatch):
    x, side = torch.randn(COUNT, device=device), torch.Stream(device)

    def recorded():
        before = lazy.metrics()["recorded"]
        x + 1
        return lazy.metrics()["recorded"] - before

    lazy.fuse(busy=False)
    default = torch.accelerator.current_stream()
    with lazy.record():
        torch.accelerator.set_stream(side)
    assert recorded() == 0
    torch.accelerator.set_stream(default)
    assert recorded() == 1
    monkeypatch.setenv("LTC_SAVE_TENSORS_FILE", "unused")
    monkeypatch.setenv("LTC_SAVE_TENSORS_FMT", "zz")
    with pytest.raises(ValueError, match="zz"), lazy.record():
        pass
    assert lazy.is_fusing() and recorded() == 1
