"""torch.distributed on the device: the backend "torch_backend", registered when a plugin is activated."""
