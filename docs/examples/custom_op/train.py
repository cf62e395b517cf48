"""Trains a small network of the example's operators on the device of TORCH_BACKEND; prints the losses.

Run with the build folder on PYTHONPATH:  TORCH_BACKEND=fake PYTHONPATH=build python train.py
"""

import example_ops
import torch
import torch_backend


class Block(torch.nn.Module):
    """A normalization, followed by a gated layer."""

    def __init__(self, size):
        super().__init__()
        self.norm = torch.nn.Parameter(torch.ones(size))
        self.gate, self.up, self.down = (torch.nn.Linear(size, size) for _ in range(3))

    def forward(self, x):
        y, _ = example_ops.rms_norm(x, self.norm)
        return x + self.down(example_ops.swish_mul(self.gate(y), self.up(y)))


def train(device, steps=20, compiler=None):
    """Returns the loss of each step. On the CPU, the references of the operators compute."""
    torch.manual_seed(0)
    model, x, wanted = Block(16).to(device), torch.randn(32, 16).to(device), torch.randn(32, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    step = model if compiler is None else torch.compile(model, backend=compiler)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(step(x), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for ours, theirs in zip(train(torch_backend.device_name()), train("cpu")):
        print(f"{ours:.6f} on the device, {theirs:.6f} on the CPU")
