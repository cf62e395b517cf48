"""The StableHLO text of deferred work, on devices whose compiler uses it (the plugin pjrt).

::

    y = model(x)
    print(stablehlo.get_stablehlo())  # submits the deferred work
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import torch
from torch.utils import _pytree

from torch_backend import lazy
from torch_backend._registry import device_name

__all__ = ["StableHLOGraphModule", "exported_program_to_stablehlo", "get_stablehlo", "record"]


@contextlib.contextmanager
def _dumped():
    """Yields a list, which gets the texts of the programs that run in the block, and of deferred work at its end."""
    if device_name() != "pjrt":
        raise RuntimeError(f"StableHLO is the language of the plugin pjrt; programs of the device type {device_name()!r} have no such text")
    programs: list[str] = []
    before = os.environ.get("HAL_PJRT_DUMP")
    with tempfile.TemporaryDirectory(prefix="stablehlo-") as folder:
        os.environ["HAL_PJRT_DUMP"] = folder
        try:
            yield programs
            lazy.mark_step(wait=True)
        finally:
            os.environ.pop("HAL_PJRT_DUMP")
            if before is not None:
                os.environ["HAL_PJRT_DUMP"] = before
        files = sorted(Path(folder).glob("*.mlir"), key=lambda file: (file.stat().st_mtime_ns, int(file.stem.rpartition("-")[2])))
        programs += [file.read_text() for file in files]


@contextlib.contextmanager
def record():
    """A context in which the programs that run are recorded: `with record() as programs:`. The list has their texts
    afterwards, in the order of their first run. Deferred work is submitted at the beginning and at the end.
    """
    lazy.mark_step(wait=True)
    with _dumped() as programs:
        yield programs


def get_stablehlo(tensors: list | None = None) -> str:
    """Submits the deferred work and returns its programs as StableHLO text. `tensors` is accepted as in torch_xla: all
    deferred work is submitted.
    """
    with _dumped() as programs:
        pass
    return "\n".join(programs)


class StableHLOGraphModule:
    """An exported program and its StableHLO text."""

    def __init__(self, exported: torch.export.ExportedProgram, text: str):
        self._module, self._text = exported.module(), text

    def get_stablehlo_text(self, method_name: str = "forward") -> str:
        """Returns the text."""
        if method_name != "forward":
            raise ValueError(f"invalid method {method_name!r}: expected 'forward'")
        return self._text

    def __call__(self, *args, **kwargs):
        """Runs the program on the device type "lazy"; returns tensors of the CPU."""
        with torch.no_grad():
            module, (args, kwargs) = self._module.to("lazy"), _sent((args, kwargs), "lazy")
            return _sent(module(*args, **kwargs), "cpu")


def _sent(values, device: str):
    return _pytree.tree_map(lambda value: value.to(device) if isinstance(value, torch.Tensor) else value, values)


def exported_program_to_stablehlo(exported_model: torch.export.ExportedProgram, options=None) -> StableHLOGraphModule:
    """Runs an exported program once with its example inputs, and returns it with its StableHLO text. Parameters are
    arguments of the text.
    """
    args, kwargs = exported_model.example_inputs
    module = exported_model.module().to("lazy")
    args, kwargs = _sent((args, kwargs), "lazy")
    with record() as programs, torch.no_grad():
        kept = module(*args, **(kwargs or {}))  # results that nothing holds are not computed
        lazy.mark_step(wait=True)
        del kept
    return StableHLOGraphModule(exported_model, "\n".join(programs))
