"""A program with a wrong result on a defective plugin: its matrix product accepts strided operands and ignores strides."""

import torch
import torch_backend

device = torch_backend.device_name()
torch.manual_seed(0)
x, weight = torch.randn(4, 3).to(device), torch.randn(5, 3).to(device)
y = torch.relu(x @ x.t())
z = torch.relu(x @ weight.t())
print("sum", z.sum().item())
