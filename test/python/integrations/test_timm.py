"""timm: nothing to patch, since it accepts the device's name everywhere and never selects the CPU automatically; models
train as on the CPU.

timm needs torchvision, whose published builds may be for another build of torch and break `import transformers` then.
Both are therefore installed into a separate folder, and the required operators of torchvision are declared.
"""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "build" / "timm"

PREAMBLE = f"""
import sys
sys.path.append({str(FOLDER)!r})
import torch, torch_backend
torch_backend.use("fake")
try:
    import torchvision
except RuntimeError:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    declared = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        declared.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision
import timm, timm.optim, timm.utils
"""


@pytest.fixture
def run(run_python):
    if not (FOLDER / "timm").is_dir():
        pytest.skip("timm is not installed: make test-integrations")
    return lambda script: run_python(PREAMBLE + script, timeout=300)


@pytest.mark.parametrize("name, options", [("resnet10t", {}), ("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 8, "depth": 2})], ids=["resnet", "vit"])
def test_models_train_as_on_the_cpu(run, name, options):
    run(
        f"""
torch.manual_seed(0)
x, y = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
def train(device):
    torch.manual_seed(1)
    net = timm.create_model({name!r}, pretrained=False, num_classes=4, drop_rate=0.0, **{options!r}).to(device)
    optimizer = timm.optim.create_optimizer_v2(net, opt="sgd", lr=0.01)
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert {{p.device.type for p in net.parameters()}} == {{device}}
    return torch.tensor(losses)
expected = train("cpu")
torch_backend.ops.reset()
losses = train("fake")
rows = torch_backend.ops.report()
assert sum(row.native for row in rows) > 0 and not [row for row in rows if row.fallback], [row for row in rows if row.fallback]
torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-3)
"""
    )


def test_the_parts_of_its_training_script_take_the_device(run):
    run(
        """
import types
args = types.SimpleNamespace(device="fake")
device = timm.utils.init_distributed_device(args)
assert device == torch.device("fake"), device
net = torch.nn.Linear(4, 2).to(device)
ema = timm.utils.ModelEmaV2(net, decay=0.5, device=device)
scaler = timm.utils.NativeScaler(device=device.type)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with torch.autocast(device.type, torch.float16):
    loss = net(torch.ones(3, 4, device=device)).square().mean()
scaler(loss, optimizer, clip_grad=1.0, parameters=net.parameters())
ema.update(net)
assert next(ema.module.parameters()).device.type == "fake"
"""
    )
