"""accelerate: its branches for Moore Threads' `musa`, also an extension of torch, are used for the device.

They cover what accelerate does with a device: the default device, fp16 and bf16, `get_max_memory` and
`infer_auto_device_map`, offloading hooks, seeds, and the state of random numbers in `save_state`. Its branches for
other extensions omit some of these.
"""

from __future__ import annotations

import functools
import os
import sys
from types import CodeType, ModuleType

import torch

from .._registry import device_name
from ._table import Patch, Table, Undo
from ._tools import answer, exchange, renamed, replace, say_our_name, together, wrap

# module: purpose of its branches
_BRANCHES = {
    "accelerate.accelerator": "fp16 mixed precision",
    "accelerate.checkpointing": "state of random numbers in save_state and load_state",
    "accelerate.hooks": "offloading hooks",
    "accelerate.utils.dataclasses": "device of plugins",
    "accelerate.utils.environment": "device type of the environment",
    "accelerate.utils.memory": "clearing the cache",
    "accelerate.utils.modeling": "get_max_memory, infer_auto_device_map, the scaler of fp16",
    "accelerate.utils.random": "set_seed and synchronized random numbers",
    "accelerate.commands.config.default": "default of `accelerate config`",
    "accelerate.commands.env": "`accelerate env`",
    "accelerate.commands.launch": "`accelerate launch`",
}


def _available(check_device=None):  # replaces the code of is_musa_available, so it uses no global of this module
    from torch_backend import _registry

    if check_device is False or not _registry.is_active():  # False: queried before `import torch_musa`
        return False
    from torch_backend import backend

    return backend.is_available()


def _detect(module: ModuleType) -> Undo:
    return answer(module.is_musa_available, _available)


def _name_of_moved_models(module: ModuleType) -> Undo:
    """Hooks replace a model's `to` and `musa`; this list names the methods to restore."""
    names = module._accelerate_added_attributes
    return replace(module, "_accelerate_added_attributes", [*names, device_name()])


def _default_device(module: ModuleType) -> Undo:
    """AcceleratorState sets a switch of musa's own library, torch.backends.musa, which does not exist here."""
    return say_our_name(module, "musa", leave=["AcceleratorState.__init__"])


def _dispatch(module: ModuleType) -> Undo:
    """The branch for `musa` turns a single index into a device, but does not move the model there."""
    original = module.dispatch_model

    @functools.wraps(original)
    def dispatch_model(model, device_map, *arguments, **options):
        dispatched = original(model, device_map, *arguments, **options)
        devices = set(device_map.values())
        (only,) = devices if len(devices) == 1 else (None,)
        if isinstance(only, int) and not hasattr(dispatched, "_hf_hook"):
            dispatched.to(torch.device(device_name(), only))
        return dispatched

    return together(_say(module), exchange(original, dispatch_model))


def _gpu_ids(module: ModuleType) -> Undo:
    """accelerate passes a choice of devices in an environment variable of the vendor, which has no effect here."""
    return together(*(_refuse_gpu_ids(getattr(module, name)) for name in ("prepare_simple_launcher_cmd_env", "prepare_multi_gpu_env")))


def _refuse_gpu_ids(original) -> Undo:
    @functools.wraps(original)
    def prepare(args, *arguments, **options):
        if getattr(args, "gpu_ids", None) not in (None, "all") and not getattr(args, "use_cpu", False) and not getattr(args, "cpu", False):
            raise NotImplementedError(
                f"accelerate launch --gpu_ids {args.gpu_ids}: there is no environment variable that hides devices of '{device_name()}'. "
                f"Leave it out, and set ACCELERATE_TORCH_DEVICE={device_name()}:1 for one device."
            )
        return original(args, *arguments, **options)

    return exchange(original, prepare)


def _processes(module: ModuleType) -> Undo:
    """accelerate would require a collective library of musa, and derive the device's name from the enumeration value
    MULTI_MUSA.
    """
    return together(wrap(module.PartialState, "_prepare_backend", _prepare_backend), wrap(module.PartialState, "set_device", _set_device))


def _set_device(original, self):
    kinds = sys.modules[type(self).__module__].DistributedType
    if self.device is not None or self.distributed_type != kinds.MULTI_MUSA:
        return original(self)
    self.device = torch.device(device_name(), self.local_process_index % torch.accelerator.device_count())
    torch.accelerator.set_device_index(self.device.index)


def _prepare_backend(original, self, cpu=False, sagemaker_dp=False, backend=None):
    if cpu or int(os.environ.get("LOCAL_RANK", -1)) == -1:
        return original(self, cpu, sagemaker_dp, backend)
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    kinds = sys.modules[type(self).__module__].DistributedType
    return backend or torch.distributed.Backend.default_device_backend_map[device_name()], kinds.MULTI_MUSA if several else kinds.NO


def _alias() -> Undo:
    """accelerate's tests use torch.musa while they are imported."""
    from torch_backend import backend

    return replace(torch, "musa", backend)


def _test_device(module: ModuleType) -> Undo:
    undo = _say(module)
    module.torch_device, module.device_count, module.memory_allocated_func = module.get_backend()
    return undo


def _run(code: CodeType) -> CodeType:
    return renamed(code, "musa", device_name())


def _say(module: ModuleType) -> Undo:
    return say_our_name(module, "musa")


TABLES = [
    Table("accelerate", ("1.15", "1.16"), [
        Patch("accelerate.utils.imports", "the device is found", _detect),
        *(Patch(module, what, _say, run=_run) for module, what in _BRANCHES.items()),
        Patch("accelerate.test_utils.testing", "the device of its own tests", _test_device, _alias),
        Patch("accelerate.hooks", "`model.to` is restored by remove_hook", _name_of_moved_models),
        Patch("accelerate.big_modeling", "dispatch_model over devices, and to one by its index", _dispatch, run=_run),
        Patch("accelerate.state", "the default device", _default_device),
        Patch("accelerate.state", "the backend of torch.distributed", _processes),
        Patch("accelerate.utils.launch", "`accelerate launch --gpu_ids`", _gpu_ids),
    ])
]  # fmt: skip
