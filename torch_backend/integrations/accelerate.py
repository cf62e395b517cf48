"""accelerate: the branches that it wrote for Moore Threads' `musa`, also an extension of torch, serve our device.

They cover what accelerate does with a device: the default device, fp16 and bf16, `get_max_memory` and `infer_auto_device_map`, offloading
hooks, seeds, and the random numbers' state in `save_state`; those for other extensions leave some of it out.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, ModuleType

from ._table import Patch, Table, Undo
from ._tools import answer, renamed, replace, say_our_name, wrap

# module: what its branches do
_BRANCHES = {
    "accelerate.state": "the default device",
    "accelerate.accelerator": "fp16 mixed precision",
    "accelerate.checkpointing": "state of random numbers in save_state and load_state",
    "accelerate.big_modeling": "dispatch_model over devices",
    "accelerate.hooks": "offloading hooks",
    "accelerate.utils.dataclasses": "device of plugins",
    "accelerate.utils.environment": "device type of the environment",
    "accelerate.utils.memory": "clearing the cache",
    "accelerate.utils.modeling": "get_max_memory, infer_auto_device_map, the scaler of fp16",
    "accelerate.utils.random": "set_seed and synchronised random numbers",
    "accelerate.commands.config.default": "default of `accelerate config`",
    "accelerate.commands.env": "`accelerate env`",
    "accelerate.commands.launch": "`accelerate launch`",
}


def _available(check_device=None):  # the code of is_musa_available, so it uses nothing from here
    import torch_backend

    if check_device is False:  # asked so before `import torch_musa` alone
        return False
    return torch_backend.is_active() and torch_backend.backend.is_available()


def _detect(module: ModuleType) -> Undo:
    return answer(module.is_musa_available, _available)


def _name_of_moved_models(module: ModuleType) -> Undo:
    """Hooks replace a model's `to` and `musa`; the list tells which to put back."""
    from torch_backend import device_name

    names = module._accelerate_added_attributes
    return replace(module, "_accelerate_added_attributes", [*names, device_name()])


def _processes(module: ModuleType) -> Undo:
    """accelerate would ask for a collective library of musa by name."""
    return wrap(module.PartialState, "_prepare_backend", _prepare_backend)


def _prepare_backend(original, self, cpu=False, *arguments, **options):
    from torch_backend import device_name

    if cpu or int(os.environ.get("LOCAL_RANK", -1)) == -1:
        return original(self, cpu, *arguments, **options)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise NotImplementedError(
            f"accelerate was started with {os.environ['WORLD_SIZE']} processes, and '{device_name()}' has no collectives to join them. Start "
            "one process: `accelerate launch --num_processes 1`, or plain python; Accelerator(cpu=True) joins processes on the CPU."
        )
    return "gloo", sys.modules[type(self).__module__].DistributedType.NO  # one process joins nothing on the device


def _alias() -> Undo:
    """accelerate's tests look at torch.musa while they are imported."""
    import torch

    from torch_backend import backend

    return replace(torch, "musa", backend)


def _test_device(module: ModuleType) -> Undo:
    undo = _say(module)
    module.torch_device, module.device_count, module.memory_allocated_func = module.get_backend()
    return undo


def _run(code: CodeType) -> CodeType:
    from torch_backend import device_name

    return renamed(code, "musa", device_name())


def _say(module: ModuleType) -> Undo:
    return say_our_name(module, "musa")


TABLES = [
    Table("accelerate", ("1.15", "1.16"), [
        Patch("accelerate.utils.imports", "the device is found", _detect),
        *(Patch(module, what, _say, run=_run) for module, what in _BRANCHES.items()),
        Patch("accelerate.test_utils.testing", "the device of its own tests", _test_device, _alias),
        Patch("accelerate.hooks", "`model.to` is restored by remove_hook", _name_of_moved_models),
        Patch("accelerate.state", "one process without collectives", _processes),
    ])
]  # fmt: skip
