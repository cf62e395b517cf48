"""Decides whether two results agree.

An element may differ from CPU torch's by `rtol` times its own magnitude and the root mean square of the result. Sums
of products are rounded in proportion to their terms. The result as a whole shows that magnitude better than one
element that is near zero.

| dtype | rtol | reason |
|---|---|---|
| float64, complex128 | 1e-11 | 45,000 units in the last place, 100 times the largest expected error |
| float32, complex64 | 2e-5 | 170 units: the same, with an error of a sum that grows with the square root of its
length |
| bfloat16, float16 | 2 units (1.6e-2, 2e-3) | computed in float32 and rounded once on either side, each within one
unit |
| float8 | 2 units (0.25, 0.5) | the same |
| integers, bool | 0 | |

Expected errors in float64: sums of 10^6 numbers in another order differ by hundreds of units, special functions of
two libraries by tens. In float32 a wrong stride or a lost element is thousands of times larger than the tolerance.

A result outside of the tolerance is compared again with the operator in double precision. It passes if its error is
at most 8 times CPU torch's own error, or 8 times the change of the result when the operands change in the last
places in which sums are computed. So an ill-conditioned operator, such as a sum with cancellation, is not held to
digits that CPU torch does not have either. A change that does not shrink with that of the operands is a step
(`floor` at an integer) and allows no error. In float64 there is no wider dtype to detect a step, so the change
counts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

RTOL = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2 * 2**-7, torch.float16: 2 * 2**-10}
_TIMES_THE_CPUS = 8.0
_DISTURBANCES = 8


def rtol_of(dtype) -> float:
    """Returns the relative tolerance of a dtype."""
    if dtype.is_complex:
        dtype = {torch.complex128: torch.float64, torch.complex64: torch.float32}.get(dtype, torch.float16)
    return RTOL.get(dtype) or 2 * torch.finfo(dtype).eps


class Mismatch(NamedTuple):
    """How two results differ; `index` is the index of the largest error."""

    different: int
    elements: int
    error: float
    index: tuple
    ours: object
    theirs: object

    def __str__(self):
        at = f" at {list(self.index)}" if self.index else ""
        return f"{self.different} of {self.elements} elements differ; the largest error is {self.error:.6g}{at}: {self.ours} instead of {self.theirs}"


def _wide(tensor):
    """Returns the tensor in double precision, complex numbers as pairs."""
    tensor = tensor.resolve_conj().resolve_neg()
    return torch.view_as_real(tensor.to(torch.complex128)) if tensor.is_complex() else tensor.to(torch.float64)


def is_exact(dtype) -> bool:
    """Returns whether the dtype is an integer type or bool."""
    return not (dtype.is_floating_point or dtype.is_complex)


def compare(ours, theirs, rtol=None, atol=0.0, precise=None):
    """Compares two host tensors of one shape and dtype. Returns None if they agree, else a `Mismatch`.

    `precise()` returns the result in double precision, `precise(seed, units)` that of disturbed operands, or None.
    It is called only for results outside of the tolerance.
    """
    if torch.equal(ours, theirs):
        return None
    if is_exact(ours.dtype):
        bad = ours != theirs
        return _mismatch(ours, theirs, bad, (ours.double() - theirs.double()).abs())
    a, b = _wide(ours), _wide(theirs)
    rtol = rtol_of(ours.dtype) if rtol is None else rtol
    error = (a - b).abs()
    # The usual case; false for infinities
    if bool((error <= atol + rtol * b.abs().clamp(max=torch.finfo(b.dtype).max)).all()):
        return None
    same, finite = (a == b) | (a.isnan() & b.isnan()), b.isfinite()
    size = b.where(finite, torch.zeros_like(b))
    bad = ~(same | (finite & (error <= atol + rtol * (size.abs() + size.square().mean().sqrt()))))
    if not bool(bad.any()):
        return None
    if precise and _rounding_explains(a, b, bad, finite, rtol, atol, precise, theirs.dtype):
        return None
    return _mismatch(ours, theirs, bad, error.where(bad, torch.zeros_like(error)))


def _rounding_explains(ours, theirs, bad, finite, rtol, atol, precise, dtype) -> bool:
    """Returns whether the elements outside of the tolerance are as close to the double precision result as rounding
    lets CPU torch be.

    One disturbance may leave a sum unchanged by chance; eight are unlikely to.
    """
    truth = precise()
    if truth is None or is_exact(truth.dtype):
        return False
    t = _wide(truth)
    if t.shape != ours.shape:
        return False
    known = t.isfinite() & finite
    allowed = (theirs - t).abs()
    for seed in range(_DISTURBANCES + 1):
        if seed:
            allowed = torch.maximum(allowed, _change(t, seed, precise, smooth=dtype != truth.dtype))
        largest = allowed.where(known, torch.zeros_like(t)).max()
        if not bool((bad & ~(known & ((ours - t).abs() <= _TIMES_THE_CPUS * largest + rtol * t.abs() + atol))).any()):
            return True
    return False


def _change(truth, seed, precise, smooth: bool):
    """Returns how far a disturbance of the operands changes each element; with `smooth` only where half of it changes
    it less.
    """
    none = torch.zeros_like(truth)
    moved = [precise(seed, units) for units in ((1.0, 0.5) if smooth else (1.0,))]
    if any(result is None or _wide(result).shape != truth.shape for result in moved):
        return none
    far, *near = ((_wide(result) - truth).abs() for result in moved)
    steps = ~far.isfinite() if not near else ~(near[0] <= 0.75 * far)
    return far.where(far.isfinite() & ~steps, none)


def _mismatch(ours, theirs, bad, error):
    """Describes the elements outside of the tolerance at the largest error; NaN and infinities count as the largest."""
    if error.dim() > ours.dim():  # pairs
        bad, error = bad.any(-1), error.nan_to_num(float("inf")).amax(-1)
    error = torch.where(bad, error.nan_to_num(nan=float("inf"), posinf=float("inf")), torch.zeros_like(error))
    where = int(error.flatten().argmax())
    index = []
    for size in reversed(ours.shape):
        index.append(where % size)
        where //= size
    index = tuple(reversed(index))
    first, second = ours[index].item(), theirs[index].item()
    largest = abs(first - second) if is_exact(ours.dtype) else error[index].item()
    return Mismatch(int(bad.sum()), ours.numel(), float(largest), index, first, second)
