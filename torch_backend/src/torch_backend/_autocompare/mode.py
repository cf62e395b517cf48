"""torch_backend.autocompare: the mode under which every operator of the device is computed by CPU torch, too.

A TorchDispatchMode, and no hook in C++: it sees what reaches the device below autograd, once each, with the Python line at hand; the
engine of autograd takes it along to its own threads; torch.compile leaves compiled code alone under it, so that what it would have
compiled runs operator by operator; and an error of it is an exception where the operator was called, which observers of the
dispatcher (RecordFunction) cannot raise. What it does not see: operators that a kernel of ours calls inside (the outer one is
compared), and threads that the program starts itself, unless they enter it.
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
    """Calls of an operator: compared, and not compared by reason."""

    op: str
    compared: int
    left_out: dict


class Divergence(RuntimeError):
    """The device's result differs from CPU torch's. `op` is the operator, `reproducer` the path of the script, or None."""

    def __init__(self, message: str, op: str, script):
        super().__init__(message)
        self.op, self.reproducer = op, script


class autocompare(TorchDispatchMode):
    """Computes the operators of the device on the CPU, too, from copies of their inputs, and stops where the results differ.

    ``with torch_backend.autocompare():`` holds for this thread and for the backward passes that it starts. Calls that the CPU
    answered are left out (its kernel would be compared with itself), as are random numbers, uninitialised memory and views;
    `report()` counts them.

    Args:
        every: of each operator the first call and then one in so many are compared.
        rtol: relative tolerance in place of the table in torch_backend/_autocompare/tolerance.py, which has reasons.
        atol: absolute tolerance, added.
        stop: raise `autocompare.Divergence` at the first difference; False: warn, and collect them in `divergences`.
        directory: where the reproducer is written, one file of Python; None: nowhere. Never overwrites.

    Raises:
        ValueError: `every` is below 1, or a tolerance negative.
    """

    Divergence = Divergence
    supports_higher_order_operators = True

    def __init__(self, every: int = 1, rtol: float | None = None, atol: float = 0.0, stop: bool = True, directory="."):
        super().__init__()
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"autocompare: every={every!r}; give a whole number of 1 or more")
        for name, value in (("rtol", rtol), ("atol", atol)):
            if value is not None and not value >= 0:
                raise ValueError(f"autocompare: {name}={value!r}; a tolerance is 0 or more")
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
            return NotImplemented  # a subclass takes itself apart, and its parts come here
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
        torch.get_device_module(call.device_type).synchronize()  # copies to the host that were not waited for
        try:
            said = call.check(results)
        except Uncomputed as error:
            self._leave_out(func, str(error))
            return results
        with self._lock:
            self._compared[func] += 1
        if said:
            self._diverged(call, said)
        return results

    def _leave_out(self, func, reason: str) -> None:
        with self._lock:
            self._left_out[func][reason] += 1

    def _diverged(self, call: Call, said: str) -> None:
        name = call.func.name()
        with self._lock:
            known = any(found.op == name for found in self.divergences)
        lines = [f"{name} on {call.device_type} differs from CPU torch: {said}"]
        lines += [f"  {argument}: {value}" for argument, value in call.described.items()]
        lines += [f"  called {where.line()}"]
        script = None
        if self.directory is not None and not known:
            try:
                script = reproducer.write(call, "\n".join(lines), self.directory, self.rtol, self.atol)
                lines.append(f"  to see it again: python {script}")
            except (OSError, ValueError) as error:
                lines.append(f"  no reproducer was written: {error}")
        found = Divergence("\n".join(lines), name, script)
        with self._lock:
            self.divergences.append(found)
        if self.stop:
            raise found
        warnings.warn(str(found), RuntimeWarning, stacklevel=2)

    def report(self) -> list[Row]:
        """Gives a row for each operator that ran on the device, the most compared first."""
        with self._lock:
            rows = [Row(func.name(), self._compared[func], dict(self._left_out[func])) for func in {**self._compared, **self._left_out}]
        return sorted(rows, key=lambda row: (-row.compared, row.op))

    def summary(self) -> str:
        """Says in a few lines how much was compared and what was left out."""
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
    """Lets operators inside operators see conjugate, negative and zero bits: torch runs a mode without, where CPU torch's own
    `linalg.pinv` of complex numbers, for one, gives something else than outside of any mode (2.13)."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative, torch._C.DispatchKey.ZeroTensor):
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


_never = functools.lru_cache(maxsize=None)(operators.nothing_to_compare)
