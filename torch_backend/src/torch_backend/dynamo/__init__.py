"""The device's interface for TorchDynamo, which is needed before inductor is loaded, and the context manager of a
device index.
"""
