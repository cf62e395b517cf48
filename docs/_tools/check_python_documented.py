"""Fails if a public item of the Python package has no entry on the site, or no docstring.

    check_python_documented.py SITE
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from pathlib import Path

# The public modules; the device module is documented by its parts.
MODULES = (
    "torch_backend", "torch_backend.ops", "torch_backend.fallback", "torch_backend.integrations", "torch_backend.distributed",
    "torch_backend.distributed.dry_run", "torch_backend.distributed.model", "torch_backend.lazy", "torch_backend.lazy.device", "torch_backend.meta",
    "torch_backend.xla", "torch_backend.xla.core.xla_model", "torch_backend.xla.runtime", "torch_backend.xla.debug.metrics",
    "torch_backend.xla.debug.metrics_saver", "torch_backend.xla.debug.profiler", "torch_backend.xla.amp", "torch_backend.xla.amp.syncfree",
    "torch_backend.xla.stablehlo", "torch_backend.xla.distributed.parallel_loader", "torch_backend.xla.distributed.data_parallel",
    "torch_backend.xla.distributed.xla_multiprocessing", "torch_backend.xla.utils.serialization", "torch_backend.xla.utils.utils",
    *(f"torch_backend.backend.{part}" for part in ("devices", "properties", "memory", "pools", "streams", "graphs", "random", "sensors", "amp", "nvtx")),
)  # fmt: skip


def public(module):
    """Returns (name, object) of the functions and classes that a module defines or lists in `__all__`."""
    listed = getattr(module, "__all__", None)
    names = listed if listed is not None else [name for name, value in vars(module).items()
                                               if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__]  # fmt: skip
    found = ((name, getattr(module, name)) for name in names)
    return [(name, value) for name, value in found if inspect.isfunction(value) or (inspect.isclass(value) and value.__module__.startswith("torch_backend"))]


def missing(module, entries):
    """Yields the items of a module that lack an entry or a docstring. An item may be listed where it is defined."""
    for name, value in public(module):
        places = {f"{module.__name__}.{name}", f"{value.__module__}.{value.__qualname__}"}
        if not places & entries:
            yield f"{module.__name__}.{name}: no entry on the site"
        if not inspect.getdoc(value):
            yield f"{module.__name__}.{name}: no docstring"


def main() -> int:
    """Prints what is missing and how many items there are."""
    os.environ.setdefault("TORCH_BACKEND", "fake")
    from sphinx.util.inventory import InventoryFile

    with open(Path(sys.argv[1]) / "objects.inv", "rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, name: name)
    kinds = getattr(inventory, "data", inventory)  # a dictionary until Sphinx 9.0
    entries = {name for kind, names in kinds.items() if kind.startswith("py:") for name in names}
    modules = [importlib.import_module(name) for name in MODULES]
    found = [line for module in modules for line in missing(module, entries)]
    for line in found:
        print(f"undocumented: {line}", file=sys.stderr)
    print(f"Python: {sum(len(public(module)) for module in modules)} public items, {len(found)} undocumented")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
