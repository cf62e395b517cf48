"""Each generated elementwise operator, in all its forms, compared with CPU PyTorch; each comparison checks that the
device's kernel ran."""

import itertools
import zlib

import pytest
import torch
import torch_backend
from native_reference import DTYPES, Sample, assert_native, assert_same, load_model, native_count, overload, place, strict

MODEL = load_model()
# (operator, dtype, form) for which random operands cannot be compared, and the reason. The list may only shrink.
ELSEWHERE = {
    ("log_sigmoid_backward", "f32", "functional"): "the CPU takes the logistic function from `buffer`: test_activations.py",
    ("log_sigmoid_backward", "f64", "functional"): "the CPU takes the logistic function from `buffer`: test_activations.py",
    ("log_sigmoid_backward", "f32", "out"): "the CPU takes the logistic function from `buffer`: test_activations.py",
    ("log_sigmoid_backward", "f64", "out"): "the CPU takes the logistic function from `buffer`: test_activations.py",
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_onednn():
    """The CPU's own kernels are the reference: oneDNN's gelu and its gradient raise an error when operands broadcast,
    write outside a result that is not contiguous, and are used for bfloat16 on some processors only."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


# Operators whose results are contiguous on the CPU, and have the operands' order on the device; in these forms.
LAYOUT_DIFFERS = {"mse_loss_backward": ("functional", "out"), "smooth_l1_loss_backward": ("functional", "out"),
                  "huber_loss_backward": ("functional", "out"), "hardswish_backward": ("out",), "nan_to_num": ("out",)}  # fmt: skip
ELEMENTWISE = {op.name: op for op in MODEL.kernels if op.entry.is_elementwise}
POSITIVE = {"log", "log2", "log10", "sqrt", "rsqrt", "pow.Tensor_Tensor", "pow.Tensor_Scalar", "log1p"}
NOT_ZERO = {"div.Tensor", "reciprocal", "addcdiv", "div.Tensor_mode", "floor_divide", "fmod.Tensor", "remainder.Tensor"}
SMALL = {"tan", "exp", "expm1", "tanh_backward", "sigmoid_backward", "sinh", "cosh", "exp2"}
PROBABILITIES = {"logit": 0, "logit_backward": 1}  # which operand
# The error limits of CPU PyTorch's vectorized functions and the device's: both are within a few ulp of the true value.
# Half precision is computed in float and rounded once; CPU PyTorch rounds the steps of some float16 operators, up to
# three times.
TOLERANCE = {torch.float32: {"rtol": 3e-6, "atol": 3e-6}, torch.float64: {"rtol": 1e-12, "atol": 1e-12},
             torch.float16: {"rtol": 3 * 2**-10, "atol": 3e-6}, torch.bfloat16: {"rtol": 2**-7, "atol": 3e-6}}  # fmt: skip
# Operators for which CPU PyTorch has a larger error (test_activations.py compares the device with mpmath), or, for
# gelu_backward, both have: terms cancel.
LESS_EXACT = {("gelu_backward", torch.float32): {"rtol": 1e-5, "atol": 1e-5},
              ("hardsigmoid_backward", torch.float64): {"rtol": 4e-8, "atol": 0},  # 1/6 in float32
              ("digamma", torch.float64): {"rtol": 1e-9, "atol": 1e-12}, ("special_airy_ai", torch.float64): {"rtol": 1e-5, "atol": 1e-5},
              ("igamma", torch.float64): {"rtol": 1e-9, "atol": 1e-12}, ("igammac", torch.float64): {"rtol": 1e-9, "atol": 1e-12},
              **{(f"special_bessel_{name}", torch.float64): {"rtol": 1e-9, "atol": 3e-6} for name in ("j0", "j1", "y0", "y1")}}  # fmt: skip


def tolerance(op, dtype):
    """Half precision is computed in float32, and may differ from the CPU by its rounding."""
    limits = LESS_EXACT.get((op, dtype), TOLERANCE.get(dtype, {}))
    wide = LESS_EXACT.get((op, torch.float32), {}) if dtype in (torch.float16, torch.bfloat16) else {}
    return {name: max(limit, wide.get(name, 0)) for name, limit in limits.items()}


# Operands by (shape of the base, view): one row per case, with a column for each operand.
VIEWS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(-1, -2),
    "strided": lambda x: x[..., ::2, 1::2],
    "offset": lambda x: x[1:],
    "expanded": lambda x: x.expand(3, 4),
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
}
CASES = {
    "dense": [((3, 4), "dense")] * 3,
    "large": [((137, 251), "dense")] * 3,
    "one dimension": [((70001,), "dense")] * 3,
    "transposed": [((4, 3), "transposed")] * 3,
    "strided": [((6, 8), "strided")] * 3,
    "offset": [((4, 4), "offset")] * 3,
    "mixed strides": [((3, 4), "dense"), ((4, 3), "transposed"), ((6, 8), "strided")],
    "large mixed strides": [((97, 251), "dense"), ((251, 97), "transposed"), ((194, 502), "strided")],
    "expanded": [((3, 4), "dense"), ((3, 1), "expanded"), ((4,), "expanded")],
    "first expanded": [((4,), "expanded"), ((3, 4), "dense"), ((3, 1), "expanded")],
    "broadcast": [((3, 4), "dense"), ((4,), "dense"), ((3, 1), "dense")],
    "broadcast both": [((3, 1), "dense"), ((4,), "dense"), ((2, 1, 1), "dense")],
    "channels last": [((2, 3, 4, 5), "channels_last")] * 3,
    "channels last and dense": [((2, 3, 4, 5), "channels_last"), ((2, 3, 4, 5), "dense"), ((3, 1, 1), "dense")],
    "no dimension": [((), "dense")] * 3,
    "one without dimension": [((3, 4), "dense"), ((), "dense"), ((), "dense")],
    "no element": [((0, 4), "dense")] * 3,
    "no element, broadcast": [((0, 4), "dense"), ((1, 4), "dense"), ((4,), "dense")],
    "many dimensions": [((2, 1, 3, 1, 2, 1, 2, 2), "dense"), ((1, 2, 1, 2, 1, 2, 1, 2), "dense"), ((2, 2), "dense")],
}


def values(op, dtype, shape, position):
    """Returns numbers in the operator's domain, the same for the same arguments."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{op}{dtype}{shape}{position}".encode()))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 or op.startswith("pow") else -5
        whole = torch.randint(low, 6, shape, generator=generator).to(dtype)
        return torch.where(whole == 0, torch.full_like(whole, 3), whole) if op in NOT_ZERO else whole
    if PROBABILITIES.get(op) == position:
        return torch.rand(shape, generator=generator, dtype=torch.float64).mul(0.9).add(0.05).to(dtype)
    if op in POSITIVE and position == 0:
        return torch.rand(shape, generator=generator, dtype=torch.float64).add(0.1).mul(2).to(dtype)
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64) * (0.7 if op in SMALL else 2)
    if op in NOT_ZERO:
        numbers = torch.where(numbers.abs() < 0.2, torch.full_like(numbers, 0.7), numbers)
    return numbers.to(dtype)


def schema(op):
    """The arguments of the functional form, in order."""
    return list(ELEMENTWISE[op].group.functional.func.arguments.flat_all)


def is_operand(argument):
    return str(argument.type) in ("Tensor", "Tensor?")


def operand_count(op):
    return sum(is_operand(a) for a in schema(op))


def numbers(op, dtype):
    """Returns the sets of other arguments to test: one list per call, in the order of the schema."""
    names = [a.name for a in schema(op) if not is_operand(a)]
    choice = {"alpha": (1, 0.5), "min": (-0.5, 0), "max": (0.75, 1), "threshold": (0.1, 0), "value": (1, 0.3),
              "weight": (0.3, 0.8), "exponent": (2, 0.5, -1, -0.5, 3, 1.7, 0), "other": (0.5, 1), "negative_slope": (0.1, 0),
              "scale": (1, 1.5), "input_scale": (1, 0.5), "beta": (1, 2), "lambd": (0.5, 0), "decimals": (0, 2, -1),
              "approximate": ("none", "tanh"), "rounding_mode": ("floor", "trunc", None), "eps": (None, 0.1), "reduction": (0, 1, 2),
              "is_result": (False, True), "self_is_result": (False,), "min_val": (-0.5, -1), "max_val": (0.5, 1), "delta": (1.0, 0.3),
              "nan": (None, 1.0), "posinf": (None, 2.0), "neginf": (None, -3.0)}  # fmt: skip
    if dtype == torch.bool:
        choice.update({"alpha": (1, True), "other": (1, False)})
    elif not dtype.is_floating_point:
        choice.update({"alpha": (1, 2), "min": (1, 2), "max": (3, 4), "other": (2,), "value": (1, 3), "exponent": (2, 0, 3),
                       "threshold": (1, 2), "rounding_mode": ("floor", "trunc")})  # fmt: skip
    count = max((len(choice[name]) for name in names), default=1)
    return [tuple(choice[name][i % len(choice[name])] for name in names) for i in range(count)]


def calls(op, dtype, case):
    """Yields (operands, other arguments) for each call of a case."""
    columns = CASES[case][: operand_count(op)]
    operands = [Sample(values(op, dtype, shape, i), VIEWS[view]) for i, (shape, view) in enumerate(columns)]
    return [(operands, extra) for extra in numbers(op, dtype)]


def schema_call(op, native):
    """Returns a function that calls an overload with operands and other arguments; keyword-only ones by name."""
    function = overload(native)
    arguments = schema(op)
    keyword_only = {a.name for a in ELEMENTWISE[op].group.functional.func.arguments.flat_kwarg_only}

    def call(operands, extra, **keywords):
        operands, extra = iter(operands), iter(extra)
        positional = []
        for argument in arguments:
            value = next(operands) if is_operand(argument) else next(extra)
            if argument.name in keyword_only:
                keywords[argument.name] = value
            else:
                positional.append(value)
        return function(*positional, **keywords)

    return call


def forms(op):
    """Returns the names of the forms of an operator: functional, in-place (or None), out."""
    group = ELEMENTWISE[op].group
    return tuple(None if f is None else str(f.func.name) for f in (group.functional, group.inplace, group.out))


def out_name(op):
    return ELEMENTWISE[op].group.out.func.arguments.out[0].name


def kernel_op(op):
    """The operators whose kernels may compute an ATen operator."""
    return (ELEMENTWISE[op].entry.name, *(case.entry.name for case in ELEMENTWISE[op].cases))


def every_op_and_dtype(form):
    """The dtypes with kernels; complex: test_complex.py."""
    rows = [(op, token) for op in ELEMENTWISE for token in ELEMENTWISE[op].entry.kernel.dtypes if token in DTYPES]
    return [(op, token) for op, token in rows if (op, token, form) not in ELSEWHERE]


def how(op, dtype, form):
    """The keywords of a comparison."""
    return {"strides": form not in LAYOUT_DIFFERS.get(op, ()), **tolerance(op, dtype)}


def check_functional(op, dtype, case):
    call = schema_call(op, forms(op)[0])
    for operands, extra in calls(op, dtype, case):
        assert_native(kernel_op(op), lambda *tensors: call(tensors, extra), operands, **how(op, dtype, "functional"))


def check_out(op, dtype, case):
    call, functional = schema_call(op, forms(op)[2]), schema_call(op, forms(op)[0])
    for operands, extra in calls(op, dtype, case):
        result = functional([place(a, "cpu") for a in operands], extra)
        shape = result.shape
        outs = [Sample(torch.zeros(shape, dtype=result.dtype)),
                Sample(torch.zeros((*shape, 2), dtype=result.dtype), lambda x: x[..., 1]),
                Sample(torch.zeros(0, dtype=result.dtype))]  # fmt: skip
        for out in outs:
            assert_native(kernel_op(op), lambda *t: call(t[:-1], extra, **{out_name(op): t[-1]}), [*operands, out],
                          **how(op, dtype, "out"))  # fmt: skip


def check_inplace(op, dtype, case):
    if not forms(op)[1]:
        return
    call = schema_call(op, forms(op)[1])
    for operands, extra in calls(op, dtype, case):
        first = place(operands[0], "cpu")
        if any(stride == 0 and size > 1 for size, stride in zip(first.shape, first.stride())):
            continue  # its elements share memory
        if torch.broadcast_shapes(*(place(a, "cpu").shape for a in operands)) != first.shape:
            continue
        assert_native(kernel_op(op), lambda *tensors: call(tensors, extra), operands, **how(op, dtype, "inplace"))


@pytest.mark.parametrize("op,token", every_op_and_dtype("functional"))
def test_functional_equals_the_cpu(op, token):
    for case in CASES:
        check_functional(op, DTYPES[token], case)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("op,token", every_op_and_dtype("out"))
def test_out_equals_the_cpu(op, token):
    for case in CASES:
        check_out(op, DTYPES[token], case)


@pytest.mark.parametrize("op,token", [(op, token) for op, token in every_op_and_dtype("inplace") if forms(op)[1]])
def test_inplace_equals_the_cpu(op, token):
    for case in CASES:
        check_inplace(op, DTYPES[token], case)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 3.0, -3.0, 1e30, -1e30, 88.0, -104.0]


def with_special_values():
    """sin, cos and tan of 1e30 have no reliable reference: they are excluded."""
    ops = [op for op in ELEMENTWISE if operand_count(op) <= 2 and op not in ("sin", "cos", "tan", "sinc")]
    return [(op, token) for op in ops for token in ("f32", "f64") if token in ELEMENTWISE[op].entry.kernel.dtypes]


def _power_is_out_of_range(a, b):
    return ((a == 0) | a.isinf()) & b.isfinite() & (b.abs() > 127)


# Bugs of CPU PyTorch: (operator, dtype): the operands, and the wrong result. The list may only shrink.
CPU_IS_WRONG = {
    ("fmod.Tensor", "f32"): (lambda a, b: b.abs() < 1e-38, "NaN for a tiny divisor"),
    ("remainder.Tensor", "f32"): (lambda a, b: b.abs() < 1e-38, "NaN for a tiny divisor"),
    ("gelu", "f32"): (torch.isinf, "NaN at infinity"),
    ("i0", "f64"): (torch.isinf, "NaN, the limit is infinity"),
    ("special_i1", "f64"): (torch.isinf, "NaN, the limits are infinite"),
    ("special_modified_bessel_i0", "f64"): (torch.isinf, "NaN, the limit is infinity"),
    ("special_modified_bessel_i1", "f64"): (torch.isinf, "NaN, the limits are infinite"),
    ("special_bessel_j0", "f64"): (torch.isinf, "NaN, the limit is 0"),
    ("special_bessel_j1", "f64"): (torch.isinf, "NaN, the limit is 0"),
    ("special_bessel_y0", "f64"): (torch.isinf, "NaN, the limit is 0"),
    ("special_bessel_y1", "f64"): (torch.isinf, "NaN, the limit is 0"),
    ("special_airy_ai", "f64"): (lambda a: a.abs() > 1e9, "digits of a phase beyond 2^53"),
    ("ldexp.Tensor", "f32"): (_power_is_out_of_range, "NaN for 0 * 2**b and inf * 2**-b"),
    ("ldexp.Tensor", "f64"): (_power_is_out_of_range, "NaN for 0 * 2**b and inf * 2**-b"),
    ("igamma", "f64"): (lambda a, b: a.isnan() | b.isnan(), "0 or 1 of NaN"),
    ("igammac", "f64"): (lambda a, b: a.isnan() | b.isnan(), "0 or 1 of NaN"),
}  # fmt: skip


@pytest.mark.parametrize("op,token", with_special_values())
def test_special_values_equal_the_cpus(op, token):
    dtype = DTYPES[token]
    pairs = torch.tensor(list(itertools.product(SPECIAL, SPECIAL)), dtype=dtype)
    if (op, token) in CPU_IS_WRONG:
        pairs = pairs[~CPU_IS_WRONG[op, token][0](*(pairs[:, i] for i in range(operand_count(op))))]
    operands = [Sample(pairs[:, i].contiguous()) for i in range(operand_count(op))]
    call = schema_call(op, forms(op)[0])
    for extra in numbers(op, dtype):
        assert_native(kernel_op(op), lambda *t: call(t, extra), operands, **tolerance(op, dtype))


# Quotients of the smallest integer and -1 terminate the CPU's process; the others wrap as in C.
DIVISIONS = {"div.Tensor_mode", "floor_divide", "fmod.Tensor", "remainder.Tensor"}


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if "i64" in ELEMENTWISE[op].entry.kernel.dtypes and operand_count(op) <= 2
                                # the CPU's lcm of extremes terminates the process (SIGFPE)  # fmt: skip
                                and op != "lcm"])
@pytest.mark.parametrize("token", ["i64", "i32", "i16", "i8", "u8"])
def test_extreme_integers_equal_the_cpus(op, token):
    dtype = DTYPES[token]
    limits = torch.iinfo(dtype)
    extremes = sorted({limits.min, limits.min + 1, max(limits.min, -2), max(limits.min, -1), 0, 1, 2, 7, 31, 64, limits.max - 1, limits.max})
    if op == "gcd" and limits.min < 0:
        extremes.remove(limits.min)  # the CPU returns negative results for negative divisors
    pairs = [(a, b) for a, b in itertools.product(extremes, extremes) if op not in DIVISIONS or b not in (0, -1)]
    columns = torch.tensor(pairs, dtype=dtype)
    operands = [Sample(columns[:, i].contiguous()) for i in range(operand_count(op))]
    call = schema_call(op, forms(op)[0])
    for extra in numbers(op, dtype):
        assert_native(kernel_op(op), lambda *t: call(t, extra), operands, **TOLERANCE[torch.float32])


# ---- dtypes that are cast to one with a kernel ----
def rare_and_dtype():
    """nextafter in half precision uses the fallback: the next half-precision number differs from the next float32."""
    dtypes = (torch.float16, torch.bfloat16, torch.int32, torch.int16, torch.int8, torch.uint8)
    rows = itertools.product((op for op in ELEMENTWISE if ELEMENTWISE[op].entry.kernel.for_size), dtypes)
    return [pytest.param(op, dtype, id=f"{op}-{dtype}") for op, dtype in rows if not ("is_reduced_floating" in ELEMENTWISE[op].entry.fallback_if and dtype.is_floating_point)]


@pytest.mark.parametrize("op,dtype", rare_and_dtype())
def test_rare_operators_of_other_dtypes_equal_the_cpus(op, dtype):
    """Half precision is computed in float and rounded once, small integers in 64 bits."""
    call = schema_call(op, forms(op)[0])
    limit = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(dtype, 3e-6)
    for case in ("dense", "mixed strides", "broadcast both"):
        for operands, extra in calls(op, dtype, case):
            try:
                call([place(a, "cpu") for a in operands], extra)
            except (RuntimeError, NotImplementedError) as error:
                if "not implemented for" in str(error) and dtype.is_floating_point:
                    continue  # the device supports more dtypes
                with pytest.raises(type(error)):
                    call([place(a, torch_backend.device_name()) for a in operands], extra)
                continue
            assert_native(kernel_op(op), lambda *t: call(t, extra), operands, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if "is_reduced_floating" in ELEMENTWISE[op].entry.fallback_if])
def test_exact_operators_of_halves_are_the_cpus(op, dtype, device):
    call = schema_call(op, forms(op)[0])
    for operands, extra in calls(op, dtype, "mixed strides"):
        ours = call([place(a, device) for a in operands], extra)
        assert_same(ours, call([place(a, "cpu") for a in operands], extra), rtol=0, atol=0)


# ---- type promotion and numbers ----
BINARY = ["add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "eq.Tensor", "lt.Tensor", "atan2"]


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), ()), ((), (4,)), ((), ())])
def test_operands_of_two_dtypes_are_promoted(op, shapes):
    call = schema_call(op, forms(op)[0])
    for a, b in itertools.product(DTYPES.values(), repeat=2):
        operands = [Sample(values(op, dtype, shape, i)) for i, (dtype, shape) in enumerate(zip((a, b), shapes))]
        if op in ("sub.Tensor", "maximum") and a == b == torch.bool:
            continue  # sub rejects bool; maximum of bool has no kernel
        if op == "sub.Tensor" and torch.bool in (a, b):
            continue
        extra = (1,) if op in ("add.Tensor", "sub.Tensor") else ()
        operands[0].base[operands[0].base == 0] = 1
        operands[1].base[operands[1].base == 0] = 1
        result = torch.result_type(*(operand.base for operand in operands))
        # CPU PyTorch reads a 0-dimensional float32 operand at full precision when the others are half precision; the
        # device and CUDA round it first.
        limit = {torch.float16: 2**-8, torch.bfloat16: 2**-6}.get(result, 3e-6)
        assert_native(kernel_op(op), lambda *t: call(t, extra), operands, rtol=limit, atol=3e-6)


PYTHON = {
    "x + 2": lambda x: x + 2, "2 + x": lambda x: 2 + x, "x + 2.5": lambda x: x + 2.5, "x * 3": lambda x: x * 3, "x / 2": lambda x: x / 2,
    "x - 1": lambda x: x - 1, "x < 1": lambda x: x < 1, "x >= 0.5": lambda x: x >= 0.5, "x == 1": lambda x: x == 1,
    "1 > x": lambda x: 1 > x, "x != True": lambda x: x != True, "x * 2.5": lambda x: x * 2.5, "x + True": lambda x: x + True,
    "x += 2": lambda x: x.add_(2), "x *= 2": lambda x: x.mul_(2),
}  # fmt: skip


@pytest.mark.parametrize("expression", PYTHON)
@pytest.mark.parametrize("token", list(DTYPES))
def test_python_numbers(expression, token, device):
    """Integers of each size keep their dtype, fractional numbers promote to floating point, errors equal the CPU's."""
    for shape in ((3, 4), (), (0,)):
        x = values("numbers", DTYPES[token], shape, 0)
        try:
            theirs = PYTHON[expression](x.clone())
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error)[:20]):
                PYTHON[expression](x.to(device))
            continue
        with strict():
            ours = PYTHON[expression](x.to(device))
        assert_same(ours, theirs, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("other", [torch.tensor(2.5), torch.tensor(2.5, dtype=torch.float64), torch.tensor(3), torch.tensor(True)])
def test_cpu_tensor_without_dimension_counts_as_a_number(other, device):
    for token in ("f32", "i32", "f64", "i64"):
        x = values("cpu", DTYPES[token], (3, 4), 0)
        for function in (torch.add, torch.mul, torch.lt, torch.div):
            for left, right in ((x, other), (other, x)):
                with strict():
                    ours = function(*(t if t is other else t.to(device) for t in (left, right)))
                assert_same(ours, function(left, right), rtol=3e-6, atol=3e-6)


def test_number_that_does_not_fit_behaves_as_on_the_cpu(device):
    x = torch.tensor([44, 1], dtype=torch.int8)
    assert torch.equal((x.to(device) == 300).cpu(), x == 300)
    assert torch.equal((x.to(device) + 300).cpu(), x + 300)
    y = torch.ones(2)
    assert torch.equal((y.to(device) * 1e300).cpu(), y * 1e300)


# ---- results given by the caller ----
def test_out_of_another_dtype(device):
    a, b = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    for dtype in (torch.float64, torch.float16):
        ours, theirs = torch.empty(2, 3, dtype=dtype, device=device), torch.empty(2, 3, dtype=dtype)
        torch.add(a.to(device), b.to(device), out=ours)
        assert torch.equal(ours.cpu(), torch.add(a, b, out=theirs))
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.add(a.to(device), b.to(device), out=torch.empty(2, 3, dtype=torch.int64, device=device))


def test_out_of_another_dtype_takes_comparisons(device):
    a, b = torch.arange(6.0), torch.full((6,), 3.0)
    ours = torch.empty(6, device=device)
    with strict():
        torch.lt(a.to(device), b.to(device), out=ours)
    assert torch.equal(ours.cpu(), torch.lt(a, b, out=torch.empty(6)))


def test_inplace_keeps_the_dtype_or_refuses(device):
    x = torch.arange(4, device=device)
    with strict():
        x.add_(torch.ones(4, dtype=torch.int32, device=device))
    assert x.tolist() == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        x.add_(0.5)
    half = torch.ones(4, device=device)
    with strict():
        half.mul_(torch.full((4,), 3.0, dtype=torch.float64, device=device))
    assert half.tolist() == [3.0] * 4


def test_inplace_on_views_writes_the_base(device):
    for view in (lambda x: x[1], lambda x: x[:, ::2], lambda x: x.t(), lambda x: x.diagonal(), lambda x: x[1:3, 1:]):
        theirs = torch.arange(16.0).reshape(4, 4)
        ours = theirs.to(device)
        with strict():
            view(ours).mul_(3).add_(view(ours))
        view(theirs).mul_(3).add_(view(theirs))
        assert torch.equal(ours.cpu(), theirs)


def test_overlapping_results_are_refused_as_on_the_cpu(device):
    x = torch.arange(9.0, device=device).reshape(3, 3)
    for call in (lambda: x.add_(x.t()), lambda: x[1:].add_(x[:-1]), lambda: torch.ones(1, device=device).expand(3).add_(1)):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            call()


def test_result_that_is_read_in_another_order_is_computed_from_the_old_values(device):
    """Too strided for ATen's overlap check: rows 0, 2 and columns of one matrix."""
    theirs = torch.arange(36.0).reshape(6, 6)
    ours = theirs.to(device)
    expected = theirs[::2, ::2] + theirs.t()[::2, ::2]
    with strict():
        torch.add(ours[::2, ::2], ours.t()[::2, ::2], out=ours[::2, ::2])
    assert torch.equal(ours[::2, ::2].cpu(), expected)


def test_resizing_a_used_result_warns(device):
    out = torch.ones(3, device=device)
    with pytest.warns(UserWarning, match="was resized"):
        torch.add(torch.ones(2, 2, device=device), 1, out=out)
    assert out.tolist() == [[2.0, 2.0], [2.0, 2.0]]


# ---- omitted numbers ----
def test_clamp_with_one_limit(device):
    x = torch.linspace(-2, 2, 9)
    for keywords in ({"min": -1}, {"max": 0.5}, {"min": -1.0, "max": 1.0}):
        with strict():
            assert torch.equal(x.to(device).clamp(**keywords).cpu(), x.clamp(**keywords))
            assert torch.equal(x.to(device).clamp_(**keywords).cpu(), x.clamp(**keywords))
            ours = torch.empty(9, device=device)
            torch.clamp(x.to(device), **keywords, out=ours)
            assert torch.equal(ours.cpu(), x.clamp(**keywords))
    with pytest.raises(RuntimeError, match="At least one of 'min' or 'max' must not be None"):
        x.to(device).clamp()
    whole = torch.arange(5)
    assert_same(whole.to(device).clamp(0.5, 2.5), whole.clamp(0.5, 2.5))


# ---- calls that the device's kernels must not run ----
def test_mixed_devices_are_refused(device):
    message = f"Expected all tensors to be on the same device, but found at least two devices, {device}:0 and cpu!"
    x, y = torch.ones(3, device=device), torch.ones(3)
    for call in (lambda: x + y, lambda: y + x, lambda: x.mul_(y), lambda: torch.add(x, x, out=y), lambda: torch.addcmul(x, x, y)):
        with pytest.raises(RuntimeError) as raised:
            call()
        assert message in str(raised.value) or message.replace(f"{device}:0 and cpu", f"cpu and {device}:0") in str(raised.value)


def test_two_devices_of_ours_are_refused(device):
    with pytest.raises(RuntimeError, match=f"{device}:0 and {device}:1"):
        torch.ones(3, device=f"{device}:0") + torch.ones(3, device=f"{device}:1")


def test_result_lies_on_the_operands_device_not_the_current_one(device, module):
    x = torch.ones(3, device=f"{device}:1")
    with strict():
        assert (x + x).device.index == 1
        assert (x + torch.ones(3, 1, device=f"{device}:1")).device.index == 1
    assert module.current_device() == 0


def test_dtypes_without_a_kernel_are_right_and_counted_as_fallback(device):
    x, y = torch.randn(3, 4, dtype=torch.complex64), torch.randn(3, 4, dtype=torch.complex64)
    before = dict(torch_backend._C.fallback_counts()).get("aten::lerp.Scalar", 0)
    assert torch.equal(torch.lerp(x.to(device), y.to(device), 0.25).cpu(), torch.lerp(x, y, 0.25))
    assert dict(torch_backend._C.fallback_counts())["aten::lerp.Scalar"] == before + 1
    with strict(), pytest.raises(NotImplementedError, match="lerp"):
        torch.lerp(x.to(device), y.to(device), 0.25)


def test_errors_of_the_meta_function_are_the_cpus(device):
    x, flags = torch.ones(3, device=device), torch.ones(3, dtype=torch.bool, device=device)
    for call, message in (
        (lambda: flags - flags, "Subtraction, the `-` operator, with two bool tensors is not supported"),
        (lambda: torch.add(torch.ones(3, dtype=torch.int64, device=device), 1, alpha=0.5), "argument alpha must not be a floating"),
        (lambda: x + torch.ones(4, device=device), "must match the size of tensor"),
        (lambda: x.add_(torch.ones(2, 3, device=device)), "doesn't match the broadcast shape"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


def test_negative_view_of_a_conjugate(device):
    z = torch.tensor([1 + 2j, 3 - 4j])
    ours = z.to(device).conj().imag
    assert ours.is_neg()
    assert torch.equal((ours + 1).cpu(), z.conj().imag + 1)
    assert torch.equal(ours.mul_(2).cpu(), z.conj().imag * 2)


# ---- autograd ----
@pytest.mark.parametrize("op", ["add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "pow.Tensor_Scalar", "exp", "log", "sqrt", "tanh",
                                "sigmoid", "clamp", "clamp_min", "neg", "reciprocal", "sin", "cos", "lerp.Scalar", "addcmul"])  # fmt: skip
def test_gradients_equal_the_cpus(op, device):
    dtype = torch.float64
    operands, extra = calls(op, dtype, "broadcast")[0]
    call = schema_call(op, forms(op)[0])
    gradients = []
    for where in ("cpu", device):
        tensors = [place(a, where).requires_grad_() for a in operands]
        call(tensors, extra).mul(2).sum().backward()
        gradients.append([t.grad for t in tensors])
    for theirs, ours in zip(*gradients):
        assert_same(ours, theirs, rtol=1e-10, atol=1e-10)


# ---- calls that are errors ----
def test_losses_and_backward_refuse_the_numbers_the_cpu_refuses(device):
    x, y = torch.randn(4, device=device), torch.randn(4, device=device)
    for call in (lambda t, u: torch.nn.functional.huber_loss(t, u, delta=0.0),
                 lambda t, u: torch.ops.aten.smooth_l1_loss(t, u, 1, -1.0),
                 lambda t, u: torch.ops.aten.leaky_relu_backward(t, u, -0.5, True),
                 lambda t, u: torch.ops.aten.elu_backward(t, -0.5, 1, 1, True, u)):  # fmt: skip
        with pytest.raises(RuntimeError) as theirs:
            call(x.cpu(), y.cpu())
        with pytest.raises(RuntimeError) as ours:
            call(x, y)
        assert str(ours.value) == str(theirs.value)


def test_integers_divided_by_the_number_0_raise_as_on_the_cpu(device):
    x = torch.arange(4, device=device)
    for call in (lambda: x // 0, lambda: x % 0, lambda: torch.fmod(x, 0), lambda: torch.div(x, 0, rounding_mode="trunc")):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            call()
    assert_same(x.float() // 0, torch.arange(4).float() // 0, rtol=0, atol=0)


def test_native_count_counts_every_form(device):
    x = torch.ones(5, device=device)
    before = native_count("mul.Tensor")
    x.mul(x), x.mul_(2), torch.mul(x, x, out=torch.empty(5, device=device)), x.mul(x[:1])
    assert native_count("mul.Tensor") == before + 4


def test_the_lists_of_exceptions_only_get_shorter():
    assert all(len(x) <= limit for x, limit in ((ELSEWHERE, 4), (LAYOUT_DIFFERS, 5), (LESS_EXACT, 10), (CPU_IS_WRONG, 16)))
