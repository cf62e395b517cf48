"""Trains a small network on the device and, from the same weights, on the CPU: the losses must be equal.

    python test/train.py [build/libhal_template.so]      without a path: the installed plugin
"""

import os
import sys
from pathlib import Path

# The plugin is chosen when torch is imported.
os.environ["TORCH_BACKEND"] = str(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else "template"

import torch

STEPS = 50


def losses(device):
    """Trains on `device`; returns the loss of each step."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    x = torch.rand(256, 8).to(device)
    y = x.sum(1, keepdim=True)
    values = []
    for _ in range(STEPS):
        loss = torch.nn.functional.mse_loss(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.detach())
    assert all(parameter.device.type == torch.device(device).type for parameter in network.parameters())
    return torch.stack(values).cpu()


ours, theirs = losses("template"), losses("cpu")
torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
assert ours[-1] < 0.1 * ours[0], f"the network did not learn: from {ours[0]} to {ours[-1]}"
print(f"trained {STEPS} steps on template, loss {ours[0]:.4f} to {ours[-1]:.4f}, as on the CPU")
