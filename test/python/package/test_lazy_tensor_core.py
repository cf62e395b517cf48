"""The package lazy_tensor_core: the snippets of its API guide run as written, and its functions work as documented."""

import textwrap

import pytest
import torch

CREATE = """
    import torch
    import lazy_tensor_core
    import lazy_tensor_core.core.lazy_model as ltm

    t = torch.randn(2, 2, device=ltm.lazy_device())
    print(t.device)
    print(t)
"""
OPERATE = """
    t0 = torch.randn(2, 2, device=ltm.lazy_device())
    t1 = torch.randn(2, 2, device=ltm.lazy_device())
    print(t0 + t1)
    print(t0.mm(t1))
    l_in = torch.randn(10, device=ltm.lazy_device())
    linear = torch.nn.Linear(10, 20).to(ltm.lazy_device())
    l_out = linear(l_in)
    print(l_out)
"""
MIXED = """
    l_in = torch.randn(10, device=ltm.lazy_device())
    linear = torch.nn.Linear(10, 20)
    l_out = linear(l_in)
    print(l_out)
    # Input tensor is not a lazy tensor: torch.FloatTensor
"""
TRAIN = """
    import lazy_tensor_core.core.lazy_model as ltm

    device = ltm.lazy_device()
    model = MNIST().train().to(device)
    loss_fn = nn.NLLLoss()
    optimizer = optim.SGD(model.parameters(), lr=lr, momentum=momentum)

    for data, target in train_loader:
      optimizer.zero_grad()
      data = data.to(device)
      target = target.to(device)
      output = model(data)
      loss = loss_fn(output, target)
      loss.backward()

      optimizer.step()
      ltm.mark_step()
"""
SAVE = """
    import torch
    import lazy_tensor_core
    import lazy_tensor_core.core.lazy_model as ltm

    device = ltm.lazy_device()

    t0 = torch.randn(2, 2, device=device)
    t1 = torch.randn(2, 2, device=device)

    tensors = (t0.cpu(), t1.cpu())

    torch.save(tensors, 'tensors.pt')

    tensors = torch.load('tensors.pt')

    t0 = tensors[0].to(device)
    t1 = tensors[1].to(device)
"""
STREAM = """
    import lazy_tensor_core.utils.serialization as xser

    xser.save(model.state_dict(), path)
    state_dict = xser.load(path)
    model.load_state_dict(state_dict)
    ltm.save(model.state_dict(), path)
"""
NETWORK = """
    from torch import nn, optim

    class MNIST(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Flatten(), nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 10), nn.LogSoftmax(1))

    lr, momentum = 0.1, 0.5
    torch.manual_seed(0)
    train_loader = [(torch.randn(16, 1, 28, 28), torch.randint(10, (16,))) for _ in range(10)]
    torch.manual_seed(1)
"""


def script(*parts):
    return "\n".join(textwrap.dedent(part) for part in parts)


@pytest.fixture
def run(run_python):
    return lambda *parts, **settings: run_python(script(*parts), **{"TORCH_BACKEND": "fake", **settings})


def test_a_tensor_is_made_and_operated_on_as_in_the_guide(run):
    said = run(CREATE, OPERATE).stdout
    assert said.startswith("lazy:0\ntensor(") and said.count("device='lazy:0'") == 4


def test_a_layer_on_the_cpu_is_refused_as_in_the_guide(run_python):
    done = run_python(script(CREATE, MIXED), TORCH_BACKEND="fake", check=False)
    assert done.returncode == 1 and "RuntimeError: Input tensor is not a lazy tensor: torch.FloatTensor\n" in done.stderr


def test_the_training_loop_of_the_guide_has_the_cpus_losses(run):
    run("import torch", NETWORK, TRAIN, """
        weights = [p.detach().cpu() for p in model.parameters()]
        torch.manual_seed(1)
        twin = MNIST().train()
        optimizer = optim.SGD(twin.parameters(), lr=lr, momentum=momentum)
        for data, target in train_loader:
            optimizer.zero_grad()
            loss_fn(twin(data), target).backward()
            optimizer.step()
        for one, other in zip(weights, twin.parameters()):
            torch.testing.assert_close(one, other.detach(), rtol=1e-4, atol=1e-5)
        import lazy_tensor_core.debug.metrics as metrics
        assert metrics.counter_value("MarkStep") == 10 and metrics.counter_value("UncachedCompile") > 0
        assert "Counter: MarkStep\\n  Value: 10" in metrics.metrics_report()
    """)


def test_saving_as_in_the_guide(run):
    run(SAVE, NETWORK, """
        model, path = MNIST().to(device), 'model.pt'
        before = [p.detach().cpu() for p in model.parameters()]
    """, STREAM, """
        assert all(torch.equal(p.detach().cpu(), b) for p, b in zip(model.parameters(), before))
        saved = torch.load(path)
        assert all(value.device.type == 'cpu' for value in saved.values()) and list(saved) == list(model.state_dict())
    """)


def test_large_models_are_saved_one_tensor_at_a_time_and_loaded_back(run):
    run("""
        import os, torch
        import lazy_tensor_core.core.lazy_model as ltm
        import lazy_tensor_core.utils.serialization as xser
        device = ltm.lazy_device()
        data = {"a": [torch.arange(5, device=device), 3], "b": (torch.ones(2, 2), "text")}
        xser.save(data, "data.pt")
        assert sorted(os.listdir("data.pt.tensors")) == ["tensor_0.pt", "tensor_1.pt"]
        back = xser.load("data.pt")
        assert back["a"][1] == 3 and back["b"][1] == "text"
        assert torch.equal(back["a"][0], torch.arange(5)) and torch.equal(back["b"][0], torch.ones(2, 2))
    """)


def test_devices_are_numbered_and_wrong_ones_refused(run):
    run("""
        import torch
        import lazy_tensor_core.core.lazy_model as ltm
        assert ltm.get_lazy_supported_devices() == ["lazy:0", "lazy:1"]
        assert ltm.get_lazy_supported_devices("FAKE", 1) == ["lazy:0"] and ltm.get_lazy_supported_devices("tpu") == []
        assert ltm.lazy_device(1) == torch.device("lazy:1") and torch.ones(2, device="lazy").device.index == 1
        for call, error in ((lambda: ltm.lazy_device(2), IndexError), (lambda: ltm.lazy_device(devkind="TPU"), AssertionError)):
            try:
                call()
            except error:
                continue
            raise SystemExit("it was accepted")
        assert ltm.lazy_device_hw("lazy:0") == "FAKE" and ltm.is_lazy_tensor(torch.ones(1, device="lazy"))
        assert not ltm.is_lazy_tensor(torch.ones(1, device="fake")) and ltm.lrt_world_size() == 1 and ltm.is_master_ordinal()
        assert ltm.get_memory_info("lazy:0")["kb_total"] > 0
    """, HAL_FAKE_DEVICES=2)


def test_a_step_runs_its_closures_and_the_optimizer_its_step(run):
    run("""
        import torch
        import lazy_tensor_core.core.lazy_model as ltm
        device, seen = ltm.lazy_device(), []
        weight = torch.nn.Parameter(torch.ones(3, device=device))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        (weight * 2).sum().backward()
        ltm.add_step_closure(lambda w: seen.append(w.sum().item()), args=(weight.detach(),))
        ltm.optimizer_step(optimizer, barrier=True)
        assert seen == [0.0], seen
        ltm.mark_step()
        assert seen == [0.0]
    """)


def test_without_a_plugin_the_missing_backend_is_named_with_the_cure(run):
    run("""
        import lazy_tensor_core.core.lazy_model as ltm
        try:
            ltm.lazy_device()
        except RuntimeError as error:
            assert str(error).startswith("Lazy tensor backend not registered.") and "TORCH_BACKEND" in str(error)
        else:
            raise SystemExit("it was accepted")
    """, TORCH_BACKEND="")


def test_the_package_is_ours():
    import lazy_tensor_core

    assert "torch_backend" in lazy_tensor_core.__doc__ and torch.__version__


def test_without_a_plugin_functions_that_need_one_raise_an_error_until_one_is_used(run_python):
    run_python("""
        import torch, lazy_tensor_core
        import lazy_tensor_core.core.lazy_model as ltm

        for call in (
            ltm.lazy_device, ltm.mark_step, ltm.wait_device_ops, lambda: torch.ones(2, device="lazy"), lambda: torch.ones(2).to("lazy:0"),
            lambda: torch.nn.Linear(2, 2).to("lazy"), lambda: torch.tensor(1.0, device="lazy"),
        ):
            try:
                call()
            except RuntimeError as error:
                assert str(error).startswith("Lazy tensor backend not registered.") and "TORCH_BACKEND" in str(error), error
            else:
                raise SystemExit("it was accepted")
        import torch_backend
        torch_backend.use("fake")
        assert (torch.ones(2, device="lazy") + 1).sum() == 4 and ltm.lazy_device() == torch.device("lazy:0")
    """, TORCH_BACKEND="")
