"""Meta functions of operators, which compute the shapes and dtypes of results without their values. Fake tensors and
torch.compile need them.

Operators that are declared in YAML get theirs from the declaration (docs/custom-operators.md). For others, such as
operators of another library, write one in Python::

    @torch_backend.meta.register("library::operator")
    def _(x, repeats):
        return x.new_empty(x.shape[0] * repeats)
"""

from __future__ import annotations

import torch

__all__ = ["check", "register"]


def _operator(name: str):
    namespace, separator, operator = name.partition("::")
    overload = operator.partition(".")[2] or "default"
    packet = getattr(getattr(torch.ops, namespace, None), operator.partition(".")[0], None) if separator else None
    if packet is None or overload not in packet.overloads():
        raise RuntimeError(f"torch has no operator '{name}'; names are 'library::operator' or 'library::operator.overload', and the "
                           "library must be loaded first")  # fmt: skip
    return getattr(packet, overload)


def register(name: str):
    """Registers the decorated function as the meta function of an operator. It receives the operator's arguments, with
    tensors without memory, and returns tensors without memory.
    """
    operator = _operator(name)
    for key in ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd"):
        if torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key):
            raise RuntimeError(f"'{name}' has a {'meta function' if key == 'Meta' else 'composite kernel, which serves fake tensors,'} already")
    return torch.library.register_fake(name)


def check(name: str, *args, **kwargs) -> None:
    """Runs an operator and its meta function; raises AssertionError if shapes, strides, dtypes or devices of the
    results differ.
    """
    from torch._subclasses import FakeTensorMode

    operator = _operator(name)
    real = operator(*args, **kwargs)
    with FakeTensorMode() as mode:
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        meta = operator(*args, **kwargs)
    real, meta = (torch.utils._pytree.tree_leaves(results) for results in (real, meta))
    assert len(real) == len(meta), f"{name} returns {len(real)} results, its meta function {len(meta)}"
    for number, (ours, theirs) in enumerate(zip(real, meta)):
        if not isinstance(ours, torch.Tensor):
            continue
        for what, function in _PROPERTIES.items():
            assert function(ours) == function(theirs), (
                f"{name}: result {number} has the {what} {function(ours)}, but its meta function returns {function(theirs)}"
            )


_PROPERTIES = {
    "shape": lambda tensor: tuple(tensor.shape),
    "strides": lambda tensor: tensor.stride(),
    "dtype": lambda tensor: tensor.dtype,
    "device": lambda tensor: tensor.device,
}
