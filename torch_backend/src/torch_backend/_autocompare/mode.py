"""torch_backend.autocompare: a mode that also computes every operator of the device with CPU torch.

It is a TorchDispatchMode, not a hook in C++. The mode receives each operator that reaches the device below autograd
once, with the Python line at hand. Autograd's engine passes it on to its own threads. torch.compile does not compile
under it, so the code runs operator by operator. An exception is raised where the operator was called, which
observers of the dispatcher (RecordFunction) cannot do.

The mode does not see operators that a kernel of this package calls internally (the outer one is compared). Threads
that the program starts are not covered unless they enter the mode.
"""

from __future__ import annotations

import collections
import functools
import threading
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from .. import _registry
from . import operators, reproducer, where
from .call import Call, Uncomputed


class Row(NamedTuple):
    """The calls of an operator: compared ones, and those not compared, by reason."""

    op: str
    compared: int
    left_out: dict


class Divergence(RuntimeError):
    """The device's result differs from CPU torch's. `op` is the operator; `reproducer` is the path of the script, or
    None.
    """

    def __init__(self, message: str, op: str, script):
        super().__init__(message)
        self.op, self.reproducer = op, script


class autocompare(TorchDispatchMode):
    """Computes the operators of the device also on the CPU, from copies of their inputs, and stops where the results
    differ.

    ``with torch_backend.autocompare():`` applies to this thread and to the backward passes that it starts. Calls
    that ran on the CPU are not compared, because the CPU's kernel would be compared with itself. Random numbers,
    uninitialized memory and views are not compared either. `report()` counts them.

    Args:
        every: of each operator the first call is compared, and then one in `every` calls.
        rtol: relative tolerance; by default that of the table in torch_backend/_autocompare/tolerance.py.
        atol: absolute tolerance, added.
        stop: raise `autocompare.Divergence` at the first difference; False: warn, and collect them in `divergences`.
        directory: folder for the reproducer, one Python file; None: none is written. Never overwrites a file.

    Raises:
        ValueError: `every` is below 1, or a tolerance is negative.
    """

    Divergence = Divergence
    supports_higher_order_operators = True

    def __init__(self, every: int = 1, rtol: float | None = None, atol: float = 0.0, stop: bool = True, directory="."):
        super().__init__()
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"autocompare: invalid every={every!r}: expected an integer of 1 or more")
        for name, value in (("rtol", rtol), ("atol", atol)):
            if value is not None and not value >= 0:
                raise ValueError(f"autocompare: invalid {name}={value!r}: expected a tolerance of 0 or more")
        self.every, self.rtol, self.atol, self.stop = every, rtol, atol, stop
        self.directory = None if directory is None else Path(directory)
        self.divergences: list[Divergence] = []
        self._calls, self._compared = collections.Counter(), collections.Counter()
        self._left_out = collections.defaultdict(collections.Counter)
        self._lock = threading.Lock()  # backward passes may run on several threads

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with _with_bits():
            return self._dispatch(func, types, args, kwargs or {})

    def _dispatch(self, func, types, args, kwargs):
        if any(kind not in (torch.Tensor, torch.nn.Parameter) for kind in types):
            return NotImplemented  # a subclass decomposes itself, and its parts are dispatched here
        if not isinstance(func, torch._ops.OpOverload) or not _registry.is_active():
            return func(*args, **kwargs)
        device_type = _registry.device_name()
        if not any(_is_on(leaf, device_type) for leaf in tree_flatten((args, kwargs))[0]):
            return func(*args, **kwargs)
        reason = _never(func) or self._not_this_time(func, args, kwargs, device_type)
        if reason:
            self._leave_out(func, reason)
            return func(*args, **kwargs)
        with torch.no_grad():
            return self._run(Call(func, args, kwargs, device_type))

    def _not_this_time(self, func, args, kwargs, device_type) -> str:
        if operators.is_random(func, args, kwargs):
            return "random"
        if torch.get_device_module(device_type).is_current_stream_capturing():
            return "captured into a graph"
        with self._lock:
            number = self._calls[func]
            self._calls[func] += 1
        return "" if number % self.every == 0 else f"not one of {self.every}"

    def _run(self, call: Call):
        from torch_backend import _C

        func = call.func
        if not call.plain:
            self._leave_out(func, "not strided memory")
            return func(*call.args, **call.kwargs)
        call.rtol, call.atol = self.rtol, self.atol
        before = _C.thread_fallbacks()[0]
        results = func(*call.args, **call.kwargs)
        count, name = _C.thread_fallbacks()
        if count > before and name.partition(".")[0] == func._schema.name:
            self._leave_out(func, "fallback")
            return results
        torch.get_device_module(call.device_type).synchronize()  # for copies to the host that were not synchronized
        try:
            difference = call.check(results)
        except Uncomputed as error:
            self._leave_out(func, str(error))
            return results
        with self._lock:
            self._compared[func] += 1
        if difference:
            self._diverged(call, difference)
        return results

    def _leave_out(self, func, reason: str) -> None:
        with self._lock:
            self._left_out[func][reason] += 1

    def _diverged(self, call: Call, difference: str) -> None:
        name = call.func.name()
        with self._lock:
            known = any(found.op == name for found in self.divergences)
        lines = [f"{name} on {call.device_type} differs from CPU torch: {difference}"]
        lines += [f"  {argument}: {value}" for argument, value in call.described.items()]
        lines += [f"  called {where.line()}"]
        script = None
        if self.directory is not None and not known:
            try:
                script = reproducer.write(call, "\n".join(lines), self.directory, self.rtol, self.atol)
                lines.append(f"  to reproduce it: python {script}")
            except (OSError, ValueError) as error:
                lines.append(f"  no reproducer was written: {error}")
        found = Divergence("\n".join(lines), name, script)
        with self._lock:
            self.divergences.append(found)
        if self.stop:
            raise found
        warnings.warn(str(found), RuntimeWarning, stacklevel=2)

    def report(self) -> list[Row]:
        """Returns a row for each operator that ran on the device, the most compared first."""
        with self._lock:
            rows = [Row(func.name(), self._compared[func], dict(self._left_out[func])) for func in {**self._compared, **self._left_out}]
        return sorted(rows, key=lambda row: (-row.compared, row.op))

    def summary(self) -> str:
        """Returns a summary of a few lines: how many calls were compared, and how many were left out."""
        left_out = collections.Counter()
        for row in self.report():
            left_out.update(row.left_out)
        compared = sum(self._compared.values())
        lines = [f"autocompare: {compared} calls of {len(+self._compared)} operators compared, {len(self.divergences)} divergences"]
        return "\n".join(lines + [f"  left out: {count} calls, {reason}" for reason, count in left_out.most_common()])


def _is_on(leaf, device_type: str) -> bool:
    if isinstance(leaf, torch.Tensor):
        return leaf.device.type == device_type
    return isinstance(leaf, torch.device) and leaf.type == device_type


def _with_bits():
    """Lets nested operators see conjugate, negative and zero bits.

    torch runs a mode without them. CPU torch's own `linalg.pinv` of complex numbers, for example, then returns
    another result than outside of a mode (torch 2.13).
    """
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative, torch._C.DispatchKey.ZeroTensor):
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


_never = functools.lru_cache(maxsize=None)(operators.nothing_to_compare)
