"""Compares what FakeTensor says about results with the results: sizes, strides, dtypes and the operands whose storage they share."""

import copy
import warnings

import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException
from torch.utils import _pytree as pytree


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
    """Returns what differs as a text, or None. What FakeTensor cannot describe (results whose sizes depend on data) does not differ."""
    try:
        said = run(operator, operands, FakeTensorMode())
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
        return None
    is_so = run(operator, operands)
    return None if said == is_so else f"FakeTensor {said}, result {is_so}"


def differences(info, place, dtype, memory_format, most=12):
    """Yields the differences of an operator's samples on a device that it does not have on the CPU, too."""
    for number, sample in enumerate(info.sample_inputs("cpu", dtype)):
        if number >= most:
            return
        operands = pytree.tree_map(lambda x: in_format(x, memory_format), ((sample.input, *sample.args), sample.kwargs))
        moved = pytree.tree_map(lambda x: x.detach().to(place) if isinstance(x, torch.Tensor) else x, operands)
        if "device" in operands[1]:
            moved[1]["device"] = place
        found = difference(info.op, moved)
        if found and not difference(info.op, operands):
            yield f"{info.full_name} {dtype} {memory_format} sample {number}: {found}"
