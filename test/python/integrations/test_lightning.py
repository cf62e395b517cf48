"""Lightning and Fabric use the device by name and by "auto", compute in the requested precision, and restore random
numbers."""

import importlib

import pytest
import torch
from torch import nn

pytest.importorskip("lightning", reason="lightning is not installed: make test-integrations")

PACKAGES = [("lightning.pytorch", "lightning.fabric"), ("pytorch_lightning", "lightning_fabric")]


@pytest.fixture(params=PACKAGES, ids=["lightning", "pytorch_lightning"])
def names(request):
    for name in request.param:
        pytest.importorskip(name, reason=f"{name} is not installed: make test-integrations")
    return request.param


@pytest.fixture
def trainer_package(names):
    return importlib.import_module(names[0])


@pytest.fixture
def fabric_package(names):
    return importlib.import_module(names[1])


def data():
    generator = torch.Generator().manual_seed(1)
    pairs = [(torch.randn(8, generator=generator), torch.randint(0, 4, (), generator=generator)) for _ in range(32)]
    return torch.utils.data.DataLoader(pairs, batch_size=8)


def make_module(package, dropout=0.0):
    class Module(package.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 4))
            self.losses, self.places, self.dtypes = [], set(), set()

        def training_step(self, batch, _):
            x, y = batch
            out = self.net(x)
            self.dtypes.add(out.dtype)
            self.places |= {x.device.type, *(parameter.device.type for parameter in self.parameters())}
            loss = nn.functional.cross_entropy(out, y)
            self.losses.append(loss.detach().cpu())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


def fit(package, folder, **options):
    module = make_module(package)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    options.setdefault("devices", 1)
    trainer = package.Trainer(max_epochs=2, default_root_dir=folder, gradient_clip_val=1.0, **quiet, **options)
    trainer.fit(module, data())
    return module, trainer


@pytest.mark.parametrize("how", ["name", "auto", "gpu", None], ids=str)
def test_trainer_finds_the_device(device, native, trainer_package, tmp_path, how):
    options = {} if how is None else {"accelerator": device if how == "name" else how}
    with native():
        module, trainer = fit(trainer_package, tmp_path, **options)
    assert module.places == {device} and trainer.strategy.root_device == torch.device(device, 0)
    reference, _ = fit(trainer_package, tmp_path, accelerator="cpu")
    assert reference.places == {"cpu"}
    torch.testing.assert_close(torch.stack(module.losses), torch.stack(reference.losses), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("devices, index", [(1, 0), ([1], 1), ("1,", 1)], ids=str)
def test_trainer_takes_the_device_with_an_index(device, trainer_package, tmp_path, devices, index):
    module, trainer = fit(trainer_package, tmp_path, accelerator=device, devices=devices)
    assert trainer.strategy.root_device == torch.device(device, index)
    trainer.strategy.accelerator.teardown()
    torch.accelerator.set_device_index(0)


PRECISIONS = [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16), ("bf16-true", torch.bfloat16), ("32-true", torch.float32)]


@pytest.mark.parametrize("precision, dtype", PRECISIONS, ids=lambda value: str(value))
def test_trainer_computes_in_the_precision(device, trainer_package, tmp_path, precision, dtype):
    module, _ = fit(trainer_package, tmp_path, precision=precision)
    assert module.dtypes == {dtype} and module.places == {device}
    reference, _ = fit(trainer_package, tmp_path, accelerator="cpu")
    torch.testing.assert_close(torch.stack(module.losses).float(), torch.stack(reference.losses), rtol=0.1, atol=0.1)
    assert module.losses[-1] < module.losses[0]


def test_an_accelerator_object_is_taken(device, trainer_package, tmp_path):
    accelerator = trainer_package.accelerators.AcceleratorRegistry.get(device)
    module, _ = fit(trainer_package, tmp_path, accelerator=accelerator)
    assert module.places == {device}


@pytest.mark.parametrize("how", ["name", "auto"])
@pytest.mark.parametrize("precision, dtype", PRECISIONS, ids=lambda value: str(value))
def test_fabric(device, native, fabric_package, how, precision, dtype):
    fabric = fabric_package.Fabric(accelerator=device if how == "name" else how, devices=1, precision=precision)
    assert fabric.device == torch.device(device, 0)
    torch.manual_seed(0)
    net = nn.Linear(8, 4)
    seen = []
    net.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    with native():
        for x, y in fabric.setup_dataloaders(data()):
            loss = nn.functional.cross_entropy(net(x), y)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    assert set(seen) == {dtype} and loss.device.type == device


def test_isolate_rng_restores_the_device(device, trainer_package):
    isolate_rng = importlib.import_module(f"{trainer_package.__name__}.utilities.seed").isolate_rng
    torch.manual_seed(3)
    with isolate_rng():
        inside = [torch.rand(3, device=place).cpu() for place in (device, f"{device}:1", "cpu")]
    outside = [torch.rand(3, device=place).cpu() for place in (device, f"{device}:1", "cpu")]
    assert all(torch.equal(a, b) for a, b in zip(inside, outside))


def test_seeds_reach_the_device(device, fabric_package):
    fabric_package.seed_everything(4)
    first = torch.rand(3, device=device)
    fabric_package.seed_everything(4)
    assert torch.equal(first, torch.rand(3, device=device))


def test_several_devices_are_several_processes(trainer_package, fabric_package):
    """test_two_ranks.py trains with them."""
    trainer = trainer_package.Trainer(devices=2, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    assert type(trainer.strategy).__name__ == "DDPStrategy" and trainer.world_size == 2
    assert fabric_package.Fabric(devices=2)._strategy.num_processes == 2


@pytest.mark.parametrize("devices", [3, [0, 2], [0, 0], "5,"], ids=str)
def test_devices_that_are_not_there(device, trainer_package, tmp_path, devices):
    with pytest.raises(Exception, match="2 device"):
        fit(trainer_package, tmp_path, devices=devices)


def test_out_of_memory_is_known(device, trainer_package):
    memory = importlib.import_module(f"{trainer_package.__name__}.utilities.memory")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 62, dtype=torch.uint8, device=device)
    assert memory.is_oom_error(caught.value)


def test_the_users_cpu_stays_the_cpu(trainer_package, fabric_package, tmp_path):
    assert fit(trainer_package, tmp_path, accelerator="cpu", precision="bf16-mixed")[0].dtypes == {torch.bfloat16}
    assert fabric_package.Fabric(accelerator="cpu").device.type == "cpu"
