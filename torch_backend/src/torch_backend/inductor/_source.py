"""Inductor's scheduling for devices that compile source: which operators are fused into one kernel, and how generated
code calls it. Also for devices without kernels, where nothing is fused.
"""

from __future__ import annotations

from torch._inductor import config
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_backend.backend import _utils

from ._kernel import KERNEL, Kernel

_MOST_BUFFERS = 40  # per kernel; leaves space for the sizes within a launch's maximum number of arguments


class SourceScheduling(SIMDScheduling):
    """Fuses operators into kernels of the portable dialect."""

    kernel_type = Kernel

    def get_backend_features(self, device) -> OrderedSet[BackendFeature]:
        return OrderedSet([BackendFeature.INPLACE_BUFFERS])

    @classmethod
    def get_tiling_and_scores(cls, node_schedule, numel, reduction_numel=1, coalesce_analysis=None):
        """Returns a tiling of two dimensions, all results and all reduced elements; an item divides its number to
        compute its index.
        """
        return cls.create_tiling([numel], [reduction_numel]), None

    def can_fuse(self, node1, node2):
        buffers = OrderedSet(dep.name for node in (node1, node2) for dep in (*node.read_writes.reads, *node.read_writes.writes))
        return len(buffers) <= _MOST_BUFFERS and super().can_fuse(node1, node2)

    can_fuse_vertical = can_fuse_horizontal = can_fuse

    def define_kernel(self, src_code, node_schedule, kernel):
        wrapper = V.graph.wrapper_code
        if V.graph.cpp_wrapper and not V.graph.aot_mode:
            raise NotImplementedError(
                f"cpp_wrapper does not support kernel launches on '{_utils.name()}', whose memory the host may not access. "
                "Set torch._inductor.config.cpp_wrapper = False."
            )
        fused = get_fused_kernel_name(node_schedule, config.triton.descriptive_names)
        text = src_code.replace(KERNEL, f"compiled_{fused}"[:100])
        key = (text, kernel.letters())
        if key not in wrapper.src_to_kernel:
            name = f"{_utils.name()}_{fused}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[key] = name
            origins, details = get_kernel_metadata(node_schedule, wrapper)
            if V.graph.aot_mode:
                wrapper.define_source_kernel(name, f"compiled_{fused}"[:100], text, kernel.reports, f"{origins}\n{details}")
                return name
            call = f"compile_kernel({kernel.device.index or 0}, 'compiled_{fused}'[:100], '''\\\n{text}''', '{kernel.letters()}', {kernel.reports})"
            wrapper.define_kernel(name, call, f"{origins}\n{details}", gpu=False)
        return wrapper.src_to_kernel[key]

    def ready_to_flush(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def codegen_sync(self) -> None:
        device, wrapper = V.graph.get_current_device_or_throw(), V.graph.wrapper_code
        wrapper.writeline(wrapper.wait(device) if V.graph.cpp_wrapper else f"torch.accelerator.synchronize({device.index or 0})")


class OperatorScheduling(SourceScheduling):
    """Refuses loops. All operators of the graph are called, so the only loops are those that inductor adds after
    `Way.mark`.
    """

    def define_kernel(self, src_code, node_schedule, kernel):
        names = ", ".join(sorted({node.node.get_operation_name() for node in node_schedule if hasattr(node, "node")}))
        raise NotImplementedError(
            f"torch.compile has no kernels for '{kernel.device}', and inductor generated loops for code that is not an operator of the graph ({names}). "
            "Use torch.compile(backend='aot_eager'), which runs the device's own operators."
        )
