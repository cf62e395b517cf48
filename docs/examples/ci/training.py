"""The code under test: a training step, and statistics that are copied to the host."""

import torch


def step(model, optimizer, x, label):
    """Runs one step and returns its loss on the device."""
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), label)
    loss.backward()
    optimizer.step()
    return loss.detach()


def to_host_wrong(values):
    """Returns the values as a list. It does not wait for the copy: on the CPU there is none, and this works."""
    host = torch.empty(values.shape, pin_memory=torch.accelerator.is_available())
    host.copy_(values, non_blocking=True)
    return host.tolist()


def to_host(values):
    """Returns the values as a list."""
    host = torch.empty(values.shape, pin_memory=torch.accelerator.is_available())
    host.copy_(values, non_blocking=True)
    if values.device.type != "cpu":
        torch.accelerator.current_stream(values.device).synchronize()
    return host.tolist()
