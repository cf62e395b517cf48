"""Packages of AOTInductor for a device that the process does not use: the error names the cure. torch's error is
"Unsupported device key found".
"""

from __future__ import annotations

import functools
import re
import sys

from . import _registry
from ._imports import after_import

_MODULE = "torch._inductor.package.package"
_UNKNOWN = re.compile(r"Unsupported device key found: (\S+)")


def install() -> None:
    """Called when torch_backend is imported."""
    after_import(_MODULE, _name_cure)


def _name_cure() -> None:
    module = sys.modules[_MODULE]
    original = module.load_package

    @functools.wraps(original)
    def load_package(*args, **kwargs):
        try:
            return original(*args, **kwargs)
        except RuntimeError as error:
            if (found := _UNKNOWN.search(str(error))) is None:
                raise
            used = f"this process uses '{_registry.type_name()}'" if _registry.is_active() else "no plugin is in use"
            raise RuntimeError(
                f"the package is for the device '{found[1]}', and {used}. Call torch_backend.use with the plugin of '{found[1]}' before the "
                "package is loaded, or set TORCH_BACKEND."
            ) from error

    module.load_package = load_package
