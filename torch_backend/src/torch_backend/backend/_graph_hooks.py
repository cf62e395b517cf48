"""Hooks that run for every graph of the process: when a capture begins and ends, when the graph is instantiated, and around
each replay. The names are those of torch.cuda since torch 2.15.

Without a hook they cost nothing: the methods of torch.accelerator.Graph are wrapped when the first hook is registered.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable

from torch.accelerator import Graph
from torch.utils.hooks import RemovableHandle

Hook = Callable[[Graph], None]

_capture_start: OrderedDict[int, Hook] = OrderedDict()
_capture_end: OrderedDict[int, Hook] = OrderedDict()
_instantiate: OrderedDict[int, Hook] = OrderedDict()
_replay_start: OrderedDict[int, Hook] = OrderedDict()
_replay_end: OrderedDict[int, Hook] = OrderedDict()


def register_graph_capture_start_hook(fn: Hook) -> RemovableHandle:
    """Registers a hook that runs when a capture has begun. What the hook queues on the current stream is captured, too."""
    return _register(_capture_start, fn)


def register_graph_capture_end_hook(fn: Hook) -> RemovableHandle:
    """Registers a hook that runs when a capture has ended."""
    return _register(_capture_end, fn)


def register_graph_instantiate_hook(fn: Hook) -> RemovableHandle:
    """Registers a hook that runs when a graph is ready to run: after its capture, with `keep_graph=True` at `instantiate` or the
    first replay."""
    return _register(_instantiate, fn)


def register_graph_replay_start_hook(fn: Hook) -> RemovableHandle:
    """Registers a hook that runs before each replay."""
    return _register(_replay_start, fn)


def register_graph_replay_end_hook(fn: Hook) -> RemovableHandle:
    """Registers a hook that runs when a replay has been queued, or has raised."""
    return _register(_replay_end, fn)


def _register(hooks: OrderedDict[int, Hook], fn: Hook) -> RemovableHandle:
    _wrap_methods()
    handle = RemovableHandle(hooks)
    hooks[handle.id] = fn
    return handle


def _run(hooks: OrderedDict[int, Hook], graph: Graph) -> None:
    """An error of a hook is a warning, so that one program's hook does not end another's capture or replay."""
    for hook in list(hooks.values()):
        try:
            hook(graph)
        except Exception as error:
            warnings.warn(f"a hook of graphs raised {type(error).__name__}: {error}", stacklevel=3)


@functools.cache
def _wrap_methods() -> None:
    begin, end, instantiate, replay, reset = Graph.capture_begin, Graph.capture_end, Graph.instantiate, Graph.replay, Graph.reset
    create = Graph.__init__

    def is_ready(graph: Graph) -> None:
        graph._is_ready = True
        _run(_instantiate, graph)

    @functools.wraps(create)
    def __init__(self, keep_graph=False, **more):
        create(self, keep_graph, **more)
        self._keeps_graph = keep_graph

    @functools.wraps(begin)
    def capture_begin(self):
        self._is_ready = False
        begin(self)
        _run(_capture_start, self)

    @functools.wraps(end)
    def capture_end(self):
        end(self)
        _run(_capture_end, self)
        if not getattr(self, "_keeps_graph", False):
            is_ready(self)

    @functools.wraps(instantiate)
    def instantiate_(self):
        instantiate(self)
        is_ready(self)

    @functools.wraps(replay)
    def replay_(self):
        if getattr(self, "_keeps_graph", False) and not self._is_ready:
            instantiate_(self)
        _run(_replay_start, self)
        try:
            replay(self)
        finally:
            _run(_replay_end, self)

    @functools.wraps(reset)
    def reset_(self):
        reset(self)
        self._is_ready = False

    Graph.__init__, Graph.capture_begin, Graph.capture_end = __init__, capture_begin, capture_end
    Graph.instantiate, Graph.replay, Graph.reset = instantiate_, replay_, reset_
