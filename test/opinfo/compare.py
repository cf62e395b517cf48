"""Compares the results of a run with the CPU's: each function returns None, or a message about the first difference.

Values must agree within torch.testing's default tolerance of the dtype. Otherwise a run of the CPU in double precision
decides: the device's error may be a few times the CPU's own error (sums in another order round differently). Strides of
results are not compared here; test/python does that for native operators.
"""

import torch
from torch.testing._comparison import default_tolerances
from torch.utils._pytree import tree_leaves

# Entries that select elements, for which PyTorch does not define which of equal ones is selected ("not stable"), with
# the position of `dim` among the arguments after the operand: their indices must name equal elements, each once.
CHOICES = {"argsort": 0, "kthvalue": 1, "sort": 0, "topk": 1}
# Entries whose half-precision statistics are float32 on accelerators (torch/_refs, native_layer_norm) and half on the
# CPU.
BATCH_NORMS = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")
FLOAT_STATISTICS = ("native_layer_norm", *BATCH_NORMS)
ROUNDING = 4  # the device's error over the CPU's own error, both against double precision
SIGNIFICANCE = 2.69  # Kolmogorov-Smirnov coefficient, sqrt(-ln(alpha / 2) / 2), for one false alarm in a million
ENOUGH = 64  # number of elements below which a distribution is not compared


def _one_line(text, length=200):
    return " ".join(str(text).split())[:length]


def _dense(tensor):
    tensor = tensor.detach()
    return (tensor if tensor.layout == torch.strided else tensor.to_dense()).cpu().resolve_conj().resolve_neg()


def same_kind(ours, cpus, device):
    """Compares number, types, devices, dtypes, layouts and shapes of results."""
    ours, cpus = tree_leaves(ours), tree_leaves(cpus)
    if len(ours) != len(cpus):
        return f"{len(ours)} results, the CPU returns {len(cpus)}"
    for i, (a, b) in enumerate(zip(ours, cpus)):
        if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
            return f"result {i} is {type(a).__name__}, the CPU returns {type(b).__name__}"
        if not isinstance(a, torch.Tensor):
            continue
        if a.device.type != device:
            return f"result {i} lies on {a.device}"
        for what in ("dtype", "layout", "shape", "requires_grad"):
            if getattr(a, what) != getattr(b, what):
                return f"result {i} has {what} {getattr(a, what)}, the CPU's {getattr(b, what)}"
    return None


def narrowed(ours, cpus):
    """Converts float32 results to half precision if the CPU's are; returns other results unchanged."""

    def one(a, b):
        half = isinstance(b, torch.Tensor) and b.dtype in (torch.float16, torch.bfloat16)
        return a.to(b.dtype) if half and isinstance(a, torch.Tensor) and a.dtype == torch.float32 else a

    ours, cpus = tree_leaves(ours), tree_leaves(cpus)
    return [one(a, b) for a, b in zip(ours, cpus)] if len(ours) == len(cpus) else ours


def without_saved(ours, cpus):
    """Removes the saved statistics of a batch norm in evaluation from both: the CPU's are empty, and an accelerator's
    are the running ones (torch/_decomp, native_batch_norm_helper). test_norm_layers.py compares their values."""
    ours, cpus = tree_leaves(ours), tree_leaves(cpus)
    if len(ours) != len(cpus):
        return ours, cpus
    channels = ours[0].size(1)
    kept = [i for i, (a, b) in enumerate(zip(ours, cpus)) if not (i in (1, 2) and b.numel() == 0 and a.shape == (channels,))]
    return [ours[i] for i in kept], [cpus[i] for i in kept]


def same_choice(name, sample, ours, cpus):
    """Compares indices by the elements they name; returns (message or None, results without the indices of both sides).
    """
    place, rest = CHOICES[name], []
    dim = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else -1)
    if sample.kwargs.get("stable") or sample.input.dim() == 0:
        return None, ours, cpus
    for a, b in zip(tree_leaves(ours), tree_leaves(cpus)):
        if name != "argsort" and not rest:
            rest = [a], [b]  # the values
            continue
        a, source = _dense(a), _dense(sample.input)
        chosen, wanted = ((i if i.dim() == source.dim() else i.unsqueeze(dim)) for i in (a, _dense(b)))
        if bool(((chosen < 0) | (chosen >= source.size(dim))).any()):
            return "an index is out of range", ours, cpus
        if bool((torch.sort(chosen, dim).values.diff(dim=dim) == 0).any()):
            return "an element was chosen twice", ours, cpus
        message = _close(source.gather(dim, chosen), source.gather(dim, wanted))
        if message:
            return f"elements at the indices: {message}", ours, cpus
    return (None, *rest) if rest else (None, [], [])


def same_values(ours, cpus, exact):
    """Compares values; `exact` is a function that returns the double-precision results, or None if there are none."""
    ours, cpus = tree_leaves(ours), tree_leaves(cpus)
    for i, (a, b) in enumerate(zip(ours, cpus)):
        if a is None and b is None:
            continue
        if (a is None) != (b is None):
            return f"result {i} is {'missing' if a is None else 'there'}, the CPU's is {'missing' if b is None else 'there'}"
        if not isinstance(a, torch.Tensor):
            message = _close(a, b)
        else:
            a, b = _dense(a), _dense(b)
            message = _close(a, b)
            if message and (a.is_floating_point() or a.is_complex()):
                truth = tree_leaves(exact())
                if len(truth) == len(cpus) and isinstance(truth[i], torch.Tensor) and _as_good(a, b, _dense(truth[i])):
                    message = None
        if message:
            return f"result {i}: {message}"
    return None


def _close(a, b):
    try:
        torch.testing.assert_close(a, b, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return _one_line(error)
    return None


def _as_good(ours, cpus, truth):
    """The device's distance from the double-precision result must be the CPU's, within ROUNDING and the default
    tolerance. If the CPU's error is large, it must be the rounding of one number of the largest size."""
    if ours.shape != truth.shape:
        return False
    (rtol, atol), precision = default_tolerances(ours), torch.finfo(ours.dtype).eps
    ours, cpus, truth = (t.to(torch.complex128) if t.is_complex() else t.double() for t in (ours, cpus, truth))
    odd = ~torch.isfinite(cpus)
    if not torch.equal(odd, ~torch.isfinite(ours)) or _close(ours[odd], cpus[odd]):
        return False
    ours, cpus, truth = ours[~odd], cpus[~odd], truth[~odd]
    if not torch.isfinite(truth).all():
        return False
    own, most = ((cpus - truth).abs().max(), truth.abs().max()) if truth.numel() else (0.0, 0.0)
    size = max(1.0, float(most))
    allowed = precision * size if own > precision**0.5 * size else ROUNDING * own
    return bool(((ours - truth).abs() <= atol + rtol * truth.abs() + allowed).all())


def same_distribution(ours, again, cpus):
    """For random numbers: the same seed must generate the same results, and each result must have the CPU's
    distribution."""
    for i, (a, repeated, b) in enumerate(zip(tree_leaves(ours), tree_leaves(again), tree_leaves(cpus))):
        if not isinstance(a, torch.Tensor):
            continue
        a, repeated, b = _dense(a), _dense(repeated), _dense(b)
        if _close(a, repeated):
            return f"result {i}: the same seed generates other numbers"
        parts = (lambda t: torch.view_as_real(t).flatten()) if a.is_complex() else (lambda t: t.flatten())
        x, y = parts(a).double(), parts(b).double()
        if x.numel() < ENOUGH:
            continue
        points = torch.cat([x, y])
        cdf = [torch.searchsorted(values.sort().values, points, right=True) / values.numel() for values in (x, y)]
        distance, limit = (cdf[0] - cdf[1]).abs().max().item(), SIGNIFICANCE * (2 / x.numel()) ** 0.5
        if distance > limit:
            return f"result {i}: distributed otherwise than the CPU's (Kolmogorov-Smirnov {distance:.3f} > {limit:.3f})"
    return None
