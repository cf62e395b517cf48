"""Triton's compiler for Acme's devices: Triton IR, by Triton's own passes, then C (lowering.py)."""

import hashlib
from dataclasses import dataclass

from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend

from . import lowering


@dataclass(frozen=True)
class AcmeOptions:
    """The options of a launch, such as `num_warps`, and what Triton's frontend reads."""

    num_warps: int = 1
    num_ctas: int = 1
    num_stages: int = 1
    warp_size: int = 1
    backend_name: str = "acme"
    arch: str = ""
    debug: bool = False
    sanitize_overflow: bool = False
    enable_fp_fusion: bool = False
    launch_cooperative_grid: bool = False
    instrumentation_mode: str = ""
    extern_libs: tuple = ()
    supported_fp8_dtypes: tuple = ()
    deprecated_fp8_dot_operand_dtypes: tuple = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple = ("ieee",)
    max_num_imprecise_acc_default: int = 0

    def hash(self):
        return hashlib.sha256(repr(self).encode()).hexdigest()


class AcmeBackend(BaseBackend):
    def __init__(self, target):
        super().__init__(target)
        self.binary_ext = "c"

    @staticmethod
    def supports_target(target):
        return target.backend == "acme"

    def hash(self):
        return f"acme-1-{self.target.arch}"

    def parse_options(self, options):
        return AcmeOptions(**{name: value for name, value in options.items() if name in AcmeOptions.__dataclass_fields__})

    def pack_metadata(self, metadata):
        return metadata.num_warps, metadata.num_ctas, metadata.shared

    def get_codegen_implementation(self, options):
        return {"min_dot_size": lambda left, right: (1, 1, 1)}

    def get_module_map(self):
        return {}

    def load_dialects(self, context):
        pass

    def add_stages(self, stages, options, language=None):
        stages["ttir"] = lambda module, metadata: self.make_ttir(module)
        stages["c"] = lambda module, metadata: self.make_c(module, metadata)

    @staticmethod
    def make_ttir(module):
        manager = ir.pass_manager(module.context)
        for add in (passes.common.add_inliner, passes.common.add_canonicalizer, passes.common.add_cse, passes.common.add_symbol_dce):
            add(manager)
        manager.run(module, "make_ttir")
        return module

    @staticmethod
    def make_c(module, metadata):
        metadata["shared"] = 0
        metadata["name"], text = lowering.translate(module.str_nodebug())
        return text.encode()
