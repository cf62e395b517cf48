"""Inductor's policy for graphs: how it wraps a compiled region."""

from __future__ import annotations

from torch._inductor.cudagraph_utils import CUDAGraphPolicy

from .choice import is_ours, skip
from .lines import called_operator
from .region import Region


class Policy(CUDAGraphPolicy):
    """Regions of the device are of class `Region`; others are torch's."""

    def cudagraphify(self, model, example_inputs, static_input_idxs, *, device_index, is_backward, is_inference, **kwargs):
        if not is_ours(example_inputs):
            return super().cudagraphify(
                model, example_inputs, static_input_idxs, device_index=device_index, is_backward=is_backward, is_inference=is_inference, **kwargs
            )
        return Region(model, static_input_idxs, kwargs.get("mutated_input_idxs", ()), device_index, skip, is_backward, called_operator)
