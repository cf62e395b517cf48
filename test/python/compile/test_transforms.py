"""vmap, forward-mode AD, double backward and combinations of them produce the CPU's results wherever the CPU has any.

PyTorch has such rules for its own operators. An operator that the device runs in place of several of them must have
them, too, or must not be selected. The auxiliary results of an operator must have the ranks that these rules expect.

`make test` runs the basic transforms of all modules and operators except element-wise ones, and the combinations for
those that the device composes or fuses. `make test-full` runs all.
"""

import collections

import pytest
import torch
from databases import difference, in_double, module_cases, on_the_cpu, operator_cases, outcome
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils import _pytree as pytree
from transforms import COMBINATIONS, TRANSFORMS

pytestmark = pytest.mark.filterwarnings("ignore")


class Sweep:
    """Compares a transform of cases on a device with the CPU. Counts the cases, and the errors that the CPU raises."""

    def __init__(self, transform, device, dtype):
        self.transform, self.device, self.dtype = transform, device, dtype
        self.found, self.compared, self.errors = [], 0, collections.Counter()

    def on(self, place, case, dtype, arguments):
        return outcome(lambda *moved: self.transform(case.make(place, dtype), moved), arguments, place)

    def reference(self, case):
        return on_the_cpu(self.on, "cpu", case, torch.float64, in_double(case.arguments))

    def compare(self, case):
        expected = on_the_cpu(self.on, "cpu", case, self.dtype, case.arguments)
        if isinstance(expected, Exception):
            self.errors[f"{type(expected).__name__}: {expected}".splitlines()[0]] += 1
            return
        self.compared += 1
        ours = self.on(self.device, case, self.dtype, case.arguments)
        if isinstance(ours, Exception):
            self.found.append(f"{case.name}: {type(ours).__name__}: {str(ours).splitlines()[0]}")
        elif text := difference(ours, expected, lambda: self.reference(case)):
            self.found.append(f"{case.name}: {text}")

    def finish(self, at_least):
        print(f"{self.transform.__name__}: {self.compared} compared; errors of the CPU: {dict(self.errors.most_common())}")
        assert not self.found, "\n".join(self.found)
        assert self.compared >= at_least, "too few cases had a result on the CPU"


def by_transform(transforms):
    return pytest.mark.parametrize("transform", transforms, ids=lambda transform: transform.__name__)


@by_transform(TRANSFORMS)
def test_modules(device, transform):
    sweep = Sweep(transform, device, torch.float64)
    for case in module_cases(torch.float64, 2):
        sweep.compare(case)
    sweep.finish(150)


def check_operators(device, transform, wanted, at_least, dtype=torch.float64, count=1):
    sweep = Sweep(transform, device, dtype)
    for case in operator_cases(dtype, count, wanted):
        sweep.compare(case)
    sweep.finish(at_least)


def is_element_wise(info):
    return isinstance(info, (UnaryUfuncInfo, BinaryUfuncInfo))


@by_transform(TRANSFORMS)
def test_operators(device, transform):
    check_operators(device, transform, lambda info: not is_element_wise(info), 250)


@pytest.mark.slow
@by_transform(TRANSFORMS)
def test_element_wise_operators(device, transform):
    check_operators(device, transform, is_element_wise, 100)


# Those for which the device runs its own composed or fused operators, or its own operators of several results.
OWN_MODULES = {"nn.BatchNorm2d", "nn.GRU", "nn.GRUCell", "nn.GroupNorm", "nn.LSTM", "nn.LSTMCell", "nn.LayerNorm", "nn.MultiheadAttention",
               "nn.PReLU", "nn.RMSNorm", "nn.TransformerDecoderLayer", "nn.TransformerEncoder", "nn.TransformerEncoderLayer"}  # fmt: skip
OWN_OPERATORS = {"addmm", "cdist", "cummax", "logcumsumexp", "masked.softmax", "nn.functional.avg_pool2d", "nn.functional.batch_norm",
                 "nn.functional.conv2d", "nn.functional.conv_transpose2d", "nn.functional.cross_entropy", "nn.functional.ctc_loss",
                 "nn.functional.embedding", "nn.functional.embedding_bag", "nn.functional.glu", "nn.functional.grid_sample",
                 "nn.functional.group_norm", "nn.functional.interpolate", "nn.functional.layer_norm", "nn.functional.logsigmoid",
                 "nn.functional.max_pool2d", "nn.functional.max_unpool2d", "nn.functional.multi_head_attention_forward",
                 "nn.functional.multilabel_soft_margin_loss", "nn.functional.nll_loss", "nn.functional.pad", "nn.functional.prelu",
                 "nn.functional.rms_norm", "nn.functional.unfold", "scatter_reduce", "softmax", "sort", "std_mean", "var_mean"}  # fmt: skip


@by_transform(COMBINATIONS)
def test_modules_with_operators_of_our_own(device, transform):
    sweep = Sweep(transform, device, torch.float32)
    for case in module_cases(torch.float32, 1):
        if case.name.split(",")[0] in OWN_MODULES:
            sweep.compare(case)
    sweep.finish(5)


@by_transform(COMBINATIONS)
def test_operators_of_our_own(device, transform):
    check_operators(device, transform, lambda info: info.name in OWN_OPERATORS, 15, torch.float32)


@pytest.mark.slow
@by_transform(TRANSFORMS + COMBINATIONS)
def test_all_modules(device, transform):
    sweep = Sweep(transform, device, torch.float32)
    for case in module_cases(torch.float32, 4):
        sweep.compare(case)
    sweep.finish(150)


@pytest.mark.slow
@by_transform(TRANSFORMS + COMBINATIONS)
def test_all_operators(device, transform):
    check_operators(device, transform, lambda info: True, 400, torch.float32, 3)


# ---- log_sigmoid: the auxiliary result of its forward ----
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3), (2, 0, 3)])
def test_log_sigmoid_of_any_rank(device, shape):
    """torch's rules for batches and tangents pad the gradient's operands to the rank of the buffer."""
    x = torch.linspace(-3, 3, torch.Size(shape).numel()).reshape(shape)
    buffer = torch.ops.aten.log_sigmoid_forward(x.to(device))[1]
    assert buffer.dim() == x.dim()
    if buffer.numel():  # if it has elements, PyTorch's decomposition of the gradient reads them
        torch.testing.assert_close(buffer.cpu(), torch.ops.aten.log_sigmoid_forward(x)[1])
    function = torch.nn.functional.logsigmoid
    for transform in TRANSFORMS + COMBINATIONS:
        expected = outcome(lambda x: transform(function, (x,)), (x,), "cpu")
        ours = outcome(lambda x: transform(function, (x,)), (x,), device)
        if isinstance(expected, Exception):
            continue
        assert not isinstance(ours, Exception), f"{transform.__name__}: {ours}"
        torch.testing.assert_close(pytree.tree_leaves(ours), pytree.tree_leaves(expected))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_higher_order_operators_under_autocast(device, backend):
    x = torch.randn(4, 4)
    run = torch.compile(lambda x: torch.cond(x.sum() > -100, lambda x: x @ x, lambda x: x @ x + 1, (x,)), backend=backend)
    with torch.autocast(device, torch.bfloat16):
        result = run(x.to(device))
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float().cpu(), x @ x, rtol=3e-2, atol=3e-2)
