"""What TorchDynamo must know of the device, before inductor is loaded: its interface, and the context manager of its index."""
