"""Programs of torch_xla and of the lazy tensors core on the plugin pjrt, with only the import changed, and the StableHLO
text of what they run."""

import os
import textwrap

import driver_scripts
import pytest

XLA = """
import torch, torch_backend
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch_backend.xla
torch_backend.xla.install_as("torch_xla")
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return driver_scripts.pjrt_settings(tmp_path_factory.mktemp("pjrt"))


@pytest.fixture
def run(settings, tmp_path, run_file):
    """Runs a program after the imports; returns its output."""

    def run(script, prologue=XLA, **more):
        environment = {**os.environ, **settings, "HAL_PJRT_DEVICES": "1", "TORCH_BACKEND": "pjrt", **more}
        done = run_file(prologue + textwrap.dedent(script), environment, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


# The network and the loop of torch_xla's test_train_mp_mnist.py, for one device and generated data.
MNIST = """
import torch_xla.distributed.parallel_loader as pl
import torch_xla.utils.utils as xu

class MNIST(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 10, kernel_size=5), nn.BatchNorm2d(10)
        self.conv2, self.bn2 = nn.Conv2d(10, 20, kernel_size=5), nn.BatchNorm2d(20)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = self.bn1(F.relu(F.max_pool2d(self.conv1(x), 2)))
        x = self.bn2(F.relu(F.max_pool2d(self.conv2(x), 2)))
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)

torch.manual_seed(1)
train_loader = xu.SampleGenerator(data=(torch.randn(8, 1, 28, 28), torch.randint(0, 10, (8,))), sample_count=5)

def train(device, loader, on_xla):
    torch.manual_seed(2)
    model = MNIST().to(device)
    optimizer, loss_fn, losses = optim.SGD(model.parameters(), lr=0.01, momentum=0.5), nn.NLLLoss(), []
    tracker = xm.RateTracker()
    model.train()
    for step, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = loss_fn(model(data), target)
        loss.backward()
        if on_xla:
            xm.optimizer_step(optimizer)
            tracker.add(8)
        else:
            optimizer.step()
        losses.append(loss.detach())
    if on_xla:
        xm.mark_step()
        assert tracker.rate() > 0 and tracker.global_rate() > 0
    return torch.stack(losses).cpu()

device = xm.xla_device()
assert xm.xla_device_hw(device) == "PJRT" and xm.xla_real_devices([device]) == ["PJRT:0"]
losses = train(device, pl.MpDeviceLoader(train_loader, device), True)
torch.testing.assert_close(losses, train("cpu", train_loader, False), rtol=1e-4, atol=1e-4)
report = met.metrics_report()
assert "Metric: CompileTime" in report and "Metric: ExecuteTime" in report and "Counter: MarkStep" in report, report
assert not met.executed_fallback_ops(), met.executed_fallback_ops()
"""


def test_the_mnist_program_of_torch_xla_trains_as_on_the_cpu(run):
    run(MNIST)


RESNET = """
class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))

def resnet():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

torch.manual_seed(4)
data, target = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))

def train(device):
    model = resnet().to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    losses, x, y = [], data.to(device), target.to(device)
    for step in range(4):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if device != "cpu":
            torch_xla.sync()
    return torch.stack(losses).cpu()

torch.testing.assert_close(train(torch_xla.device()), train("cpu"), rtol=2e-4, atol=2e-4)
assert not met.executed_fallback_ops(), met.executed_fallback_ops()
"""


@pytest.mark.slow  # compiles a ResNet
def test_a_resnet_loop_of_torch_xla_trains_as_on_the_cpu(run):
    run(RESNET)


# The programs of the lazy tensors core's API guide.
GUIDE = """
import torch
import torch_backend
import lazy_tensor_core
import lazy_tensor_core.core.lazy_model as ltm
import lazy_tensor_core.utils.serialization as xser

t = torch.randn(2, 2, device=ltm.lazy_device())
assert t.device == torch.device("lazy:0")
t0 = torch.randn(2, 2, device=ltm.lazy_device())
t1 = torch.randn(2, 2, device=ltm.lazy_device())
assert torch.equal((t0 + t1).cpu(), t0.cpu() + t1.cpu())
torch.testing.assert_close(t0.mm(t1).cpu(), t0.cpu().mm(t1.cpu()))
l_in = torch.randn(10, device=ltm.lazy_device())
linear = torch.nn.Linear(10, 20).to(ltm.lazy_device())
l_out = linear(l_in)
try:
    torch.nn.Linear(10, 20)(l_in)
except RuntimeError as error:
    assert "Input tensor is not a lazy tensor: torch.FloatTensor" in str(error)
else:
    raise AssertionError("mixed devices")
ltm.save(linear.state_dict(), "state.pt")
xser.save(linear.state_dict(), "streamed")
for state in (torch.load("state.pt"), xser.load("streamed")):
    other = torch.nn.Linear(10, 20)
    other.load_state_dict(state)
    torch.testing.assert_close(other(l_in.cpu()), l_out.cpu())
"""


@pytest.mark.slow
def test_the_api_guide_of_the_lazy_tensors_core_runs(run):
    run(GUIDE, "")


def test_the_stablehlo_text_of_deferred_work_is_returned(run):
    run("""
        from torch_xla import stablehlo
        device = xm.xla_device()
        x = torch.arange(6.0, device=device).reshape(2, 3)
        for _ in range(2):  # compiled, then known
            y = (x @ x.t()).exp()
            text = stablehlo.get_stablehlo([y])
            assert "stablehlo.dot_general" in text and "stablehlo.exponential" in text, text
            assert torch.equal(y.cpu(), (x.cpu() @ x.cpu().t()).exp()) or torch.allclose(y.cpu(), (x.cpu() @ x.cpu().t()).exp())
        with stablehlo.record() as programs:
            (x + 1).cpu()
            (x * 2).cpu()
        assert len(programs) == 2 and "stablehlo.add" in programs[0] and "stablehlo.multiply" in programs[1], programs
        exported = torch.export.export(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (torch.randn(2, 4),))
        program = stablehlo.exported_program_to_stablehlo(exported)
        assert "stablehlo.tanh" in program.get_stablehlo_text()
        one = torch.randn(2, 4)
        torch.testing.assert_close(program(one), exported.module()(one))
    """)


@pytest.mark.slow
def test_mixed_precision_trains_with_programs_only(run):
    run("""
        from torch_xla.amp import GradScaler, autocast, syncfree
        torch.manual_seed(0)
        device = xm.xla_device()
        x, target = torch.randn(8, 16), torch.randint(0, 4, (8,))
        def train(device, context, scaler, make):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
            optimizer, data, labels = make(model.parameters(), lr=0.1), x.to(device), target.to(device)
            for _ in range(3):
                optimizer.zero_grad()
                with context():
                    loss = F.cross_entropy(model(data).float(), labels)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                if device != "cpu":
                    xm.mark_step()
            return loss.detach().cpu()
        loss = train(device, lambda: autocast(device), GradScaler(), syncfree.SGD)
        expected = train("cpu", lambda: torch.autocast("cpu", torch.bfloat16), torch.amp.GradScaler("cpu"), optim.SGD)
        torch.testing.assert_close(loss, expected, rtol=2e-2, atol=2e-2)
    """)


# XLA computes in the narrow dtype, as on the hardware that the variable is for; programs see the wide one.
@pytest.mark.parametrize("name", ["XLA_USE_BF16", "XLA_DOWNCAST_BF16"])
def test_programs_of_narrowed_networks_are_in_bfloat16(run, name):
    run("""
        from torch_xla import stablehlo
        device = xm.xla_device()
        torch.manual_seed(0)
        first, data = torch.randn(16, 4), torch.randn(8, 16)
        weight, x = first.to(device).requires_grad_(), data.to(device)
        optimizer = optim.SGD([weight], lr=0.01)
        with stablehlo.record() as programs:
            for step in range(3):
                optimizer.zero_grad()
                loss = (x @ weight).square().mean()
                loss.backward()
                xm.optimizer_step(optimizer)
                xm.mark_step()
        assert weight.dtype == loss.dtype == weight.grad.dtype == torch.float32
        dots = [line for text in programs for line in text.splitlines() if "dot_general" in line]
        assert dots and all("bf16" in line for line in dots), programs
        expected = first.bfloat16().requires_grad_()
        for step in range(3):
            gradient, = torch.autograd.grad((data.bfloat16() @ expected).square().mean(), expected)
            expected = (expected - 0.01 * gradient).detach().requires_grad_()
        torch.testing.assert_close(weight.detach().cpu(), expected.detach().float(), rtol=2e-2, atol=2e-2)
        assert weight.detach().cpu().bfloat16().float().equal(weight.detach().cpu())
    """, **{name: "1"})
