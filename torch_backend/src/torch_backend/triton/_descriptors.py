"""Tensor descriptors that the host creates (triton.tools.tensor_descriptor): arguments that become several."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Callable


def launcher(build: Callable, src, metadata) -> Callable:
    """Returns `build(src, metadata)`, with descriptors replaced by their parts as NVIDIA's compiler expects them.

    Raises:
        NotImplementedError: the compiler reads a descriptor as a hardware object, which torch_backend cannot encode.
    """
    described = [index for index, kind in enumerate(src.signature.values()) if isinstance(kind, str) and kind.startswith("tensordesc")]
    if not described:
        return build(src, metadata)
    if getattr(metadata, "tensordesc_meta", None):
        raise NotImplementedError(f"the Triton kernel '{metadata.name}' receives a tensor descriptor, which this device reads by its tensor memory accelerator; "
                                  "torch_backend cannot encode it on the host: create it in the kernel (tl.make_tensor_descriptor)")  # fmt: skip
    from triton.backends.nvidia import driver as nvidia

    flat = nvidia.expand_signature(src.signature.values(), None)
    call = build(SimpleNamespace(signature=dict(enumerate(flat))), metadata)

    def launch(gx, gy, gz, stream, function, packed, launch_metadata, enter, leave, *args):
        parts = [part for index, arg in enumerate(args) for part in (nvidia.make_tensordesc_arg(arg, None) if index in described else [arg])]
        call(gx, gy, gz, stream, function, packed, launch_metadata, enter, leave, *parts)

    return launch
