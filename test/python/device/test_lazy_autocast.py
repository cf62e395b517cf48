"""torch.autocast("lazy"): operators run in the dtypes of PyTorch's lists, and networks train like under autocast of the
device itself."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import models
from torch_backend import lazy

pytestmark = pytest.mark.usefixtures("lazy_type")


def operators(where, dtype):
    """The results of operators of each kind, by name."""
    a, b, half = torch.full((4, 4), 0.5, device=where), torch.ones(4, 4, device=where), torch.full((4, 4), 0.5, dtype=dtype, device=where)
    wide, count = torch.ones(4, 4, dtype=torch.float64, device=where), torch.ones(4, 4, dtype=torch.int64, device=where)
    return {
        "mm": a @ b, "linear": F.linear(a, b, b[0]), "exp": half.exp(), "layer_norm": F.layer_norm(half, (4,)), "softmax": half.softmax(-1), "sum": half.sum(),
        "sum to": half.sum(dtype=dtype), "norm": half.norm(), "add": half + a, "relu": half.relu(), "addcmul": torch.addcmul(a, half, half),
        "addcmul half": torch.addcmul(half, half, half), "cat": torch.cat([a, half]), "double": wide @ wide, "count": count + count, "mse": F.mse_loss(half, half),
        "conv": F.conv1d(a[None], b[None]), "einsum": torch.einsum("ij,jk->ik", a, b), "pow": half**2,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_operators_have_the_dtypes_and_values_that_they_have_on_the_device(device, dtype):
    with torch.autocast("lazy", dtype=dtype):
        put_off = operators("lazy", dtype)
    with torch.autocast(device, dtype=dtype):
        eager = operators(device, dtype)
    for name, value in eager.items():
        assert put_off[name].dtype == value.dtype, name
        assert torch.equal(put_off[name].cpu(), value.cpu()), name
    assert put_off["mm"].dtype == dtype and put_off["exp"].dtype == put_off["sum"].dtype == torch.float32 and put_off["double"].dtype == torch.float64


def test_the_setting_is_reported_and_ends_with_its_block():
    assert torch.amp.is_autocast_available("lazy") and not torch.is_autocast_enabled("lazy")
    x = torch.ones(2, 2, device="lazy")
    with torch.autocast("lazy"):
        assert torch.is_autocast_enabled("lazy") and torch.get_autocast_dtype("lazy") == torch.bfloat16
        with torch.autocast("lazy", enabled=False):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16
    assert (x @ x).dtype == torch.float32 and not torch.is_autocast_enabled("lazy")
    assert torch.autocast("lazy")(lambda: x @ x)().dtype == torch.bfloat16, "as a decorator"


def test_other_device_types_keep_their_own_setting(device):
    x, y = torch.ones(2, 2, device="lazy"), torch.ones(2, 2, device=device)
    with torch.autocast("lazy", dtype=torch.bfloat16):
        assert (y @ y).dtype == (y.cpu() @ y.cpu()).dtype == torch.float32
    with torch.autocast("lazy"), pytest.raises(RuntimeError, match="Unexpected floating Half"):
        torch.addcmul(x.half(), x, x)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32 and (y @ y).dtype == torch.bfloat16


def test_what_is_unsafe_is_refused():
    x = torch.full((2,), 0.5, device="lazy")
    with torch.autocast("lazy"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(x, x)


def test_a_checkpointed_part_is_computed_again_in_the_same_dtypes():
    gradients = []
    for function in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=False)):
        torch.manual_seed(1)
        layer = nn.Linear(8, 8).to("lazy")
        with torch.autocast("lazy"):
            y = function(lambda x: F.gelu(layer(x)), torch.ones(4, 8, device="lazy"))
        assert y.dtype == torch.bfloat16
        y.sum().backward()
        gradients.append(layer.weight.grad.cpu())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("name, rel", [("digits", 1e-5), ("transformer", 1e-3)])
def test_networks_train_with_the_losses_of_the_devices_own_autocast(device, name, rel):
    """If a weight is used twice, lazy mode adds its gradients in float32. The device adds them in the lower precision,
    because PyTorch casts the weight once for both uses."""

    def train(where):
        torch.manual_seed(3)
        model = models.MODELS[name]().to(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        losses = []
        for batch in models.batches(name, 4):
            batch = [part.to(where) for part in batch]
            optimizer.zero_grad()
            with torch.autocast(where, dtype=torch.bfloat16):
                loss = model.loss(batch)
            loss.backward()
            optimizer.step()
            lazy.mark_step()
            losses.append(loss.item())
        return losses

    assert train("lazy") == pytest.approx(train(device), rel=rel)


def test_gradients_are_scaled():
    layer = nn.Linear(4, 1).to("lazy")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("lazy", init_scale=2.0**40)
    before = layer.weight.detach().cpu().clone()
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("lazy", dtype=torch.float16):
            loss = layer(torch.full((2, 4), 100.0, device="lazy")).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert torch.equal(layer.weight.detach().cpu(), before) and scaler.get_scale() < 2.0**40, "what overflows changes nothing"
