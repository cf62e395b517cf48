"""Compares the results that FakeTensor predicts with the real ones: sizes, strides, dtypes and the operands whose
storage they share."""

import contextlib
import copy
import itertools
import warnings

import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


def is_dense(x):
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


def describe(results, operands):
    """Returns for each tensor its sizes, strides, dtype, and the places of the operands that share its storage."""
    owners = {}
    for place, operand in enumerate(operands):
        owners.setdefault(operand.untyped_storage()._cdata, []).append(place)
    return [
        (tuple(x.shape), tuple(x.stride()) if x.numel() > 1 else None, x.dtype, tuple(owners.get(x.untyped_storage()._cdata, ())))
        for x in pytree.tree_leaves(results)
        if is_dense(x)
    ]


def in_format(x, memory_format):
    if is_dense(x) and x.dim() == 4 and memory_format == torch.channels_last:
        return x.detach().contiguous(memory_format=memory_format).requires_grad_(x.requires_grad)
    return x


def run(operator, operands, fake_mode=None):
    leaves, tree = pytree.tree_flatten(copy.deepcopy(operands) if fake_mode is None else operands)
    if fake_mode:
        leaves = [fake_mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in leaves]
    args, kwargs = pytree.tree_unflatten(leaves, tree)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if fake_mode is None:
            results = operator(*args, **kwargs)
        else:
            with fake_mode:
                results = operator(*args, **kwargs)
    return describe(results, [x for x in leaves if is_dense(x)])


def difference(operator, operands):
    """Returns the difference as a text, or None. Properties that FakeTensor cannot describe (results whose sizes depend
    on data) are not compared."""
    try:
        predicted = run(operator, operands, FakeTensorMode())
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
        return None
    is_so = run(operator, operands)
    return None if predicted == is_so else f"FakeTensor {predicted}, result {is_so}"


def samples(info, dtype, memory_format, most):
    for sample in itertools.islice(info.sample_inputs("cpu", dtype), most):
        yield pytree.tree_map(lambda x: in_format(x, memory_format), ((sample.input, *sample.args), sample.kwargs))


def moved_to(place, operands):
    moved = pytree.tree_map(lambda x: x.detach().to(place) if isinstance(x, torch.Tensor) else x, operands)
    if "device" in operands[1]:
        moved[1]["device"] = place
    return moved


def differences(info, place, dtype, memory_format, most=12):
    """Yields the differences of an operator's samples on a device that do not also occur on the CPU."""
    for number, operands in enumerate(samples(info, dtype, memory_format, most)):
        moved = moved_to(place, operands)
        found = difference(info.op, moved)
        if found and not difference(info.op, operands):
            yield f"{info.full_name} {dtype} {memory_format} sample {number}: {found}"


class Judge(TorchDispatchMode):
    """Compares each operator that runs, also those that autograd calls. `found` has a text for each operator that
    differs."""

    def __init__(self):
        super().__init__()
        self.found = {}
        self.judged = set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        operands = (args, kwargs or {})
        leaves = [x for x in pytree.tree_leaves(operands) if is_dense(x)]
        predicted = self.predicted(operator, operands) if leaves and not operator._schema.is_mutable else None
        results = operator(*args, **(kwargs or {}))
        if predicted is not None:
            self.judged.add(operator)
            is_so = describe(results, leaves)
            if predicted != is_so:
                self.found.setdefault(operator, f"{operator}: FakeTensor {predicted}, result {is_so}")
        return results

    def predicted(self, operator, operands):
        """Returns FakeTensor's prediction, or None if it has no rule or the operands are invalid."""
        try:
            return run(operator, operands, FakeTensorMode())
        except Exception:
            return None


def judge(info, place, dtype, memory_format, most, judge):
    """Runs an operator's samples and their gradients on a device. Gradients of results also have the memory format."""
    for operands in samples(info, dtype, memory_format, most):
        operands = pytree.tree_map(lambda x: x.requires_grad_() if is_differentiable(x) else x, moved_to(place, operands))
        with judge, contextlib.suppress(Exception):  # other tests judge errors
            results = [x for x in pytree.tree_leaves(info.op(*operands[0], **operands[1])) if is_dense(x) and x.requires_grad]
            leaves = [x for x in pytree.tree_leaves(operands) if is_differentiable(x)]
            if results and leaves:
                grads = [in_format(torch.randn_like(x), memory_format).detach() for x in results]
                torch.autograd.grad(results, leaves, grads, allow_unused=True)


def is_differentiable(x):
    return is_dense(x) and (x.is_floating_point() or x.is_complex())
