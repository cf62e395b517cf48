"""Lazy Tensors Core's names over torch_backend: importing this makes the device type "lazy" usable when a plugin is active.

`import lazy_tensor_core.core.lazy_model as ltm`, then `ltm.lazy_device()` and `ltm.mark_step()`. The guide is torch_backend's docs/lazy/api-guide.md.
"""

import torch_backend
from torch_backend.lazy import device as _device

if torch_backend.is_active():
    _device.enable()  # else lazy_device() says what is missing
