"""Graphs: work that is captured once and replayed, with the interface of torch.cuda, based on torch.accelerator.Graph.

A capture records work without computing it. `Graph.replay` queues that work again on the same memory. So programs
write inputs into the captured tensors and read results from them. Each replay generates new random numbers. Pageable
host memory is read once, at the capture.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence

import torch
from torch.accelerator import Graph
from torch.utils import _pytree

from ._graph_hooks import (
    register_graph_capture_end_hook,
    register_graph_capture_start_hook,
    register_graph_instantiate_hook,
    register_graph_replay_end_hook,
    register_graph_replay_start_hook,
)
from ._liveness import InputTracker
from .pools import new_pool_id
from .streams import Stream, current_stream, owned_stream, stream as on_stream

__all__ = [
    "Graph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables", "register_graph_capture_end_hook",
    "register_graph_capture_start_hook", "register_graph_instantiate_hook", "register_graph_replay_end_hook",
    "register_graph_replay_start_hook",
]  # fmt: skip


_NO_ANNOTATIONS = "{}(enable_annotations=True): only NVIDIA's driver names the kernels of a graph; leave it out"


def graph_pool_handle() -> tuple[int, int]:
    """Returns an id under which several graphs share memory: pass it as `pool` of a graph."""
    return new_pool_id()


def is_current_stream_capturing() -> bool:
    """Returns whether the current stream of the current device is being captured."""
    return current_stream().is_capturing()


class graph:  # noqa: N801  torch.cuda's name
    """Context manager that captures the work that the calling thread queues into `graph`.

    Args:
        graph: the graph to capture into.
        pool: memory to share, as returned by `graph_pool_handle` or another graph's `pool()`.
        stream: the stream to capture; by default one that no other thread gets until the capture ends.
        check_input_liveness: `replay` raises RuntimeError if a tensor that the capture used, but did not create, has
        been freed.
        capture_error_mode: accepted for compatibility with torch.cuda; only access to the captured streams fails here.
        enable_annotations, annotation_config: raises NotImplementedError, because only NVIDIA's driver supports it.

    Raises:
        RuntimeError: work that cannot be captured, with the operator's name: reading values (`item()`), or an
        operator that runs on the CPU.
    """

    def __init__(
        self,
        graph: Graph,
        pool: tuple[int, int] | None = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        annotation_config: dict | None = None,
        check_input_liveness: bool = False,
    ):
        if isinstance(annotation_config, bool):  # torch 2.13 and 2.14 have check_input_liveness at this position
            annotation_config, check_input_liveness = None, annotation_config
        if enable_annotations or annotation_config:
            raise NotImplementedError(_NO_ANNOTATIONS.format("graph"))
        graph.graph_pool = pool if pool is not None else graph.graph_pool
        self._graph, self._stream = graph, stream
        self._contexts = contextlib.ExitStack()
        self._tracker = InputTracker() if check_input_liveness else None

    def __enter__(self) -> None:
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()
        with contextlib.ExitStack() as contexts:
            contexts.enter_context(on_stream(self._stream or contexts.enter_context(owned_stream())))
            self._graph.capture_begin()
            self._contexts = contexts.pop_all()
        self._graph.__dict__.pop("replay", None)  # a tracker of the previous capture
        if self._tracker is not None:
            self._tracker.__enter__()

    def __exit__(self, kind, error, trace) -> None:
        if self._tracker is not None:
            self._tracker.__exit__(kind, error, trace)
            _check_before_replay(self._graph, self._tracker)
        try:
            self._graph.capture_end()
        except RuntimeError as failure:
            if error is None:
                raise
            if hasattr(error, "add_note"):  # Python 3.11; the error that invalidated the capture is being raised
                error.add_note(f"The capture has ended: {failure}")
        finally:
            self._contexts.close()


def _check_before_replay(graph: Graph, tracker: InputTracker) -> None:
    reference = weakref.ref(graph)  # a cycle would keep the graph alive until a garbage collection

    def checked() -> None:
        tracker.check()
        Graph.replay(reference())

    graph.replay = checked


def make_graphed_callables(
    callables,
    sample_args,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool=None,
    capture_error_mode: str = "global",
    enable_annotations: bool = False,
):
    """Returns graphed versions of functions or modules, whose forward and backward passes are replayed.

    Works as torch.cuda.make_graphed_callables. `callables` is one callable or a tuple, which the program later calls
    in this order. `sample_args` are tuples of tensors with the sizes, dtypes, devices and `requires_grad` of later
    calls. A module is changed in place. It replays in the mode, training or evaluation, in which it was captured.
    `capture_error_mode` and `enable_annotations` are those of `graph`.

    Raises:
        RuntimeError: autocast is enabled with its cache, whose casts would not be replayed.
    """
    if enable_annotations:
        raise NotImplementedError(_NO_ANNOTATIONS.format("make_graphed_callables"))
    if torch.is_autocast_cache_enabled() and torch.is_autocast_enabled(current_stream().device.type):
        raise RuntimeError("make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`.")
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    pool = graph_pool_handle() if pool is None else pool
    parts = [_Part(function, sample, allow_unused_input) for function, sample in zip(functions, samples, strict=True)]
    side = Stream(current_stream().device)
    side.wait_stream(current_stream())
    with on_stream(side):
        for part in parts:
            part.warm_up(num_warmup_iters)
    current_stream().wait_stream(side)
    for part in parts:
        part.capture_forward(pool)
    for part in reversed(parts):  # the order in which gradients are computed, in which they share memory
        part.capture_backward(pool)
    graphed = tuple(part.graphed() for part in parts)
    return graphed[0] if single else graphed


class _Part:
    """One callable with the tensors that its graphs read and write."""

    def __init__(self, function: Callable, sample: Sequence, allow_unused: bool):
        self.function, self.allow_unused = function, allow_unused
        if isinstance(function, torch.nn.Module):
            hooks = (function._backward_hooks, function._forward_hooks, function._forward_pre_hooks)
            if any(hooks):
                raise RuntimeError("Modules must not have hooks registered at the time they are passed. Register them afterwards.")
            if any(buffer.requires_grad for buffer in function.buffers()):
                raise RuntimeError("In any make_graphed_callables, only parameters may be trainable. All buffers must have requires_grad=False.")
        flat, self.input_spec = _pytree.tree_flatten(tuple(sample))
        if not all(isinstance(value, torch.Tensor) for value in flat):
            raise TypeError("sample_args of make_graphed_callables may hold tensors only")
        self.sample, self.arguments = sample, flat
        parameters = tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        self.inputs = (*flat, *parameters)
        self.training = getattr(function, "training", None)

    @property
    def _wanted(self) -> list[torch.Tensor]:
        return [tensor for tensor in self.inputs if tensor.requires_grad]

    def _gradients(self, outputs, given):
        pairs = [(output, grad) for output, grad in zip(outputs, given, strict=True) if output.requires_grad]
        if not pairs or not self._wanted:
            return ()
        return torch.autograd.grad(
            [output for output, _ in pairs], self._wanted, [grad for _, grad in pairs], only_inputs=True, allow_unused=self.allow_unused
        )

    def warm_up(self, times: int) -> None:
        """Creates objects that exist after the first call, such as gradients' streams and compiled kernels, outside of
        a capture.
        """
        for _ in range(times):
            outputs = _pytree.tree_leaves(self.function(*self.sample))
            self._gradients(outputs, [torch.zeros_like(output) for output in outputs])

    def capture_forward(self, pool) -> None:
        self.forward = Graph()
        with graph(self.forward, pool=pool):
            result = self.function(*self.sample)
        self.outputs, self.output_spec = _pytree.tree_flatten(result)

    def capture_backward(self, pool) -> None:
        self.given = [torch.empty_like(output) if output.requires_grad else None for output in self.outputs]
        self.backward = Graph()
        with graph(self.backward, pool=pool):
            found = iter(self._gradients(self.outputs, self.given))
        self.gradients = [next(found, None) if tensor.requires_grad else None for tensor in self.inputs]

    def graphed(self):
        run = self._function()
        if not isinstance(self.function, torch.nn.Module):
            return run
        eager = self.function.forward

        def forward(*arguments):
            return run(*arguments) if self.function.training == self.training else eager(*arguments)

        self.function.forward = forward
        return self.function

    def _function(self):
        part = self

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                for captured, value in zip(part.arguments, inputs):
                    if captured.data_ptr() != value.data_ptr():
                        captured.copy_(value)
                part.forward.replay()
                return tuple(output.detach() for output in part.outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, *grads):
                for captured, value in zip(part.given, grads, strict=True):
                    if captured is not None and captured.data_ptr() != value.data_ptr():
                        captured.copy_(value)
                part.backward.replay()
                # Returns the tensors themselves. Autograd copies a tensor that has other references; a detached one
                # would become the parameter's `grad`, which the next replay overwrites.
                return tuple(part.gradients)

        def run(*arguments):
            flat, spec = _pytree.tree_flatten(arguments)
            if spec != part.input_spec:
                raise TypeError("a graphed callable was called with arguments of another structure than its sample_args")
            outputs = Replay.apply(*flat, *part.inputs[len(flat):])
            return _pytree.tree_unflatten(list(outputs), part.output_spec)

        return run
