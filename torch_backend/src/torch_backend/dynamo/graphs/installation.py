"""Makes torch.compile's graphs run on the device: inductor's policy for `mode="reduce-overhead"`, and the backend
"cudagraphs". Graphs of other devices remain torch's own.
"""

from __future__ import annotations

import functools

from ..._imports import after_import
from ..._registry import type_name
from .choice import is_ours, reason_against


def install() -> None:
    """Extends the backend "cudagraphs" when torch imports it."""
    after_import("torch._dynamo.backends.cudagraphs", _extend_backend)


def install_in_inductor() -> None:
    """Called once, when inductor first uses the device."""
    _accept_device()
    _end_without_manager()
    _name_lines()
    _set_policy()


# ---- inductor ----
def _accept_device() -> None:
    """torch records graphs of devices of type cuda only."""
    from torch._inductor import cudagraph_utils
    from torch._inductor.virtualized import V

    original = cudagraph_utils.check_lowering_disable_cudagraph

    @functools.wraps(original)
    def check(device_node_mapping, *args, **kwargs):
        if not any(device.type == type_name() for device in device_node_mapping):
            return original(device_node_mapping, *args, **kwargs)
        return reason_against(device_node_mapping, V.graph.module)  # the policy reports it

    cudagraph_utils.check_lowering_disable_cudagraph = check


def _end_without_manager() -> None:
    """torch reports backward passes that run without graphs to the manager of its graph trees. It has none for the
    device.
    """
    from torch._inductor import output_code

    original = output_code.maybe_handle_backward_generation

    @functools.wraps(original)
    def handle(compiled_graph, *args, **kwargs):
        if type_name() not in compiled_graph.device_types:
            original(compiled_graph, *args, **kwargs)

    output_code.maybe_handle_backward_generation = handle


def _name_lines() -> None:
    """Writes the program's lines above calls of operators, for errors of a capture."""
    from torch._inductor import config, ir
    from torch._inductor.virtualized import V

    from .lines import comment_of

    original = ir.ExternKernel.codegen_comment

    @functools.wraps(original)
    def codegen_comment(self, wrapper, *args, **kwargs):
        original(self, wrapper, *args, **kwargs)
        operator = getattr(self, "op_overload", None)
        node = self.get_origin_node() or next((node for node in self.origins if node.target is operator), None)
        if node is not None and config.triton.cudagraphs and not V.graph.cpp_wrapper and type_name() in V.graph.device_types:
            wrapper.make_comment(comment_of(node))

    ir.ExternKernel.codegen_comment = codegen_comment


def _set_policy() -> None:
    from torch._inductor import config

    if config.cudagraph_policy is None:
        from .policy import Policy

        config.cudagraph_policy = Policy()


# ---- the backend "cudagraphs" ----
def _extend_backend() -> None:
    from torch._dynamo.backends import cudagraphs as module

    from .backend import compile_graph

    original = module.cudagraphs

    @functools.wraps(original)
    def cudagraphs(model, inputs, *args, **kwargs):
        return compile_graph(model, inputs) if is_ours(inputs) else original(model, inputs, *args, **kwargs)

    module.cudagraphs = cudagraphs
