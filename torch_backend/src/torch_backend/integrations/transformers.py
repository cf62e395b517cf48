"""transformers: the branches for `musa`, as in accelerate, and code that checks for CUDA only.

`Trainer` gets its device from accelerate, so both are enabled together.
"""

from __future__ import annotations

from types import ModuleType

from torch_backend._registry import device_name

from ._table import Patch, Table, Undo
from ._tools import answer, forget_all, replace, say_our_name, together

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


# Continuous batching fills the inputs of a step on the current stream and computes on another one, without an event
# between them. This replaces the code of its stream_context, so the names are those of its module.
def _waiting_context(stream):
    if stream is None:
        return nullcontext()  # noqa: F821
    device_module = torch.get_device_module()  # noqa: F821
    stream.wait_stream(device_module.current_stream(stream.device))
    return device_module.stream(stream)


def _continuous_batching(module: ModuleType) -> Undo:
    graphs = module.DEVICE_TYPE_TO_GRAPH_NAME
    graphs[device_name()] = "Graph"
    return together(
        lambda: graphs.pop(device_name(), None),
        answer(module.stream_context, _waiting_context),
        say_our_name(module, "cuda", only=["get_device_and_memory_breakdown"]),
    )


def _asynchronous_batching(module: ModuleType) -> Undo:
    batching = module.ContinuousBatchingAsyncIOs
    return replace(batching, "_supported_device_types", (*batching._supported_device_types, device_name()))


def _generation_thread(module: ModuleType) -> Undo:
    """The thread of continuous batching makes the model's device the current one."""
    return say_our_name(module, "cuda", only=["ContinuousBatchingManager._run_generation_loop"])


_BATCHING = "transformers.generation.continuous_batching"

TABLES = [
    Table("transformers", ("5.23", "5.24"), [
        Patch("transformers.utils.import_utils", "the device is found, and that it has bf16", _detect),
        *(Patch(module, what, _say) for module, what in _BRANCHES.items()),
        Patch("transformers.cache_utils", "offloaded caches of keys and values", _offloaded_cache),
        Patch("transformers.generation.utils", "generate compiles with a static cache", _generate),
        Patch(f"{_BATCHING}.utils", "continuous batching: order of streams, graphs, free memory", _continuous_batching),
        Patch(f"{_BATCHING}.input_outputs", "continuous batching: asynchronous batches", _asynchronous_batching),
        Patch(f"{_BATCHING}.continuous_api", "continuous batching: the device of its thread", _generation_thread),
        Patch("transformers.modeling_utils", "the allocator's cache before weights are loaded", _warm_up),
        Patch("transformers.integrations.accelerate", "device_map by free memory", _max_memory),
    ])
]  # fmt: skip
