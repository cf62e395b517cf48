"""A divergence as one Python file: the operands' bytes, the call, and the comparison. It needs only torch_backend and
the plugin.
"""

from __future__ import annotations

import base64
import itertools
import os
import textwrap
import zlib
from pathlib import Path

import torch

from .. import _hal
from .memory import storage_id

_MOST_BYTES = 256 << 20  # maximum size of the operands in a text file

_HEAD = '''"""{message}

Run this file: the exit code is 1 if the device still differs from CPU torch, 0 if it does not. TORCH_BACKEND selects another plugin.
Written by torch_backend.autocompare.
"""

import os
import sys

os.environ.setdefault("TORCH_BACKEND", {plugins!r})

import torch
from torch_backend._autocompare import reproduce

nan, inf = float("nan"), float("inf")
'''

_TAIL = '''
# The bytes of the operands, (begin, zlib in base64); operands of one number share memory.
MEMORY = {memory}

# (memory, dtype, size, stride, offset in elements, conjugate and negative bit, on the device)
OPERANDS = [
{operands}
]


def call(t, device):
    """Runs the operator on the operands t."""
    return torch.ops.{op}({arguments})


sys.exit(reproduce(call, MEMORY, OPERANDS, rtol={rtol!r}, atol={atol!r}))
'''


def _pack(data) -> str:
    """Returns a host tensor of bytes as literals, in lines of a width that editors can display."""
    text = base64.b64encode(zlib.compress(bytes(data.numpy()), 6)).decode()
    return "(\n" + "\n".join(f'        "{line}"' for line in textwrap.wrap(text, 120) or [""]) + ")"


class _Operands:
    """Assigns numbers to the tensors of a call and to their memory."""

    def __init__(self, call):
        self._call, self._memory, self._tensors = call, {}, {}
        self.rows, self.memory = [], []

    def place(self, tensor) -> int:
        """Returns the operand's number."""
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = len(self.rows)
            self.rows.append(self._row(tensor))
        return self._tensors[id(tensor)]

    def _row(self, tensor):
        on_device = tensor.device.type != "cpu"
        tensor = self._call.snapshot.tensors.get(id(tensor), tensor)  # with its shape before the call
        if tensor._is_zerotensor():
            raise ValueError("an operand is a tensor of zeros without memory")
        key = (on_device, storage_id(tensor))
        if key not in self._memory:
            self._memory[key] = len(self.memory)
            self.memory.append(self._bytes(tensor))
        bits = tensor.is_complex() and tensor.is_conj(), tensor.is_neg()
        return (self._memory[key], tensor.dtype, tuple(tensor.size()), tuple(tensor.stride()), tensor.storage_offset(), bits, on_device)

    def _bytes(self, tensor):
        """Returns (offset in the storage, bytes)."""
        memory = self._call.snapshot.memories.get(storage_id(tensor))
        if memory:
            return memory.begin // 64 * 64, memory.before
        return 0, torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _literal(value, operands) -> str:
    """Returns the Python text of an argument."""
    if isinstance(value, torch.Tensor):
        return f"t[{operands.place(value)}]"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(item, operands) for item in value) + "]"
    if isinstance(value, torch.device):
        return "device" if value.type != "cpu" else repr("cpu")
    if value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype, torch.layout, torch.memory_format)):
        return repr(value)
    raise ValueError(f"an argument is a {type(value).__name__}, which cannot be written as Python text")


def write(call, message: str, directory: Path, rtol, atol) -> Path:
    """Writes the file and returns its path. Raises OSError, or ValueError for a value that cannot be written as text."""
    operands = _Operands(call)
    words = [_literal(value, operands) for value in call.args]
    words += [f"{name}={_literal(value, operands)}" for name, value in call.kwargs.items()]
    size = sum(data.numel() for _, data in operands.memory)
    if size > _MOST_BYTES:
        raise ValueError(f"the operands have {size} bytes; at most {_MOST_BYTES} are written to a text file")
    rows = "\n".join("    " + repr(row) + "," for row in operands.rows)
    memory = "[" + "".join(f"\n    ({begin}, {_pack(data)})," for begin, data in operands.memory) + "\n]"
    name, _, overload = call.func.name().partition(".")
    op = f"{name.replace('::', '.')}.{overload or 'default'}"
    text = _HEAD.format(message=message.replace("\\", "\\\\").replace('"""', "'''"), plugins=_plugins())
    text += _TAIL.format(memory=memory, operands=rows, op=op, arguments=", ".join(words), rtol=rtol, atol=atol)
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"autocompare-{op.partition('.')[2]}"
    for number in itertools.count(1):
        path = directory / (f"{stem}.py" if number == 1 else f"{stem}-{number}.py")
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
            return path
        except FileExistsError:
            continue


def _plugins() -> str:
    """Returns the active plugins as a value of TORCH_BACKEND: those of other packages by their paths."""
    own = str(_hal.PACKAGE / "plugins")
    return ",".join(plugin.name if os.path.dirname(plugin.path) == own else plugin.path for plugin in _hal.plugins())
