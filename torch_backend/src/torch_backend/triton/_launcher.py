"""The launcher of a compiled Triton kernel: a function that is generated once for the kernel's signature.

It writes grid and arguments by two calls of `struct` into memory that already holds the rest of the launch, and calls
hal_kernel_launch once. That memory comes from a list, so that several threads, and a hook that launches the same kernel,
do not share it.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Callable, NamedTuple

import torch

from torch_backend.backend import _utils

from . import _modules

# The number types of Triton's signatures, as `struct` writes them into 8 bytes.
_NUMBERS = {
    "i1": "b7x", "i8": "b7x", "i16": "h6x", "i32": "i4x", "i64": "q",
    "u1": "B7x", "u8": "B7x", "u16": "H6x", "u32": "I4x", "u64": "Q",
    "fp16": "e6x", "bf16": "H6x", "fp32": "f4x", "f32": "f4x", "fp64": "d",
}  # fmt: skip
_BYTES = {"b": 1, "B": 1, "h": 2, "H": 2, "e": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8, "d": 8}
_VALUE, _POINTER = 0, 1  # HAL_ARG_VALUE, HAL_ARG_POINTER of hal/plugin.h
_CLUSTER, _COOPERATIVE, _OVERLAP = 1, 2, 5  # HAL_LAUNCH_*
_ARG_BYTES, _ATTRIBUTE_BYTES, _GRID_OFFSET, _LAUNCH_BYTES = 16, 20, 8, 64
_MANY = torch.version.cuda is not None or torch.version.hip is not None or getattr(torch.version, "xpu", None) is not None


class Plan(NamedTuple):
    """How a compiled kernel is launched, from its metadata (`Driver.plan`).

    Args:
        block: the threads of a block along x, y and z.
        shared_bytes: shared memory of a block that the launch requests.
        scratch: for each pointer that the compiler appends to the kernel's parameters, the bytes and the alignment that
        one block of the grid needs, and the allocator of Triton that provides them; 0 bytes: a null pointer.
        ctas: the blocks of a cluster: the device's grid has this many times the blocks of Triton's.
        cooperative: all blocks are resident together.
        overlap: the kernel may begin before the previous one has ended.
    """

    block: tuple[int, int, int]
    shared_bytes: int = 0
    scratch: tuple[tuple[int, int, object], ...] = ()
    ctas: int = 1
    cooperative: bool = False
    overlap: bool = False

    def attributes(self) -> list[tuple[int, int, int, int, int]]:
        """Returns the launch's attributes: kind, whether it is required, and three numbers (hal_launch_attribute_t)."""
        kinds = ((_OVERLAP, 0, self.overlap, (1, 0, 0)), (_COOPERATIVE, 1, self.cooperative, (1, 0, 0)), (_CLUSTER, 1, self.ctas != 1, (self.ctas, 1, 1)))
        return [(kind, required, *values) for kind, required, wanted, values in kinds if wanted]


class _Call:
    """The memory of one launch: the values, the launch, its attributes and its list of arguments."""

    def __init__(self, types: list[str], plan: Plan):
        count, attributes = len(types), plan.attributes()
        at_launch = 8 * count
        at_attributes = at_launch + _LAUNCH_BYTES
        at_arguments = -(-(at_attributes + _ATTRIBUTE_BYTES * len(attributes)) // 8) * 8
        self.memory = ctypes.create_string_buffer(at_arguments + _ARG_BYTES * count)
        base = ctypes.addressof(self.memory)
        self.address = base + at_launch
        struct.pack_into("<Q12x3I2I2Q2I", self.memory, at_launch, _LAUNCH_BYTES, *plan.block, plan.shared_bytes, count, base + at_arguments,
                         base + at_attributes, len(attributes), 0)  # fmt: skip
        for index, attribute in enumerate(attributes):
            struct.pack_into("<5I", self.memory, at_attributes + _ATTRIBUTE_BYTES * index, *attribute)
        for index, kind in enumerate(types):
            struct.pack_into("<Q2I", self.memory, at_arguments + _ARG_BYTES * index, base + 8 * index, *_size_and_kind(kind))


def _size_and_kind(kind: str) -> tuple[int, int]:
    return (8, _POINTER) if kind[0] == "*" else (_BYTES[_NUMBERS[kind][0]], _VALUE)


def flatten(signature, expressions: list[str]) -> list[tuple[str, str]]:
    """Returns type and Python expression of each parameter of the kernel, in its order: tuples are flattened, constants
    are left out.
    """
    result = []
    for kind, expression in zip(signature, expressions):
        if isinstance(kind, (tuple, list)):
            result += flatten(kind, [f"{expression}[{index}]" for index in range(len(kind))])
        elif kind != "constexpr":
            result.append((kind, expression))
    return result


def _half(value: float) -> int:
    """Returns the bits of a bfloat16, cut off as Triton's own launcher does."""
    return struct.unpack("<I", struct.pack("<f", _single(value)))[0] >> 16


def _single(value: float) -> float:
    return ctypes.c_float(value).value  # a number out of range becomes infinite, as in C


class _Arguments:
    """The arguments of one kernel: names for messages, and the values that the fast path does not handle."""

    def __init__(self, kernel: str, device: int, types: list[str], expressions: list[str]):
        self._kernel, self._device = kernel, device
        self._types, self._expressions = types, expressions

    def _name(self, index: int) -> str:
        return f"argument {self._expressions[index][1:]} of the Triton kernel '{self._kernel}'"

    def address(self, value, index: int) -> int:
        """Returns the address of a pointer argument: a tensor of the device, page-locked memory, None, or an int."""
        if value is None:
            return 0
        if isinstance(value, int):
            return value
        if not hasattr(value, "data_ptr"):
            raise TypeError(f"{self._name(index)} must be a tensor, an address or None, not {type(value).__name__}") from None
        where = torch.device(_utils.name(), self._device)
        own, address = getattr(value, "device", where), value.data_ptr()
        if own == where or not address:
            return address
        if isinstance(value, torch.Tensor) and own.type == "cpu" and value.is_pinned():
            mapped = _modules.address_of_pinned(address, self._device)
            if mapped is not None:
                return mapped
        raise ValueError(f"{self._name(index)} is a tensor on '{own}', which cannot be accessed from Triton on '{where}'; "
                         f"move it with .to('{where}')") from None  # fmt: skip

    def pack(self, memory, values: list) -> None:
        """Writes the values one by one, after the fast path has refused one of them."""
        for index, (kind, value) in enumerate(zip(self._types, values)):
            form = "Q" if kind[0] == "*" else _NUMBERS[kind]
            try:
                struct.pack_into("<" + form, memory, 8 * index, _single(value) if form[0] == "f" else value)
            except (struct.error, OverflowError, TypeError) as error:
                raise type(error)(f"{self._name(index)} is {value!r}, which is not a value of the type {kind}: {error}") from None


def build(kernel: str, device: int, signature, plan: Plan) -> Callable:
    """Returns the launcher of a kernel that was loaded on a device.

    Args:
        kernel: the kernel's name, for messages.
        signature: the types of the arguments, in Triton's notation.

    The launcher has the parameters that Triton passes: the grid, the stream's id, the kernel's handle, metadata and
    hooks, then the arguments.
    """
    expressions = [f"a{index}" for index in range(len(signature))]
    parameters = flatten(signature, expressions)
    unknown = [kind for kind, _ in parameters if kind[0] != "*" and kind not in _NUMBERS]
    if unknown:
        raise NotImplementedError(f"the Triton kernel '{kernel}' has an argument of the type {unknown[0]}, which torch_backend cannot pass; "
                                  "pass its parts as pointers and numbers, and create the descriptor in the kernel (tl.make_tensor_descriptor)")  # fmt: skip
    types = [kind for kind, _ in parameters] + ["*scratch"] * len(plan.scratch)
    arguments = _Arguments(kernel, device, types, [expression for _, expression in parameters] + [" scratch"] * len(plan.scratch))
    names = {
        "calls": [], "new_call": lambda: _Call(types, plan), "Tensor": torch.Tensor, "address": arguments.address, "half": _half,
        "pack_values": struct.Struct("<" + "".join("Q" if kind[0] == "*" else _NUMBERS[kind] for kind in types)).pack_into, "errors": (struct.error, OverflowError, TypeError),
        "pack_slowly": arguments.pack, "pack_grid": struct.Struct("<3I").pack_into, "launch_kernel": _modules.library().hal_kernel_launch,
        "streams": _modules.streams(device), "check": _modules.check, "where": torch.device(_utils.name(), device), "scratch": _scratch_of(plan),
    }  # fmt: skip
    exec(_source(parameters, expressions, plan, device, len(types)), names)
    return names["launch"]


def _value(kind: str, expression: str, index: int, device: int) -> str:
    """Returns the Python expression of a value that `struct` writes."""
    if kind == "bf16":
        return f"half({expression})"
    if kind[0] != "*":
        return expression
    # An index identifies the device if this torch has no other accelerator; comparing devices takes longer.
    same = f"{expression}.device == where" if _MANY else f"{expression}.get_device() == {device}"
    return f"{expression}.data_ptr() if {expression}.__class__ is Tensor and {same} else address({expression}, {index})"


def _source(parameters, expressions: list[str], plan: Plan, device: int, count: int) -> str:
    values = [_value(kind, expression, index, device) for index, (kind, expression) in enumerate(parameters)]
    values += [f"s{index}.data_ptr()" if size else "0" for index, (size, _, _) in enumerate(plan.scratch)]
    given, listed = ", ".join(expressions), ", ".join(values)
    # The memory is held until the launch is queued: its stream may reuse it then.
    scratch = "".join(f"\n        s{index} = scratch({index}, gx * gy * gz, stream)" for index, (size, _, _) in enumerate(plan.scratch) if size)
    return f"""
def launch(gx, gy, gz, stream, function, packed, metadata, enter, leave, {given}):
    if enter is not None:
        enter(metadata)
    if gx * gy * gz > 0:{scratch}
        call = calls.pop() if calls else new_call()
        memory = call.memory
        try:
            pack_values(memory, 0{', ' if listed else ''}{listed})
        except errors:
            pack_slowly(memory, [{listed}])
        pack_grid(memory, {8 * count + _GRID_OFFSET}, gx{f' * {plan.ctas}' if plan.ctas != 1 else ''}, gy, gz)
        status = launch_kernel(function, streams[stream], call.address)
        calls.append(call)
        if status:
            check(status)
    if leave is not None:
        leave(metadata)
"""


def _scratch_of(plan: Plan) -> Callable:
    """Returns the function that allocates scratch memory for a launch, by the allocator that the program has set."""

    def scratch(index: int, blocks: int, stream: int):
        size, alignment, allocator = plan.scratch[index]
        return allocator.get()(blocks * plan.ctas * size, alignment, stream)

    return scratch
