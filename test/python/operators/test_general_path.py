"""The general path: generated operators with layouts, dtypes and forms that the dense path does not support, compared
with CPU PyTorch: shapes, strides, dtypes, values and warnings, or the same kind of error with the same message."""

import itertools
import warnings
import zlib

import pytest
import torch
import torch_backend
from native_reference import load_model, overload

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]
OPERATORS = ["add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "bitwise_and.Tensor", "eq.Tensor", "lt.Tensor",
             "atan2", "neg", "exp", "sqrt", "clamp_min", "addcmul"]  # fmt: skip
NATIVE = {op.name: op for op in load_model().kernels if op.entry.is_elementwise and not op.entry.meta}
ROUNDED = {torch.float16: 2**-7, torch.bfloat16: 2**-5, torch.float32: 1e-5, torch.complex64: 1e-5}

# Views of a tensor of 6 x 8, and shapes that broadcast with them or do not.
LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[::2, ::2],
    "column": lambda x: x[:, 3],
    "row": lambda x: x[2],
    "one row": lambda x: x[2:3],
    "one column": lambda x: x[:, :1],
    "expanded": lambda x: x[:1].expand(6, 8),
    "expanded column": lambda x: x[:, :1].expand(6, 8),
    "scalar": lambda x: x[1, 1],
    "one element": lambda x: x[1:2, 1:2],
    "empty": lambda x: x[:0],
    "empty column": lambda x: x[:, :0],
    "three dimensions": lambda x: x.reshape(2, 3, 8),
    "nine dimensions": lambda x: x.reshape(1, 2, 1, 3, 1, 2, 1, 2, 2),
    "permuted": lambda x: x.reshape(2, 3, 2, 4).permute(3, 1, 0, 2),
    "channels last": lambda x: x.reshape(2, 3, 2, 4).contiguous(memory_format=torch.channels_last),
    "diagonal": lambda x: x.diagonal(),
    "overlapping": lambda x: x.as_strided((3, 3), (1, 1)),
    "offset": lambda x: x.flatten()[5:].unflatten(0, (-1, 1)),
}


def base(dtype, seed):
    """48 numbers that all dtypes represent and all operators accept."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{dtype}{seed}".encode()))
    numbers = torch.randint(1, 7, (6, 8), generator=generator)
    return (numbers % 2 == 1) if dtype == torch.bool else numbers.to(dtype)


def operand_count(name):
    return sum(str(a.type) == "Tensor" for a in NATIVE[name].arguments)


# Warnings that PyTorch emits once per process; the CPU runs first and emits them.
ONCE = ("Casting complex values to real discards the imaginary part", "ComplexHalf support is experimental")


def outcome(function, device):
    """Returns the outcome of a call: ("value", results, warnings) or ("error", type, message)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results = function(device)
        except Exception as error:  # any exception of the CPU is the reference
            return "error", type(error), str(error)
    said = [str(w.message).splitlines()[0] for w in caught]
    return "value", results, [line for line in said if not line.startswith(ONCE)]


def words(message):
    """A message without the name of the device, and without the lines after the first."""
    first = message.splitlines()[0]
    for name in (f"{torch_backend.device_name()}:0", torch_backend.device_name(), "cpu"):
        first = first.replace(name, "DEVICE")
    return first


def assert_like_cpu(function, what, *, strides=True, rounded=None):
    """Compares a call on the device with the same call on the CPU."""
    theirs, ours = outcome(function, "cpu"), outcome(function, torch_backend.device_name())
    assert ours[0] == theirs[0], f"{what}: {ours} instead of {theirs}"
    if theirs[0] == "error":
        assert ours[1] is theirs[1], f"{what}: {ours} instead of {theirs}"
        if "not implemented for" not in theirs[2]:  # the CPU's kernels emit it if other devices have a kernel
            assert words(ours[2]) == words(theirs[2]), what
        return
    # since torch 2.15, the CPU warns again when it resizes the temporary result that it casts to out=; devices have no
    # such temporary
    assert ours[2] in (theirs[2], list(dict.fromkeys(theirs[2]))), f"{what}: other warnings"
    for a, b in zip(ours[1], theirs[1]):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), what
        if strides and b.numel() > 0:
            assert a.stride() == b.stride(), what
        tolerance = max(ROUNDED.get(b.dtype, 1e-9), ROUNDED.get(rounded, 0))
        torch.testing.assert_close(a.cpu(), b, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{what}: {m}")


def call(name, tensors, **keywords):
    """Calls an overload with 2 for each number without a default."""
    missing = [a for a in overload(name)._schema.arguments if "number" in str(a.type).lower() and not a.has_default_value()
               and not a.kwarg_only]  # fmt: skip
    return overload(name)(*tensors, *(2 for _ in missing), **keywords)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_pair_of_layouts(name, dtype):
    count = operand_count(name)
    for first, second in itertools.product(LAYOUTS, LAYOUTS if count > 1 else ["dense"]):
        views = [LAYOUTS[first], LAYOUTS[second], LAYOUTS[first]][:count]

        def run(device, views=views):
            return [call(name, [view(base(dtype, i).to(device)) for i, view in enumerate(views)])]

        assert_like_cpu(run, f"{name} {first}, {second}")


@pytest.mark.parametrize("name", ["add.Tensor", "mul.Tensor", "div.Tensor", "maximum", "eq.Tensor", "atan2"])
def test_every_pair_of_dtypes_is_promoted(name):
    layouts = ["dense", "row", "scalar", "one column"]
    for (a, b), (first, second) in itertools.product(itertools.product(DTYPES, DTYPES), itertools.product(layouts, layouts)):

        def run(device, a=a, b=b, first=first, second=second):
            return [call(name, [LAYOUTS[first](base(a, 0).to(device)), LAYOUTS[second](base(b, 1).to(device))])]

        assert_like_cpu(run, f"{name} {a} {first}, {b} {second}")


NUMBERS = [2, 0.1, True, -3, 70000.5, 2**40, 1 + 2j, float("inf"), float("nan")]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_with_tensors(dtype):
    operators = [lambda x, n: x + n, lambda x, n: n * x, lambda x, n: x == n, lambda x, n: x / n, lambda x, n: x.mul_(n), lambda x, n: n - x]
    for number, (i, operator), layout in itertools.product(NUMBERS, enumerate(operators), ["dense", "transposed", "scalar", "empty"]):
        if dtype == torch.uint8 and number == -3 and i == 2:
            continue  # only some CPU kernels compare with the wrapped value of a negative number
        # a host tensor without dimensions also counts as a number
        for wrap in (lambda n: n, lambda n: torch.tensor(n)):

            def run(device, number=number, operator=operator, layout=layout, wrap=wrap):
                return [operator(LAYOUTS[layout](base(dtype, 0).to(device)), wrap(number))]

            assert_like_cpu(run, f"operator {i}, {dtype}, {layout}, {number}", strides=i != 4)


# Calls that reach mul and similar operators with the number as first operand.
NUMBER_FIRST = {
    "mul.Scalar": lambda x, n: torch.ops.aten.mul.Scalar(x, n),
    "mul_.Scalar": lambda x, n: torch.ops.aten.mul_.Scalar(x, n),
    "mul, a host tensor first": lambda x, n: torch.mul(torch.tensor(n), x),
    "mul, out= of wrong size": lambda x, n: torch.mul(torch.tensor(n), x, out=torch.empty(0, dtype=x.dtype, device=x.device)),
    "_foreach_mul_": lambda x, n: (torch._foreach_mul_([x], n), x)[1],
    "bitwise_and.Scalar_Tensor": lambda x, n: torch.bitwise_and(n, x),
    "bitwise_xor.Scalar_Tensor": lambda x, n: torch.bitwise_xor(n, x),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NUMBER_FIRST)
def test_a_number_may_be_the_first_operand(name, dtype):
    for number, layout in itertools.product(NUMBERS, ["dense", "transposed", "strided", "scalar", "empty", "overlapping"]):

        def run(device, number=number, layout=layout):
            return [NUMBER_FIRST[name](LAYOUTS[layout](base(dtype, 0).to(device)), number)]

        assert_like_cpu(run, f"{name}, {dtype}, {layout}, {number}", strides=False)


def test_a_number_that_comes_first_makes_no_tensor_on_the_device(device, module):
    """The optimizers of torch.optim multiply each parameter in this way."""
    x = torch.ones(8, device=device)
    before = module.memory_stats()["allocation.all.allocated"]
    torch._foreach_mul_([x], 0.5)
    torch.ops.aten.mul_.Scalar(x, 0.5)
    assert module.memory_stats()["allocation.all.allocated"] == before
    assert x.tolist() == [0.25] * 8


OUTS = {
    "right": lambda dtype, device: torch.zeros(6, 8, dtype=dtype, device=device),
    "transposed": lambda dtype, device: torch.zeros(8, 6, dtype=dtype, device=device).t(),
    "every second": lambda dtype, device: torch.zeros(12, 16, dtype=dtype, device=device)[::2, 1::2],
    "nothing yet": lambda dtype, device: torch.empty(0, dtype=dtype, device=device),
    "too small": lambda dtype, device: torch.zeros(2, 3, dtype=dtype, device=device),
    "too large": lambda dtype, device: torch.zeros(7, 9, dtype=dtype, device=device),
    "expanded": lambda dtype, device: torch.zeros(1, dtype=dtype, device=device).expand(6, 8),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", OUTS)
@pytest.mark.parametrize("name", ["add.out", "div.out", "eq.Tensor_out", "addcmul.out", "exp.out"])
def test_given_results_of_every_shape_and_dtype(name, layout, dtype):
    count = sum(str(a.type) == "Tensor" and not a.is_out for a in overload(name)._schema.arguments)
    for operand, second in itertools.product([torch.float32, torch.int64, torch.complex64], ["dense", "row"]):

        def run(device, operand=operand, second=second):
            tensors = [base(operand, 0).to(device), LAYOUTS[second](base(operand, 1).to(device)), base(operand, 2).to(device)][:count]
            out = OUTS[layout](dtype, device)
            result = overload(name)(*tensors, out=out)
            assert result is out
            return [result]

        assert_like_cpu(run, f"{name} {operand} {second} into {layout} {dtype}", rounded=torch.float32 if operand == torch.int64 else operand)


INPLACE_VIEWS = ["dense", "transposed", "strided", "column", "scalar", "empty", "expanded", "permuted", "diagonal"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_in_place_on_views_writes_the_view_and_nothing_else(dtype):
    operators = [lambda x, y: x.add_(y), lambda x, y: x.mul_(y), lambda x, y: x.copy_(y), lambda x, y: x.div_(y), lambda x, y: x.fill_(3),
                 lambda x, y: x.eq_(y), lambda x, y: x.zero_()]  # fmt: skip
    for (i, operator), layout, other in itertools.product(enumerate(operators), INPLACE_VIEWS, [dtype, torch.float32, torch.int64]):
        for second in (layout, "scalar", "row"):

            def run(device, operator=operator, layout=layout, second=second, other=other):
                whole = base(dtype, 0).to(device)
                operator(LAYOUTS[layout](whole), LAYOUTS[second](base(other, 1).to(device)))
                return [whole]

            assert_like_cpu(run, f"operator {i}, {dtype}, {layout}, {second} of {other}")


OVERLAPS = {
    "itself": lambda x: (x[:5], x[:5]),
    "the next row": lambda x: (x[1:], x[:-1]),
    "the row before": lambda x: (x[:-1], x[1:]),
    "a row of it": lambda x: (x, x[2]),
    "an element of it": lambda x: (x, x[2, 2]),
    "the other half": lambda x: (x[:3], x[3:]),
    "other columns": lambda x: (x[:, ::2], x[:, 1::2]),
    "shifted by one": lambda x: (x.flatten()[1:], x.flatten()[:-1]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16, torch.complex64], ids=str)
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_operands_that_share_memory(overlap, dtype):
    operators = [lambda x, y: x.add_(y), lambda x, y: x.copy_(y), lambda x, y: torch.mul(y, y, out=x), lambda x, y: torch.add(y, x, out=x)]
    for i, operator in enumerate(operators):

        def run(device, operator=operator):
            whole = base(dtype, 0).to(device)
            operator(*OVERLAPS[overlap](whole))
            return [whole]

        assert_like_cpu(run, f"operator {i}, {overlap}")


# The CPU's result depends on the order in which it traverses these; the device's result is defined: all operands are
# read first.
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16, torch.complex64], ids=str)
def test_operands_that_read_the_result_in_another_order_are_read_first(dtype, device):
    for operator in (torch.add, torch.mul):
        for view in (lambda x: x.t(), lambda x: x[:1].expand(6, 6), lambda x: x[:, :1].expand(6, 6)):
            x = base(dtype, 0)[:, :6]
            want = operator(x, view(x))
            ours = base(dtype, 0).to(device)[:, :6]  # not dense: PyTorch does not detect that such operands overlap
            torch.testing.assert_close(operator(ours, view(ours), out=ours).cpu(), want)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_integers_wrap_as_on_the_cpu(dtype):
    info = torch.iinfo(dtype)
    edge = torch.tensor([info.min, info.max, info.min + 1, info.max - 1, 0, 1, 2, 3, 64, 100], dtype=dtype)
    operators = [torch.add, torch.sub, torch.mul, torch.maximum, torch.eq, torch.lt, torch.bitwise_xor]
    operators += [lambda a, b: torch.add(a, b, alpha=3), lambda a, b: -a, lambda a, b: abs(a), lambda a, b: a // 3, lambda a, b: a % 3,
                  lambda a, b: torch.div(a, 7, rounding_mode="trunc"), lambda a, b: torch.remainder(a, 7)]  # fmt: skip
    for i, operator in enumerate(operators):
        pair = [edge.repeat_interleave(len(edge)), edge.repeat(len(edge))]
        assert_like_cpu(lambda device, operator=operator, pair=pair: [operator(*(x.to(device) for x in pair))], f"operator {i}")


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_wide_unsigned_integers_are_right_or_refused_as_on_the_cpu(dtype):
    def numbers(device):
        return torch.tensor([0, 1, 2, torch.iinfo(dtype).max, torch.iinfo(dtype).max // 2 + 1], dtype=dtype).to(device)

    calls = [lambda x: x.to(torch.float32), lambda x: x.to(torch.int64), lambda x: x.to(torch.uint8), lambda x: x.to(torch.bool),
             lambda x: x.clone(), lambda x: x[::2].contiguous(), lambda x: torch.full_like(x, 7), lambda x: x == x, lambda x: x + x,
             lambda x: torch.where(x == 1, x, x), lambda x: torch.cat([x, x]), lambda x: x.to(torch.float16), lambda x: x.to(torch.complex64),
             lambda x: torch.tensor([0.0, 3.9, 250.0], device=x.device).to(dtype), lambda x: x.zero_()]  # fmt: skip
    for i, function in enumerate(calls):
        assert_like_cpu(lambda device, function=function: [function(numbers(device))], f"call {i}")


def test_result_types_are_the_cpus(device):
    tensors = {"dimensions": lambda d: torch.ones(2, dtype=d), "none": lambda d: torch.tensor(1, dtype=d)}
    for a, b in itertools.product(DTYPES, DTYPES):
        for x, y in itertools.product(tensors.values(), tensors.values()):
            assert torch.result_type(x(a).to(device), y(b).to(device)) == torch.result_type(x(a), y(b))
