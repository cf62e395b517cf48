"""Runs the call of a reproducer on the device and on the CPU, and compares."""

from __future__ import annotations

import base64
import sys
import zlib

import torch

from .. import _registry
from .mode import autocompare


def reproduce(call, memory, operands, rtol=None, atol=0.0) -> int:
    """Runs the call of a reproducer on the device and with CPU torch, and prints the result.

    Returns 0 if they agree, 1 if they differ, 2 if the comparison was not possible.
    """
    if not _registry.is_active():
        print(" ".join(_registry.errors()) or "no plugin is active; name one in TORCH_BACKEND", file=sys.stderr)
        return 2
    device = torch.device(_registry.device_name(), 0)
    places = [data[-1] for data in operands]
    bytes_of = [torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text)) or b"\0"), dtype=torch.uint8) for _, text in memory]
    storages = []
    for number, data in enumerate(bytes_of):
        begin = memory[number][0]
        whole = torch.zeros(begin + data.numel(), dtype=torch.uint8)
        whole[begin:] = data
        on_device = any(on for (at, *_), on in zip(operands, places) if at == number)
        storages.append((whole.to(device) if on_device else whole).untyped_storage())
    tensors = []
    for at, dtype, size, stride, offset, (conj, neg), on_device in operands:
        tensor = torch.empty(0, dtype=dtype, device=device if on_device else "cpu").set_(storages[at], offset, size, stride)
        tensor = torch._conj(tensor) if conj else tensor
        tensors.append(torch._neg_view(tensor) if neg else tensor)
    try:
        with autocompare(rtol=rtol, atol=atol, directory=None) as compare:
            call(tensors, device)
    except compare.Divergence as error:
        print(error)
        return 1
    if not any(row.compared for row in compare.report()):
        print(f"not compared: {compare.summary()}", file=sys.stderr)
        return 2
    print(f"{_registry.device_name()} agrees with CPU torch")
    return 0
