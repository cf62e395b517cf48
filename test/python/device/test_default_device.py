"""torch.set_default_device and torch.device as a context: tensors created without `device=` are created on it, and
other tensors are not moved."""

import threading

import numpy
import pytest
import torch

FACTORIES = {
    "empty": lambda: torch.empty(2),
    "zeros": lambda: torch.zeros(2),
    "full": lambda: torch.full((2,), 3.0),
    "tensor": lambda: torch.tensor([1, 2]),
    "as_tensor of a list": lambda: torch.as_tensor([1.0]),
    "asarray of a list": lambda: torch.asarray([1.0]),
    "scalar_tensor": lambda: torch.scalar_tensor(1.0),
    "arange": lambda: torch.arange(5),
    "linspace": lambda: torch.linspace(0, 1, 5),
    "logspace": lambda: torch.logspace(0, 1, 5),
    "eye": lambda: torch.eye(3),
    "rand": lambda: torch.rand(2),
    "randn": lambda: torch.randn(2),
    "randint": lambda: torch.randint(5, (2,)),
    "randperm": lambda: torch.randperm(5),
    "empty_strided": lambda: torch.empty_strided((2, 2), (1, 2)),
    "tril_indices": lambda: torch.tril_indices(3, 3),
    "hann_window": lambda: torch.hann_window(8),
    "fftfreq": lambda: torch.fft.fftfreq(8),
    "complex": lambda: torch.zeros(2, dtype=torch.complex64),
    "a module": lambda: torch.nn.Linear(2, 2).weight,
    "a lazy module": lambda: torch.nn.LazyLinear(2)(torch.ones(3, 4)),
    "a buffer": lambda: torch.nn.BatchNorm1d(2).running_mean,
}


@pytest.fixture
def default_device():
    yield torch.set_default_device
    torch.set_default_device(None)


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())
def test_factories_obey_the_default_and_the_context(default_device, device, make):
    assert make().device.type == "cpu"
    with torch.device(device, 1):
        assert make().device == torch.device(device, 1)
    default_device(f"{device}:1")
    assert make().device == torch.device(device, 1)
    with torch.device("cpu"):
        assert make().device.type == "cpu"


def test_an_explicit_device_and_a_source_come_first(default_device, device):
    cpu, source = torch.ones(2), numpy.ones(2)
    default_device(device)
    assert torch.zeros(1, device="cpu").device.type == "cpu"
    assert torch.zeros_like(cpu).device.type == cpu.new_zeros(1).device.type == "cpu"
    assert torch.from_numpy(source).device.type == "cpu"  # shares the array's memory
    assert torch.zeros_like(torch.ones(1, device=f"{device}:1")).device.index == 1


def test_what_the_default_is(default_device, module, device):
    assert torch.get_default_device() == torch.device("cpu")
    default_device(device)
    assert torch.get_default_device() == torch.device(device, 0)
    with module.device(1):  # a default without an index is the current device
        assert torch.get_default_device() == torch.device(device, 1) == torch.ones(1).device
    with torch.device("meta"):
        assert torch.get_default_device() == torch.device("meta")
    default_device(None)
    assert torch.get_default_device() == torch.device("cpu")


def test_other_threads_keep_theirs(default_device, device):
    default_device(device)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.ones(1).device.type))
    thread.start()
    thread.join()
    assert seen == ["cpu"]  # documented: the default is thread-local


def test_the_context_ends_with_an_exception(device):
    with pytest.raises(KeyError), torch.device(device):
        raise KeyError
    assert torch.ones(1).device.type == "cpu"


def test_loading_ignores_the_default_as_on_the_cpu(default_device, device, tmp_path):
    torch.save(torch.ones(2), tmp_path / "cpu.pt")
    default_device(device)
    assert torch.load(tmp_path / "cpu.pt").device.type == "cpu"


def test_a_training_step_under_the_default(default_device, device):
    default_device(device)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters())
    x, losses = torch.randn(32, 8), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and all(parameter.grad.device.type == device for parameter in net.parameters())


@pytest.mark.parametrize("wrong", ["nosuchdevice", "{}:abc", "{}:-1"])
def test_a_wrong_default_is_refused_and_changes_nothing(default_device, device, wrong):
    with pytest.raises(RuntimeError):
        default_device(wrong.format(device))
    assert torch.ones(1).device.type == "cpu"
