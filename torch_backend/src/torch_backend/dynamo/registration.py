"""Registers the device with TorchDynamo when torch imports it. This module does not import it, because that takes more
than a second.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from .._imports import after_import
from .graphs import installation as graphs


def install(computes_on_host: Callable[[], bool]) -> None:
    """Registers the device with TorchDynamo and FakeTensor, each when torch imports the module. `computes_on_host` is
    that of inductor.
    """
    after_import("torch._dynamo.device_interface", _register_interface)
    after_import("torch._dynamo.backends.registry", _register_compiler)
    after_import("torch._dynamo.variables.ctx_manager", _register_context)
    after_import("torch._subclasses.fake_impls", _correct_fake_tensors)
    after_import("torch.export.pt2_archive._package", _check_packages)
    after_import("torch._prims.rng_prims", _extend_random_operators)
    after_import("torch._functorch.partitioners", _pass_generators)
    after_import("torch._inductor.decomposition", functools.partial(_keep_operators, computes_on_host))
    graphs.install()
    _pass_autocast()


def _pass_autocast() -> None:
    """Higher-order operators, such as flex_attention and cond, run under autocast: torch skips the keys of autocast for
    its own devices only.
    """
    from torch import _ops
    from torch._C import DispatchKey

    key = DispatchKey.AutocastPrivateUse1
    if key not in _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS:
        _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)
    for operator in _ops._higher_order_ops.values():
        if key not in operator.py_kernels:
            operator.fallthrough(key)


def _register_interface() -> None:
    from torch._dynamo.device_interface import register_interface_for_device

    from .. import backend
    from .._registry import type_name
    from .interface import Interface

    for index in (None, *range(backend.device_count())):
        register_interface_for_device(type_name() if index is None else f"{type_name()}:{index}", Interface)


def _register_compiler() -> None:
    from . import backend

    backend.install()


def _register_context() -> None:
    from torch._dynamo.variables import ctx_manager

    from .. import backend
    from .context import device_variable

    ctx_manager.register_device_context_manager(backend.device, device_variable(ctx_manager.GenericDeviceVariable))


def _correct_fake_tensors() -> None:
    from . import fake_tensor

    fake_tensor.install()


def _check_packages() -> None:
    from . import packages

    packages.install()


def _extend_random_operators() -> None:
    from . import recomputed_random

    recomputed_random.install()


def _keep_operators(computes_on_host: Callable[[], bool]) -> None:
    from . import decompositions

    decompositions.install(computes_on_host)


def _pass_generators() -> None:
    from .graphs import random

    random.install()
