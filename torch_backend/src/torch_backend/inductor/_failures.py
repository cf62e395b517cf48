"""Errors of code generation name the operators for which code was generated, and the program's lines."""

from __future__ import annotations

import functools

from torch._inductor.scheduler import Scheduler

from torch_backend.backend import _utils

from ..dynamo.graphs.lines import line_of

_MOST = 3  # operators in a message


def install() -> None:
    """Called once, when inductor first uses the device."""
    original = Scheduler.codegen

    @functools.wraps(original)
    def codegen(self, *args, **kwargs):
        try:
            return original(self, *args, **kwargs)
        except NotImplementedError as error:
            operators = _operators(getattr(self, "current_node", None))
            if not operators:
                raise
            raise NotImplementedError(f"{error}\nIn the code for {', and '.join(operators)}") from error

    Scheduler.codegen = codegen


def _operators(node) -> list[str]:
    """Returns operators and lines of a node of the scheduler that is on the device."""
    if node is None or (device := node.get_device()) is None or device.type != _utils.name():
        return []
    origins = [origin for part in node.get_nodes() if part.node is not None for origin in part.node.get_origins()]
    names = {origin: f"{origin.target}{line_of(origin)}" for origin in origins if origin.op == "call_function"}
    return list(dict.fromkeys(names.values()))[:_MOST]
