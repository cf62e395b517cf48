"""torch.compile(backend="<name>"): the device's name as a compiler of TorchDynamo, which is inductor.

PyTorch's tests of out-of-tree devices use it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import torch

from .._registry import type_name

_GROUP = "torch_dynamo_backends"


def install() -> None:
    """Called when torch imports its registry of compilers. A compiler of this name that another package declares or
    registers takes precedence.
    """
    from torch._dynamo.backends import registry

    name = type_name()
    if name not in entry_points(group=_GROUP).names:
        registry._BACKENDS.setdefault(name, EntryPoint(name, f"{__name__}:compile_graph", _GROUP))


def compile_graph(graph: torch.fx.GraphModule, inputs, *, mode: str | None = None, options: dict | None = None):
    """Compiles a graph with the arguments `mode` and `options` of torch.compile.

    RuntimeError: inductor has no such mode or option.
    """
    return torch._TorchCompileInductorWrapper(mode, options, None)(graph, inputs)
