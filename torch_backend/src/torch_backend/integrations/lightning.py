"""Lightning and Fabric: an accelerator in their registry, which "auto" selects, with mixed precision of the device.
Several devices use the strategies of torch.distributed.

The registry is their public interface for accelerators. For an accelerator that is not built in, the strategy falls
back to the CPU and the precision to CUDA's autocast, so these are patched. The packages `lightning` and
`pytorch_lightning` contain the same code under two names.
"""

from __future__ import annotations

from types import ModuleType

from .._registry import device_name
from ._table import Patch, Table, Undo
from ._tools import answer, say_our_name, together, wrap


def _register(registry: str):
    def apply(module: ModuleType) -> Undo:
        from ._lightning_accelerator import accelerator

        name, accelerators = device_name(), getattr(module, registry)
        accelerators.register(name, accelerator(module.Accelerator), description="the device of torch_backend", override=True)
        return lambda: accelerators.pop(name)

    return apply


def _choose(connector: str):
    def apply(module: ModuleType) -> Undo:
        owner = getattr(module, connector)
        return together(
            wrap(owner, "_choose_auto_accelerator", _our_name),
            wrap(owner, "_choose_gpu_accelerator_backend", _our_name),
            wrap(owner, "_choose_strategy", lambda original, self: _strategy(module, original, self)),
            say_our_name(module, "cuda", only=[f"{connector}._check_and_init_precision", f"{connector}._check_strategy_and_fallback"]),
        )

    return apply


def _our_name(original):
    return device_name()


def _strategy(module: ModuleType, original, connector):
    """Without this patch, an accelerator that is not built in gets a strategy on the CPU."""
    from ._lightning_accelerator import has_collectives

    devices = connector._parallel_devices
    if not devices or devices[0].type != device_name():
        return original(connector)
    if len(devices) == 1 and connector._num_nodes_flag == 1:
        return module.SingleDeviceStrategy(device=devices[0])
    if has_collectives():
        return original(connector)
    raise NotImplementedError(
        f"devices={len(devices)} on {connector._num_nodes_flag} node(s) need collectives, which '{device_name()}' does not have. "
        "Use devices=1."
    )


def _auto(module: ModuleType) -> Undo:
    return answer(module._select_auto_accelerator, _device)


def _device():  # replaces the code of _select_auto_accelerator, so it uses no global of this module
    from torch_backend import _registry

    return _registry.device_name()


def _random(module: ModuleType) -> Undo:
    return say_our_name(module, "cuda", only=["_collect_rng_states", "_set_rng_states"])


def _memory(module: ModuleType) -> Undo:
    return say_our_name(module, "cuda", only=["is_cuda_out_of_memory", "garbage_collection_cuda"])


def _wrapped_model(*functions: str):
    """Streams, and hooks of gradients, which are limited to "cuda"."""
    return lambda module: say_our_name(module, "cuda", only=[f"DDPStrategy.{function}" for function in functions])


def _sharded(module: ModuleType) -> Undo:
    """Device meshes that are created by sizes."""
    return say_our_name(module, "cuda", only=["FSDPStrategy.setup_environment"])


def _forks(module: ModuleType) -> Undo:
    """Prevents forking from a process that uses the device."""
    return say_our_name(module, "cuda", only=["_check_bad_cuda_fork"])


def _table(library: str, fabric: str, trainer: str) -> Table:
    return Table(library, ("2.6", "2.7"), [
        Patch(f"{fabric}.accelerators", "Fabric's accelerator by name", _register("ACCELERATOR_REGISTRY")),
        Patch(f"{fabric}.utilities.device_parser", "the device that \"auto\" means", _auto),
        Patch(f"{fabric}.connector", 'Fabric\'s accelerator="auto", strategy and mixed precision', _choose("_Connector")),
        Patch(f"{fabric}.utilities.seed", "state of random numbers in isolate_rng", _random),
        Patch(f"{trainer}.accelerators", "Trainer's accelerator by name", _register("AcceleratorRegistry")),
        Patch(f"{trainer}.trainer.connectors.accelerator_connector", 'Trainer\'s accelerator="auto", strategy and mixed precision',
              _choose("_AcceleratorConnector")),
        Patch(f"{fabric}.strategies.ddp", "Fabric's DDP", _wrapped_model("setup_module")),
        Patch(f"{trainer}.strategies.ddp", "Trainer's DDP", _wrapped_model("_setup_model", "_register_ddp_hooks")),
        Patch(f"{fabric}.strategies.fsdp", "Fabric's FSDP", _sharded),
        Patch(f"{trainer}.strategies.fsdp", "Trainer's FSDP", _sharded),
        Patch(f"{fabric}.strategies.launchers.multiprocessing", "processes that are forked", _forks),
        Patch(f"{trainer}.utilities.memory", "out of memory, for batch size finders", _memory),
    ])  # fmt: skip


TABLES = [
    _table("lightning", "lightning.fabric", "lightning.pytorch"),
    _table("pytorch-lightning", "lightning_fabric", "pytorch_lightning"),
]
