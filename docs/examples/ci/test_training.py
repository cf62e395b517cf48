"""Tests that run on `fake` in any CI, and on the real device with TORCH_BACKEND=<its plugin>."""

import pytest
import torch
import torch_backend
import training


def losses(device, steps=5):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, label = torch.randn(32, 8).to(device), torch.randint(0, 3, (32,)).to(device)
    return torch.stack([training.step(model, optimizer, x, label) for _ in range(steps)])


def test_losses_are_those_of_the_cpu(device):
    torch.testing.assert_close(losses(device).cpu(), losses("cpu"), rtol=1e-4, atol=1e-5)


def test_no_operator_falls_back_to_the_cpu(device):
    torch_backend.fallback.strict(True)
    try:
        losses(device, steps=1)
    finally:
        torch_backend.fallback.strict(False)


def test_the_second_device_returns_the_same_losses(device):
    if torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    torch.testing.assert_close(losses(f"{device}:1").cpu(), losses(f"{device}:0").cpu())


def test_values_on_the_host_are_those_of_the_device(device):
    values = torch.arange(1000.0, device=device) * 2
    assert training.to_host(values) == [2.0 * i for i in range(1000)]


def test_too_large_a_batch_is_an_out_of_memory_error(device):
    free, total = torch.accelerator.get_memory_info(0) if hasattr(torch.accelerator, "get_memory_info") else (0, 1 << 28)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total + 1, dtype=torch.uint8, device=device)
    assert losses(device, steps=1).isfinite().all()  # the device remains usable


def test_the_race_is_found(device):
    """The defective function returns values from before the copy; a CPU run cannot show it."""
    wrong = 0
    for factor in range(20):  # other values each time: pinned memory is reused and has the previous ones
        expected = torch.arange(1000.0) * factor
        wrong += training.to_host_wrong(expected.to(device) * 1) != expected.tolist()
        torch.accelerator.synchronize()
        assert training.to_host_wrong(expected) == expected.tolist()
    assert wrong, "all copies were finished in time"
