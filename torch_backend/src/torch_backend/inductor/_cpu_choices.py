"""Makes inductor choose for the device's C++ kernels what it chooses for the CPU's.

Inductor looks for the device type "cpu" where a choice depends on how its C++ kernels compute: what is recomputed, which
loops are reordered, whether a concatenation is copies. For other types it chooses as for kernels of GPUs.
"""

from __future__ import annotations

import functools

from torch._inductor import config, ir, lowering, scheduler

from torch_backend.backend import _utils


def install(computes_on_host) -> None:
    """Called once, when inductor first uses the device. `computes_on_host` returns whether the device's kernels are
    those of the host.
    """

    def ours(value) -> bool:
        return ir.get_device_type(value) == _utils.name() and computes_on_host()

    def is_cpu(original):
        return lambda x: original(x) or ours(x)

    def node_is_cpu(original):
        return lambda self: original(self) or ours(self.get_device())

    def pad_as_cat(original):
        return lambda x, padding, fill_value: None if ours(x) else original(x, padding, fill_value)

    def pointwise_cat(original):
        return lambda inputs, dim=0: _copies(inputs, dim) if ours(inputs[0]) and not config.force_pointwise_cat else original(inputs, dim)

    def two_step_variance(original):
        return lambda x, axis, keepdim, input_dtype: _in_two_steps(ours(x), original, x, axis, keepdim, input_dtype)

    _wrap(ir, "is_cpu", is_cpu)
    _wrap(scheduler.BaseSchedulerNode, "is_cpu", node_is_cpu)
    _wrap(lowering, "_pad_as_cat", pad_as_cat)
    _wrap(lowering, "pointwise_cat", pointwise_cat)
    _wrap(lowering, "use_two_step_variance", two_step_variance)


def _wrap(owner, name: str, wrapper) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrapper(original)))


def _copies(inputs, dim):
    """Lowers a concatenation to a copy of each input."""
    return lowering.TensorBox(ir.ConcatKernel.create(inputs, dim))


def _in_two_steps(ours: bool, original, *arguments) -> bool:
    """Returns whether a variance is computed after the mean; the alternative is one loop, which is not vectorized well."""
    threshold = config.cpp.use_two_step_variance_threshold if ours else config.unroll_reductions_threshold
    with config.patch(unroll_reductions_threshold=threshold):
        return original(*arguments)
