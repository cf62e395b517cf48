"""Lazy Tensors Core's names over torch_backend: importing this makes the device type "lazy" usable, as soon as a plugin is active.

`import lazy_tensor_core.core.lazy_model as ltm`, then `ltm.lazy_device()` and `ltm.mark_step()`. The guide is torch_backend's docs/lazy/api-guide.md.
"""

from torch_backend.lazy import device as _device

_device.enable_when_active()
