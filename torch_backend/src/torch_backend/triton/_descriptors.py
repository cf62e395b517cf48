"""Tensor descriptors that the host creates (triton.tools.tensor_descriptor): arguments that become several."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Callable


def launcher(build: Callable, src, metadata) -> Callable:
    """Returns `build(src, metadata)`, with descriptors replaced by their parts as NVIDIA's compiler expects them.

    Raises:
        NotImplementedError: the compiler reads a descriptor as a hardware object, which torch_backend cannot encode.
    """
    types = list(src.signature.values())
    described = {index for index, kind in enumerate(types) if isinstance(kind, str) and kind.startswith("tensordesc")}
    if not described:
        return build(src, metadata)
    if getattr(metadata, "tensordesc_meta", None):
        raise NotImplementedError(f"the Triton kernel '{metadata.name}' receives a tensor descriptor, which this device reads by its tensor memory accelerator; "
                                  "torch_backend cannot encode it on the host: create it in the kernel (tl.make_tensor_descriptor)")  # fmt: skip
    flat = [part for index, kind in enumerate(types) for part in (_types(kind) if index in described else [kind])]
    call = build(SimpleNamespace(signature=dict(enumerate(flat))), metadata)

    def launch(gx, gy, gz, stream, function, packed, launch_metadata, enter, leave, *args):
        parts = [part for index, arg in enumerate(args) for part in (_values(arg) if index in described else [arg])]
        call(gx, gy, gz, stream, function, packed, launch_metadata, enter, leave, *parts)

    return launch


def _types(kind: str) -> list[str]:
    """Returns the types of the parts of a descriptor "tensordesc<fp32[16, 16]...>"; shape and strides are passed twice.
    """
    element, block, rest = re.fullmatch(r"tensordesc(?:_im2col)?<([^\[>]*)\[([^\]]*)\](.*)", kind).groups()
    rank = re.search(r"input_rank=(\d+)", rest)
    count = int(rank[1]) if rank else block.count(",") + 1
    return ["*" + element, *["i64"] * (2 * count), "i1", "i1", *["i32"] * count, *["i64"] * count]


def _values(arg) -> list:
    return [arg.base, *arg.shape, *arg.strides, arg.padding == "nan", arg.round_f32_to_tf32, *arg.shape, *arg.strides]
