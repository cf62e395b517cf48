"""The accelerator for DeepSpeed: the device module with the names of DeepSpeedAccelerator."""

from __future__ import annotations

import functools
import importlib

import torch

from torch_backend import backend
from torch_backend._registry import device_name

# Functions of the device module that DeepSpeed calls by the same name.
_FUNCTIONS = (
    "device", "set_device", "current_device", "device_count", "synchronize", "set_rng_state", "get_rng_state", "manual_seed", "manual_seed_all",
    "initial_seed", "stream", "current_stream", "default_stream", "empty_cache", "memory_allocated", "max_memory_allocated", "memory_stats",
    "reset_peak_memory_stats", "memory_reserved", "max_memory_reserved", "is_bf16_supported", "is_available", "is_current_stream_capturing", "memory_cached",
    "max_memory_cached", "reset_max_memory_allocated", "reset_max_memory_cached",
)  # fmt: skip
_VALUES = {
    "is_synchronized_device": False, "use_host_timers": False, "resolves_data_dependency": False, "handles_memory_backpressure": False,
    "is_fp16_supported": True, "is_triton_supported": False, "communication_backend_name": "torch_backend", "visible_devices_envs": (),
    "export_envs": ("TORCH_BACKEND", "HAL_"),
}  # fmt: skip
_TENSORS = {
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "DoubleTensor": torch.float64, "FloatTensor": torch.float32, "HalfTensor": torch.float16,
    "IntTensor": torch.int32, "LongTensor": torch.int64,
}  # fmt: skip
# DeepSpeed's own operators are written in CUDA, or in C++ for the host. The optimizers in C++ serve ZeRO-Offload.
_OPERATORS = "deepspeed.ops.op_builder.cpu"


class _Device:
    """Devices of the plugins that torch_backend has opened."""

    def device_name(self, device_index=None):
        return device_name() if device_index is None else f"{device_name()}:{device_index}"

    def current_device_name(self):
        return self.device_name(backend.current_device())

    def random(self):
        return torch.random

    def default_generator(self, device_index):
        return backend.default_generators[device_index]

    def total_memory(self, device_index=None):
        return backend.mem_get_info(device_index)[1]

    def available_memory(self, device_index=None):
        return backend.mem_get_info(device_index)[0]

    def supported_dtypes(self):
        return [torch.float32, torch.float16, torch.bfloat16]

    def range_push(self, msg, domain=None, category=None):
        return backend.nvtx.range_push(msg)

    def range_pop(self, domain=None):
        return backend.nvtx.range_pop()

    def lazy_call(self, callback):
        callback()

    def create_graph(self):
        return backend.Graph()

    def capture_to_graph(self, graph, pool=None, stream=None):
        return backend.graph(graph, pool=pool, stream=stream)

    def replay_graph(self, graph):
        graph.replay()

    def on_accelerator(self, tensor):
        return tensor.device.type == device_name()

    def op_builder_dir(self):
        return _OPERATORS

    def create_op_builder(self, class_name):
        return self.get_op_builder(class_name)()

    def get_op_builder(self, class_name):
        builders = importlib.import_module(_OPERATORS)
        return getattr(builders, class_name if class_name.startswith("CPU") else "", builders.NotImplementedBuilder)

    def build_extension(self):
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def set_visible_devices_envs(self, current_env, local_accelerator_ids):
        """The launcher starts a process for each device; each process chooses its device by LOCAL_RANK."""
        if list(local_accelerator_ids) != list(range(len(local_accelerator_ids))):
            raise NotImplementedError(
                f"deepspeed with the devices {list(local_accelerator_ids)}: no environment variable hides devices of '{device_name()}'. "
                "Use the first ones: --num_gpus."
            )

    def get_compile_backend(self):
        return self._compile_backend

    def set_compile_backend(self, backend):
        names = torch._dynamo.list_backends(exclude_tags=())
        if backend not in names:
            raise ValueError(f"unknown compiler {backend!r}: expected one of {', '.join(names)}")
        self._compile_backend = backend


def _calls(name: str):
    return lambda self, *arguments: getattr(backend, name)(*arguments)


def _returns(value):
    return lambda self, *arguments, **options: list(value) if isinstance(value, tuple) else value


for _name in _FUNCTIONS:
    setattr(_Device, _name, _calls(_name))
for _name, _value in _VALUES.items():
    setattr(_Device, _name, _returns(_value))
for _name in ("Stream", "Event"):
    setattr(_Device, _name, property(lambda self, name=_name: getattr(backend, name)))
for _name, _dtype in _TENSORS.items():
    setattr(_Device, _name, property(lambda self, dtype=_dtype: functools.partial(torch.tensor, dtype=dtype, device=device_name())))


def accelerator(base: type):
    """Returns the accelerator: an object of a subclass of DeepSpeedAccelerator, which is `base`."""
    made = type("TorchBackendDeepSpeedAccelerator", (_Device, base), {})()
    made._name, made._communication_backend_name, made._compile_backend = device_name(), "torch_backend", "inductor"
    return made
