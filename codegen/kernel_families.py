"""The families of portable kernels: which instances of hal/ops/<family>/<family>.pk exist, and with which macros.

To add a family, write hal/ops/<family>/ (hal/kernels/README.md; the declaration of hal_op_launch_<family> is
generated), then register a Family below. Most need one line: `Family("gemm", [Variant("nn", "groups", 1), ...],
operands=2, scalars=2)`. For each entry and computing dtype this defines one instance with the macros of
Family.instances and the kernels <kernel>_<dtype>_<variant>. Entries whose kernels have the same name share it.
Override `macros` for further macros.
"""
from __future__ import annotations

import re

from dtypes import DTYPES
from kernel_copy import Copy
from kernel_family import ByFloat, Family, Instance, Variant, by_float, runs_of


# An expression of sums and products only: computed modulo 2^n in an unsigned type, because torch's integers wrap.
_RING = re.compile(r"[abcs01\s+\-*()~&|^]+")
# Functions that take tens of instructions; others take more, so a thread needs fewer elements.
_FAST_FUNCTIONS = "abs|sign|maximum|minimum|fmax|fmin|sqrt|floor|ceil|trunc|rint|is_nan|is_inf|signbit|copysign|choose"
_SLOW = re.compile(rf"pk_(?!({_FAST_FUNCTIONS})\b)\w+|/")
# Functions of float that are branch-free for some operands only: PK_NEAR (hal/kernels/pk_float.h, pk_angle.h).
_NEAR = {re.compile(r"pk_(sin|cos|tan)\(a\)"): ("x", "pk_is_near(x)"), re.compile(r"pk_(fmod|remainder|div_floor)\(a, b\)"): ("x, y", "PK_IS_CLOSE(x, y)")}
# Functions whose loop is not vectorized if an operand is a number that is the same in all iterations: the number is
# repeated as a vector.
_RUN_OF_NUMBERS = {"pow"}


class Elementwise(Family):
    """Unary, binary and ternary operators: a scalar expression over a, b, c and s0, s1, s2.

    PK_V is the type of the values in the expression, R that of the result in memory, PK_EXPR the expression. The
    numbers are one argument of type PK_S: a T, or for several numbers a PK_NUMBERS. Complex numbers, rare operators
    and, on the host, half precision have the row variants only, which also serve dense operands. On the host, half
    precision uses PK_BY_FLOAT: float32's kernel between conversions (hal/kernels/pk_widen.h).
    """

    headers = ("pk_special.h", "pk_single.h")

    # Maximum number of numbers of an operator: HAL_OP_ELEMENTWISE_NUMBERS of hal/ops/elementwise/elementwise.h.
    MOST_NUMBERS = 3

    def is_cloned(self, entry, dtype):
        """Of float64 those of one operand, whose functions are computed by many instructions (pk_float64.h)."""
        if entry.kernel.for_size:
            return False
        by_element = dtype.element != "" and not self.is_by_float(entry, dtype)
        return super().is_cloned(entry, dtype) or by_element or (dtype.token == "f64" and entry.kernel.family == "unary")

    @staticmethod
    def is_by_float(entry, dtype):
        """Returns whether the host computes it by float32's kernel. Sums and products of bfloat16 are faster without a
        copy in memory, because compilers vectorize its short conversions.
        """
        ring = entry.kernel.result_dtype == "same" and _RING.fullmatch(entry.kernel.expr.replace("/", "*"))
        return bool(dtype.element) and not entry.kernel.for_size and "half" not in entry.kernel.exprs and not (ring and dtype.token == "bf16")

    def macros(self, entry, dtype):
        kernel = entry.kernel
        expr = kernel.exprs.get("complex" if dtype.complex else dtype.token) or kernel.expr
        value = dtype.ring if _RING.fullmatch(expr) else dtype.ctype
        result = DTYPES[{"bool": "bool", "real": dtype.real}.get(entry.kernel.result_dtype, dtype.token)]
        plain = "(x)" if dtype.complex else None  # no casts between structs
        yield "R", result.memory
        if dtype.element and "half" in kernel.exprs:
            expr = kernel.exprs["half"]
            yield "PK_V", "pk_u32"
            yield "PK_LOAD(x)", "((pk_u32)(x).bits)"
            yield "PK_NUMBER(x)", "((pk_u32)PK_PUT((T)(x)).bits)"
            yield "PK_STORE(x)", f"pk_of_bits_{dtype.token}(x)"
        else:
            yield "PK_V", value
            yield "PK_LOAD(x)", plain or ("((x) != 0)" if dtype.token == "bool" else "((PK_V)PK_GET(x))")
            yield "PK_NUMBER(x)", plain or ("((x) != 0)" if dtype.token == "bool" else "((PK_V)(x))")
            yield "PK_STORE(x)", "((x) != 0)" if result.token == "bool" else plain or "PK_PUT((T)(x))"
        yield from self.numbers(entry, dtype)
        yield "PK_RARE", "1" if entry.kernel.for_size else "0"
        if self.is_by_float(entry, dtype):
            yield from by_float(entry, dtype)
        yield "PK_NUMBER_FORM", "1" if entry.scalar_args and not entry.kernel.for_size else "0"
        yield "PK_EXPR", f"({expr})"
        yield from self.near(entry, dtype, expr)

    @staticmethod
    def near(entry, dtype, expr):
        """Returns the variant for some operands only, and whether a number is passed as a repeated vector."""
        nears = [(pattern.fullmatch(expr), *rest) for pattern, rest in _NEAR.items() if dtype.token == "f32"]
        for near, operands, condition in nears:
            if near:
                yield f"PK_NEAR({operands})", condition
                yield f"PK_EXPR_NEAR({operands})", f"pk_{near[1]}_near({operands})"
        if dtype.floating and (entry.kernel.name in _RUN_OF_NUMBERS or any(near and "," in operands for near, operands, _ in nears)):
            yield "PK_RUN_OF_NUMBERS", "1"

    def numbers(self, entry, dtype):
        """Returns the type of the numbers' argument, and each of them."""
        count = len(entry.args) - self.operands
        if count > self.MOST_NUMBERS:
            raise entry.at("args").error(f"lists {count} numbers: kernels take at most {self.MOST_NUMBERS}")
        yield "PK_S", f"pk_numbers_{dtype.computing or dtype.token}" if count > 1 else "T"
        none = "pk_none(T)" if dtype.complex else "((T)0)"
        for i in range(self.MOST_NUMBERS):
            yield f"PK_S{i}(s)", f"((s).number[{i}])" if count > 1 else ("(s)", none, none)[i]

    def instance_variants(self, entry, dtype):
        slow = 8 if _SLOW.search(entry.kernel.expr) and dtype.floating else 1
        rows_only = entry.kernel.for_size or dtype.complex
        kept = [v for v in self._variants if v.name.startswith("rows") or not rows_only]
        kept = [v for v in kept if not v.name.endswith("_s") or (entry.scalar_args and not entry.kernel.for_size)]
        return tuple(Variant(v.name, v.unit, max(1, v.grain // slow), host=v.name.startswith("rows") or not dtype.element) for v in kept)


# How the operators of the families reduce and reduce_pair accumulate: the contribution of an element (x of a, y of b, z
# of c, the operator's number s0), the combination of contributions, the start value by name, the final computation from
# the result of n elements.
_SUMS = {"combine": "((x) + (y))", "first": "zero", "fold": "PK_FOLD_SUM(t)"}
_LARGEST = {"combine": "pk_maximum(x, y)", "first": "lowest", "fold": "PK_FOLD_MAXIMUM(t)"}
_SMALLEST = {"combine": "pk_minimum(x, y)", "first": "highest", "fold": "PK_FOLD_MINIMUM(t)"}
_REDUCTIONS = {
    "sum": {**_SUMS},
    "mean": {**_SUMS, "finish": "((x) / (T)(n))"},
    "nansum": {**_SUMS, "map": "((x) == (x) ? (x) : PK_C(0.0))"},
    "count": {**_SUMS},
    "prod": {"combine": "((x) * (y))", "first": "one"},
    "any": {"combine": "((x) | (y))", "first": "zero"},
    "all": {"combine": "((x) & (y))", "first": "one"},
    "amax": _LARGEST,
    "amin": _SMALLEST,
    "norm_zero": {**_SUMS, "map": "((x) != PK_C(0.0) ? PK_C(1.0) : PK_C(0.0))"},
    "norm_one": {**_SUMS, "map": "pk_abs(x)"},
    "norm_two": {**_SUMS, "map": "((x) * (x))", "finish": "pk_sqrt(x)"},
    "norm_p": {**_SUMS, "map": "pk_pow(pk_abs(x), s0)", "finish": "pk_pow(x, PK_C(1.0) / s0)"},
    "norm_largest": {**_LARGEST, "map": "pk_abs(x)", "first": "zero"},
    "norm_smallest": {**_SMALLEST, "map": "pk_abs(x)"},
    "dot": {**_SUMS, "map": "((x) * ((y) - (z)))"},
    # Halves, scaled before they are added: neither a difference nor a partial sum overflows unless the mean does.
    "mean_about": {**_SUMS, "map": "((void)(y), ((x) * PK_C(0.5) - (z) * PK_C(0.5)) * (PK_C(2.0) / s0))"},
    "var": {**_SUMS, "map": "((void)(y), ((x) - (z)) * ((x) - (z)))", "finish": "((x) / s0)"},
    "std": {**_SUMS, "map": "((void)(y), ((x) - (z)) * ((x) - (z)))", "finish": "pk_sqrt((x) / s0)"},
}


class Reduce(Family):
    """Reductions over one dimension: PK_A is the accumulator; PK_INIT, PK_MAP, PK_COMBINE and PK_FINISH define the
    operator (reduce.pk).
    """

    cloned = ("f32", "f16", "bf16")
    headers = ("pk_segment.h",)
    kernels = tuple(_REDUCTIONS)
    parameters = "x"
    by_parts = True

    def is_cloned(self, entry, dtype):
        """The time of norm_p is that of pow, a call for each element in every instruction set."""
        return entry.kernel.name != "norm_p" and super().is_cloned(entry, dtype)

    def macros(self, entry, dtype):
        yield from runs_of(dtype)
        row = _REDUCTIONS[entry.kernel.name]
        result = DTYPES["i64"] if entry.kernel.name == "count" else dtype
        computing = DTYPES["i64"] if entry.kernel.name == "count" else DTYPES[dtype.computing or dtype.token]
        ring = row["combine"] in ("((x) + (y))", "((x) * (y))")
        yield "PK_A", computing.ring if ring else computing.ctype
        yield "PK_INIT", self.first(row["first"], computing)
        yield f"PK_MAP({self.parameters})", row.get("map", "(x)")
        yield "PK_COMBINE(x, y)", row["combine"]
        yield "PK_FOLD_ROW(t)", row["fold"] if computing.floating and "fold" in row else "PK_FOLD(t, PK_COMBINE)"
        yield "PK_FINISH(x, n)", row.get("finish", "(x)")
        yield "PK_R", result.element or result.ctype
        yield "PK_PUT_R(x)", f"pk_put_{result.token}(x)" if result.element else "((PK_R)(x))"

    @staticmethod
    def first(name, dtype):
        """Returns the neutral value, by name."""
        if name in ("zero", "one"):
            return f"((PK_A){int(name == 'one')})"
        if dtype.floating:
            return f"({'-' if name == 'lowest' else ''}(PK_C(1.0) / PK_C(0.0)))"
        low, high = (-(1 << 8 * dtype.size - 1), (1 << 8 * dtype.size - 1) - 1) if dtype.token != "u8" else (0, 255)
        if name == "highest":
            return f"((T){high})"
        return f"((T)({low + 1}) - (T)1)" if low else "((T)0)"


class ReducePair(Reduce):
    """The same for two tensors and a number per output (reduce_pair.pk)."""

    parameters = "x, y, z"


class Composite(Family):
    """Operators without their own kernels: the launcher runs other operators."""

    def __init__(self, name, operands):
        super().__init__(name, (), operands, result="any")

    def instances(self, entry):
        return ()


class ReduceIndex(Family):
    """Maximum or minimum with its index: PK_BETTER(v, x) compares, PK_NAN(x) detects NaN."""

    kernels = ("max", "min", "argmax", "argmin")

    def macros(self, entry, dtype):
        yield "PK_BETTER(v, x)", "((v) > (x))" if entry.kernel.name in ("max", "argmax") else "((v) < (x))"
        yield "PK_NAN(x)", "((x) != (x))" if dtype.floating else "0"


class Softmax(ByFloat):
    """softmax and log_softmax, forward and backward."""

    def macros(self, entry, dtype):
        yield from super().macros(entry, dtype)
        yield "PK_IS_LOG", "1" if entry.kernel.name.startswith("log") else "0"


class BatchNorm(Family):
    """Normalization of the channels of a batch, forward and backward."""

    cloned = ("f32", "f16", "bf16")


class Random(Family):
    """Random numbers: one template, one distribution per kernel."""

    kernels = ("uniform", "normal", "bernoulli", "exponential", "geometric", "cauchy", "log_normal", "random")
    # As far as random_fill supports them
    without_kernels = dict.fromkeys(("uniform", "normal", "bernoulli"), "hal_op_fill_random")

    def macros(self, entry, dtype):
        for name in self.kernels:
            yield f"PK_{name.upper()}", "1" if entry.kernel.name == name else "0"


class Scatter(Family):
    """Elements combined at the positions of an index: PK_RING computes sums and products."""

    def macros(self, entry, dtype):
        yield "PK_RING", dtype.ring


class Scan(Family):
    """Running sums and similar (scan.pk)."""

    kernels = ("cumsum", "cumprod", "logcumsumexp")

    def macros(self, entry, dtype):
        yield "PK_IS_LOG", "1" if entry.kernel.name == "logcumsumexp" else "0"
        yield "PK_WIDE", "double" if dtype.floating else dtype.ring
        first = {"cumsum": "0", "cumprod": "1"}.get(entry.kernel.name, "(-(PK_C(1.0) / PK_C(0.0)))")
        yield "PK_FIRST", f"PK_WIDEN({first})"
        yield "PK_STEP(x, y)", {"cumsum": "((x) + (y))", "cumprod": "((x) * (y))"}.get(entry.kernel.name, "PK_NAME(join)(x, y)")


class Check(Family):
    """Checks an operand for invalid values: PK_EXPR is true for valid ones, PK_KIND is the kind of error to report."""

    KINDS = {"check_divisor": "PK_BAD_DIVISOR", "check_probability": "PK_BAD_PROBABILITY"}
    kernels = tuple(KINDS)

    def macros(self, entry, dtype):
        yield "PK_EXPR", f"({entry.kernel.expr})"
        yield "PK_KIND", self.KINDS[entry.kernel.name]


class ScanIndex(Family):
    """Running maxima or minima with their indices: PK_TAKES(v, x) compares, PK_NAN(x) detects NaN."""

    kernels = ("cummax", "cummin")

    def macros(self, entry, dtype):
        yield "PK_TAKES(v, x)", "((v) >= (x))" if entry.kernel.name == "cummax" else "((v) <= (x))"
        yield "PK_NAN(x)", "((x) != (x))" if dtype.floating else "0"


class Sort(Family):
    """Sorting by radix, and the first k of the order: PK_KEY(x) is an unsigned 64-bit number with the order of the
    elements, which differ in the PK_TOPK_SHIFT + 8 lower bits.
    """

    def macros(self, entry, dtype):
        yield "PK_KEY(x)", f"pk_key_{dtype.token}(x)"
        yield "PK_TOPK_KEY", "pk_u32" if dtype.size == 4 else "pk_u64"
        yield "PK_TOPK_SHIFT", str(8 * dtype.size - 8)


class Optimizer(Family):
    """One step of an optimizer: one template, one algorithm per kernel."""

    kernels = ("adam", "sgd", "adagrad")
    cloned = ("f32", "f64", "f16", "bf16")

    def macros(self, entry, dtype):
        for name in self.kernels:
            yield f"PK_{name.upper()}", "1" if entry.kernel.name == name else "0"


class LstmCell(Family):
    """The pointwise part of a step of an LSTM or of a GRU, forward and backward."""

    headers = ("pk_single.h",)


class Gemm(Family):
    """Matrix products: the inner loops need fused multiply-adds and wide registers, in both dtypes."""

    cloned = ("f32", "f64", "f16", "bf16")
    by_parts = True

    def clones(self, entry, dtype):
        """Returns the clones; for bfloat16 also one with the processor's dot products of pairs."""
        return 2 if dtype.token == "bf16" else super().clones(entry, dtype)

    def instance_variants(self, entry, dtype):
        """Returns the variants; half precision has no kernel for a row vector."""
        return [v for v in self._variants if v.name != "vector" or not dtype.element]


class PackedGemm(Family):
    """Products with weights of 4 or 8 bits, on the host by float32's engine of matrix products."""

    cloned = ("f32", "f16", "bf16")

    def macros(self, entry, dtype):
        yield from runs_of(dtype)


class Dequantize(Family):
    """Elements of 4 and 8 bits in blocks with scales, as float32."""

    headers = ("pk_float8.h",)


class IntGemm(Family):
    """Products of 8-bit integers: with vectors of 16-bit factors, and with the processor's products of four bytes."""

    def clones(self, entry, dtype):
        return 3


class Convolution(Family):
    """Convolutions: matrix products, as those of Gemm."""

    cloned = ("f32", "f64")


class Attention(Family):
    """Scaled dot product attention and its gradients: matrix products, and exponentials of float32."""

    cloned = ("f32", "f64")


class Sequence(Family):
    """Numbers computed from their index: PK_SUM is the type in which start and step are added."""

    def macros(self, entry, dtype):
        yield "PK_SUM", "pk_double" if dtype.floating else "pk_u64"
        yield from (("PK_IS_FLOATING", str(int(dtype.floating))), ("PK_IS_POWER", str(int(entry.kernel.name == "logspace"))))


class Complex(Family):
    """Complex numbers are computed as their parts."""

    by_parts = True


class ResampleMap(Family):
    """Maps that are defined by a few numbers: tables for the kernels of resample."""

    cloned = ()


class Triangle(Family):
    """The lower or the upper triangle of matrices."""

    def macros(self, entry, dtype):
        yield "PK_LOWER", "1" if entry.kernel.name.startswith("tril") else "0"


# Minimum number of elements for a thread: about 5 us of memory traffic. An item of a row variant is a block of 1024
# elements on the host.
_ITEMS, _BLOCKS = 32768, 32

# Launchers size groups and items by their work (hal_op_units_per_group), so one is enough for a thread.
_NLL = [Variant("each", "items", 4096), Variant("sums", "groups", 1), Variant("finish", "groups", 1), Variant("backward", "items", 256)]
_LAYER_NORM = [Variant(name, "groups", 1) for name in ("forward", "backward", "columns")]
_LSTM_CELL = [Variant(name, "items", 1) for name in ("forward", "backward")]
_ATTENTION = [Variant(name, "groups", 1) for name in ("forward", "normalizers", "backward")]
_ROWS_COLS = [Variant(name, "groups", 1) for name in ("rows", "cols")]
_BATCH_NORM = [Variant(name, "groups", 1) for name in ("planes_moments", "columns_moments", "statistics", "planes_normalise",
               "columns_normalise", "planes_sums", "columns_sums", "gradients", "planes_backward", "columns_backward")]
_STAGES = [Variant(name + suffix, "items" if name == "strided" else "groups", 1)
           for suffix in ("", "_more") for name in ("rows", "cols", "strided")]

FAMILIES = {
    family.name: family
    for family in (
        Family("fill", [Variant("contig", "items", _ITEMS), Variant("rows", "items", _BLOCKS)], operands=0, scalars=1),
        Copy("copy", [Variant("contig", "items", _ITEMS), Variant("rows", "items", _BLOCKS)], operands=1, result="any"),
        Elementwise("unary", [Variant("contig", "items", _ITEMS), Variant("rows", "items", _BLOCKS)], operands=1, scalars=None),
        Elementwise("binary", [Variant("contig", "items", _ITEMS), Variant("contig_s", "items", _ITEMS),
                               Variant("rows", "items", _BLOCKS), Variant("rows_s", "items", _BLOCKS)],
                    operands=2, scalars=None),
        Elementwise("ternary", [Variant("contig", "items", _ITEMS), Variant("rows", "items", _BLOCKS)], operands=3, scalars=None),
        Family("where", [Variant("contig", "items", _ITEMS), Variant("rows", "items", _BLOCKS)], operands=3, result="any"),
        Reduce("reduce", _STAGES, operands=1, result="any"),
        ReducePair("reduce_pair", _STAGES, operands=3, result="any"),
        Composite("norm", operands=1),
        Composite("moments", operands=1),
        Composite("aminmax", operands=1),
        ByFloat("layer_norm", _LAYER_NORM, operands=1, result="any"),
        ByFloat("layer_norm_backward", _LAYER_NORM, operands=1, result="any", template="layer_norm"),
        LstmCell("lstm_cell", _LSTM_CELL, operands=3, result="any"),
        LstmCell("lstm_cell_backward", _LSTM_CELL, operands=0, result="any", template="lstm_cell"),
        LstmCell("gru_cell", _LSTM_CELL, operands=3, result="any"),
        LstmCell("gru_cell_backward", _LSTM_CELL, operands=0, result="any", template="gru_cell"),
        BatchNorm("batch_norm", _BATCH_NORM, operands=1, result="any"),
        BatchNorm("batch_norm_backward", _BATCH_NORM, operands=2, result="any", template="batch_norm"),
        Family("nll", _NLL, operands=1, result="any"),
        Family("nll_backward", _NLL, operands=1, result="any", template="nll"),
        ReduceIndex("reduce_index", [*_ROWS_COLS, Variant("merge", "items", 16)], operands=1, result="any"),
        Softmax("softmax", _ROWS_COLS, operands=1),
        Softmax("softmax_backward", _ROWS_COLS, operands=2),
        Random("random", [Variant("blocks", "groups", 1)], operands=0, scalars=None),
        Family("dropout", [Variant("blocks", "groups", 1)], operands=1, scalars=1),
        Family("permutation", [Variant("swaps", "items", 1), Variant("rounds", "items", _ITEMS // 32)], operands=0, scalars=0),
        Sequence("sequence", [Variant("contig", "items", _ITEMS // 4)], operands=0, scalars=None),
        Triangle("triangle", [Variant("rows", "items", 64)], operands=1),
        Triangle("triangle_indices", [Variant("rows", "items", 64)], operands=0, scalars=None),
        Family("resample", [Variant("lines", "items", 16), Variant("planes", "items", 64)], operands=4, scalars=1, result="any"),
        ResampleMap("resample_map", [Variant("tables", "items", 256)], operands=1, result="any"),
        Family("pad", [Variant("rows", "items", 64)], operands=1, result="any"),
        Complex("pad_backward", [Variant("rows", "items", 64)], operands=1, result="any"),
        Family("max_pool", [Variant("rows", "items", 16)], operands=1, scalars=0, result="any"),
        Family("max_pool_backward", [Variant("rows", "items", 1)], operands=2, scalars=0, result="any"),
        Family("columns", [Variant("unfold", "items", 64), Variant("fold", "items", 16)], operands=1, scalars=0),
        Convolution("convolution", [Variant("tiles", "groups", 1), Variant("turn", "items", 8), Variant("slope", "groups", 1),
                                    Variant("planes", "items", 4), Variant("planes_slope", "items", 1)], operands=2, scalars=0),
        Attention("attention", _ATTENTION, operands=3, result="any"),
        Attention("attention_backward", _ATTENTION, operands=4, result="any", template="attention"),
        Gemm("gemm", [Variant("tiles", "groups", 1), Variant("vector", "groups", 1), Variant("pack", "items", 1, host=False),
                      Variant("large", "groups", 1, host=False, simt=True)], operands=2),
        PackedGemm("packed_gemm", [Variant("tiles", "groups", 1)], operands=1),
        IntGemm("int_gemm", [Variant("tiles", "groups", 1)], operands=2, result="any"),
        Dequantize("dequantize", [Variant("blocks", "items", 2048)], operands=2, scalars=2, result="any"),
        Family("take", [Variant("rows", "items", _BLOCKS // 4)], operands=1, result="any"),
        Family("index_offset", [Variant("rows", "items", _BLOCKS), Variant("keys", "items", 1, host=False, simt=True)], operands=1, result="any", updates=True),
        Check("check", [Variant("rows", "items", _BLOCKS)], operands=1, result="any"),
        Family("scatter", [Variant("columns", "items", 1), Variant("last", "items", 1, host=False, simt=True)], operands=0, result="any", updates=True),
        Scatter("scatter_reduce", [Variant(name + form, "items", 1, host=not form, simt=bool(form)) for form in ("", "_runs", "_ends")
                                   for name in ("sum", "prod", "amax", "amin")], operands=0, result="any", updates=True),
        Family("nonzero", [Variant("tally", "items", 8), Variant("offsets", "items", 1), Variant("write", "items", 8)], operands=1, result="any"),
        Scan("scan", [Variant("totals", "items", 1), Variant("prefix", "items", 64), Variant("rows", "items", 1)], operands=1, result="any"),
        ScanIndex("scan_index", [Variant("rows", "items", 16)], operands=1, result="any"),
        Sort("sort", [Variant(name, "groups" if name == "offsets" else "items", 1) for name in "keys tally offsets move merge values pick choose".split()], operands=1, result="any"),
        Family("search", [Variant("rows", "items", 1024)], operands=2, result="any"),
        Family("unscale", [Variant("rows", "items", _BLOCKS)], operands=0, result="any", updates=True),
        Optimizer("optimizer", [Variant("dense", "groups", 1)], operands=0, result="any", updates=True),
    )
}
