"""Inductor's policy for graphs: how it wraps a compiled region."""

from __future__ import annotations

import functools

from torch._guards import TracingContext
from torch._inductor.cudagraph_utils import CUDAGraphPolicy, cudagraphs_log

from ..._registry import type_name
from .choice import is_ours, skip
from .lines import called_operator, relocate
from .region import Region


class Policy(CUDAGraphPolicy):
    """Regions of the device are of class `Region`; others are torch's."""

    def should_wrap(self, compiled_graph) -> bool:
        """Reports why a region of the device has no graph, also if it comes from inductor's cache: torch reports it for
        devices of type cuda only.
        """
        reason = getattr(compiled_graph, "disabled_cudagraphs_reason", None)
        if reason and type_name() in compiled_graph.device_types:
            cudagraphs_log.warning(relocate(reason, _codes()))  # torch counts it
        return super().should_wrap(compiled_graph)

    def cudagraphify(self, model, example_inputs, static_input_idxs, *, device_index, is_backward, is_inference, **kwargs):
        if not is_ours(example_inputs):
            return super().cudagraphify(
                model, example_inputs, static_input_idxs, device_index=device_index, is_backward=is_backward, is_inference=is_inference, **kwargs
            )
        locate = functools.partial(called_operator, _codes())
        return Region(model, static_input_idxs, kwargs.get("mutated_input_idxs", ()), device_index, skip, is_backward, locate)


def _codes() -> list:
    """Returns the functions of the program that is compiled."""
    context = TracingContext.try_get()
    return [] if context is None else list(context.traced_code)
