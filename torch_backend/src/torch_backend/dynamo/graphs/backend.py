"""torch.compile(backend="cudagraphs"): AOTAutograd's graphs, whose operators are called one by one, as recordings."""

from __future__ import annotations

import functools

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.cudagraphs import find_input_mutations, get_device_node_mapping
from torch._dynamo.backends.debugging import boxed_nop
from torch._inductor.utils import num_fw_fixed_arguments

from .choice import reason_against, skip
from .lines import failed_operator
from .random import generators
from .region import Region


def compile_graph(model: torch.fx.GraphModule, inputs):
    """Returns the compiled function of a graph of TorchDynamo."""

    def compile_part(part: torch.fx.GraphModule, part_inputs, is_backward: bool):
        call = boxed_nop(part, part_inputs)
        devices = get_device_node_mapping(part)
        if reason := reason_against(devices, part):
            skip(reason)
            return call
        count = sum(not isinstance(one, torch.Generator) for one in part_inputs)  # generators are the last inputs
        static = () if is_backward else range(num_fw_fixed_arguments(len(inputs), count))
        index = next((device.index for device in devices if device.index is not None), 0)
        locate = functools.partial(failed_operator, part)
        return Region(call, static, find_input_mutations(part.graph), index, skip, is_backward, locate)

    compiler = aot_autograd(
        fw_compiler=functools.partial(compile_part, is_backward=False),
        bw_compiler=functools.partial(compile_part, is_backward=True),
        inference_compiler=functools.partial(compile_part, is_backward=False),
        keep_inference_input_mutations=torch._dynamo.config.cudagraph_backend_keep_input_mutation,
    )
    with generators():
        return compiler(model, inputs)
