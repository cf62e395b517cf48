"""Trains a small network on the device and on the CPU, and prints the implementations of the operators."""

import torch
import torch_backend


def train(device):
    """Returns the losses."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 32, bias=False), torch.nn.ReLU(), torch.nn.Linear(32, 1, bias=False))
    net, x, y = net.to(device), torch.randn(64, 8).to(device), torch.randn(64, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


losses = train(torch_backend.device_name())
torch.testing.assert_close(losses, train("cpu"), rtol=1e-4, atol=1e-5)
print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}, as on the CPU")
for row in torch_backend.ops.report():
    if row.op.startswith("mm"):
        print(f"{row.op}: {row.plugin} calls of the plugin, {row.fallback} by CPU fallback")
