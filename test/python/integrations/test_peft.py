"""peft: adapters train on the device, and are loaded from a file to it."""

import pytest
import torch

peft = pytest.importorskip("peft", reason="peft is not installed: make test-integrations")
pytestmark = pytest.mark.usefixtures("fresh_accelerate")


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def adapted():
    torch.manual_seed(1)
    return peft.get_peft_model(Network(), peft.LoraConfig(r=4, target_modules=["first", "last"], lora_dropout=0.0))


def train(net, x, target):
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.5)
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_it_chooses_the_device(device):
    from peft.utils.other import infer_device

    assert infer_device() == peft.utils.infer_device() == device


def test_adapters_train_as_on_the_cpu(device, native):
    x, target = torch.randn(6, 8), torch.randn(6, 4)
    expected = train(adapted(), x, target)
    net = adapted().to(device)
    with native():
        losses = train(net, x.to(device), target.to(device))
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected))
    assert {parameter.device.type for parameter in net.parameters()} == {device}


def test_adapters_are_loaded_onto_the_device(device, tmp_path):
    net = adapted()
    train(net, torch.randn(6, 8), torch.randn(6, 4))
    net.save_pretrained(tmp_path)
    weights = peft.utils.save_and_load.load_peft_weights(str(tmp_path))
    assert {tensor.device.type for tensor in weights.values()} == {device}
    loaded = peft.PeftModel.from_pretrained(Network().to(device), str(tmp_path))
    x = torch.randn(3, 8)
    torch.testing.assert_close(loaded(x.to(device)).cpu(), net(x))


def test_merging(device):
    net = adapted().to(device)
    x = torch.randn(3, 8, device=device)
    before = net(x)
    torch.testing.assert_close(net.merge_and_unload()(x), before)
