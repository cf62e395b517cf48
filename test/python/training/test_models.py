"""Networks train on the device as on the CPU in double precision: the same losses, parameters on the device, kernels of
the device."""

import copy

import models
import pytest
import torch

import torch_backend

STEPS = 12


def train(name, start, device, dtype=None, scaler=False):
    """Trains a copy of `start`; returns the losses and the model."""
    model = copy.deepcopy(start).to(device)
    # Adam would amplify the rounding of gradients that are 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaling = torch.amp.GradScaler(device, enabled=scaler, init_scale=256.0)
    precision, losses = next(model.parameters()).dtype, []
    for batch in models.batches(name, STEPS):
        batch = [part.to(device, precision if part.is_floating_point() else None) for part in batch]
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            loss = model.loss(batch)
        scaling.scale(loss).backward()
        scaling.step(optimizer)
        scaling.update()
        losses.append(loss.item())
    return losses, model


@pytest.fixture(scope="module", params=models.MODELS)
def reference(request):
    """A model's name, a new model, and the losses and the trained model of the CPU in double precision. In float32, the
    CPU's own rounding, which depends on its number of threads, would use all of the tolerance."""
    torch.manual_seed(0)
    start = models.MODELS[request.param]()
    return request.param, start, *train(request.param, copy.deepcopy(start).double(), "cpu")


def test_float32_losses_and_weights_are_the_cpus(device, reference):
    name, start, expected, trained = reference
    assert min(expected[-3:]) < expected[0]  # the model learns; otherwise the comparison would be meaningless
    losses, model = train(name, start, device)
    assert losses == pytest.approx(expected, rel=1e-4)
    for parameter in (*model.parameters(), *model.buffers()):
        assert parameter.device.type == device
    for (key, ours), theirs in zip(model.state_dict().items(), trained.state_dict().values()):
        assert (ours.cpu() - theirs).double().norm() <= 1e-4 * theirs.double().norm() + 1e-5, key


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_every_call_of_a_step_runs_natively(device, reference, dtype):
    name, start, *_ = reference
    torch_backend.ops.reset()
    train(name, start, device, dtype, scaler=dtype is torch.float16)
    rows = torch_backend.ops.report()
    assert sum(row.native for row in rows) > 0
    assert not [row for row in rows if row.fallback]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_mixed_precision_follows_the_cpus_float32_losses(device, reference, dtype):
    name, start, expected, _ = reference
    losses, model = train(name, start, device, dtype, scaler=dtype is torch.float16)
    assert losses[:6] == pytest.approx(expected[:6], rel=0.02)  # later the roundings of half precision have grown
    assert losses == pytest.approx(expected, rel=0.15) and min(losses[-3:]) < losses[0]
    assert all(parameter.dtype is torch.float32 and parameter.device.type == device for parameter in model.parameters())


def test_a_trained_model_has_the_same_outputs_on_the_cpu_and_on_the_device(device, reference, tmp_path):
    name, start, *_ = reference
    _, model = train(name, start, device)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    host = models.MODELS[name]()
    host.load_state_dict(torch.load(tmp_path / "weights.pt", map_location="cpu", weights_only=True))
    batch = models.batches(name, 1)[0]
    with torch.no_grad():
        ours, theirs = model.eval().loss([part.to(device) for part in batch]), host.eval().loss(batch)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-4)
