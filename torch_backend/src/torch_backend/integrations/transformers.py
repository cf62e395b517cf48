"""transformers: the branches for `musa`, as in accelerate, and code that checks for CUDA only.

`Trainer` gets its device from accelerate, so both are enabled together.
"""

from __future__ import annotations

from types import ModuleType

from ._table import Patch, Table, Undo
from ._tools import answer, forget_all, say_our_name, together

_BRANCHES = {
    "transformers.training_args": "device of Trainer",
    "transformers.trainer": "state of random numbers, saved and restored on resume",
    "transformers.trainer_utils": "set_seed and memory metrics",
    "transformers.pipelines.base": "device of pipelines by index",
    "transformers.utils": "list of devices",
}


def _available(check_device=False):  # replaces the code of is_torch_musa_available, so it uses no global of this module
    from torch_backend import _registry

    if not _registry.is_active():
        return False
    from torch_backend import backend

    return backend.is_available()


# replaces the code of is_torch_tf32_available, which checks the generation of NVIDIA's or Moore Threads' chips
def _no_tf32():
    return False


def _detect(module: ModuleType) -> Undo:
    return together(
        forget_all(module),
        answer(module.is_torch_musa_available, _available),
        answer(module.is_torch_tf32_available, _no_tf32),
        say_our_name(module, "musa", only=["is_torch_bf16_gpu_available"]),
        forget_all(module),
    )


def _say(module: ModuleType) -> Undo:
    return say_our_name(module, "musa")


def _offloaded_cache(module: ModuleType) -> Undo:
    return say_our_name(module, "cuda", only=["Cache.update"])


def _generate(module: ModuleType) -> Undo:
    """`generate` compiles with a static cache on the devices of a list."""
    return say_our_name(module, "cuda", only=["GenerationMixin._valid_auto_compile_criteria"])


def _warm_up(module: ModuleType) -> Undo:
    """Fills the allocator's cache before the weights are loaded, as far as memory is free."""
    return say_our_name(module, "cuda", only=["caching_allocator_warmup"])


def _max_memory(module: ModuleType) -> Undo:
    """Counts memory that the caching allocator has reserved and no tensor uses as free."""
    return say_our_name(module, "cuda", only=["get_max_memory"])


TABLES = [
    Table("transformers", ("5.23", "5.24"), [
        Patch("transformers.utils.import_utils", "the device is found, and that it has bf16", _detect),
        *(Patch(module, what, _say) for module, what in _BRANCHES.items()),
        Patch("transformers.cache_utils", "offloaded caches of keys and values", _offloaded_cache),
        Patch("transformers.generation.utils", "generate compiles with a static cache", _generate),
        Patch("transformers.modeling_utils", "the allocator's cache before weights are loaded", _warm_up),
        Patch("transformers.integrations.accelerate", "device_map by free memory", _max_memory),
    ])
]  # fmt: skip
