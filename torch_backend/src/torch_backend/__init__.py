"""torch_backend: a PyTorch device implemented by a plugin, a shared library with a small C interface.

Set ``TORCH_BACKEND=fake`` in the environment, or choose the plugin in the script before the device is used::

    import torch, torch_backend
    torch_backend.use("fake")
    torch.ones(3, device="fake")

``torch.fake`` (named after the plugin) is the device module, like ``torch.cuda``. Importing this package, or
importing torch when this package is installed, registers no device and loads no driver until a plugin is chosen.
"""

from __future__ import annotations

# torch calls torch_backend:_autoload at the end of its own import, and the import of torch below may be that import.
# The name must therefore exist before torch is imported.
from ._activation import autoload as _autoload
from . import _builds, _registry
from ._activation import plugins, use
from ._registry import device_name, errors, is_active

_registry.set_use(use)
try:
    import torch as _torch
except Exception as _error:  # torch is missing or broken; the commands verify and new-plugin do not need it
    _torch, _torch_error = None, _error
else:
    _torch_error = None

    from . import _packages, fallback, integrations, lazy, meta, ops

    _packages.install()
    # makes torch_backend._C importable for the documentation although no plugin is active
    _builds.select(_torch.__version__)
    # needed with TORCH_DEVICE_BACKEND_AUTOLOAD=0; otherwise torch has called it already, and a second call does nothing
    _autoload()

__all__ = ["autocompare", "device_name", "errors", "fallback", "integrations", "is_active", "lazy", "meta", "ops", "plugins", "use"]


def __getattr__(name: str):
    if name == "__version__":
        return _builds.version()
    if name == "autocompare" and _torch_error is None:
        from ._autocompare import autocompare

        return autocompare
    if _torch_error is not None and name in __all__:
        raise ImportError(f"torch_backend.{name} needs torch, which cannot be imported: {_torch_error}") from _torch_error
    raise AttributeError(f"module 'torch_backend' has no attribute '{name}'")
