"""The dtypes of the portable kernels, and the sets of them that operator entries name. Pure Python, no torch."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    """A dtype of the portable kernels."""

    token: str  # in kernel names
    number: int  # hal_dtype_t, which is c10::ScalarType
    ctype: str  # in the kernel dialect: the type that kernels compute in
    ring: str  # type in which + - * ~ wrap without undefined behavior
    size: int  # of an element in memory
    computing: str = ""  # token of the dtype whose functions compute it, if that differs
    element: str = ""  # type of an element in memory, if that differs

    def macros(self):
        """Returns the macros of the dtype for every instance of a kernel, as (name, text) pairs."""
        yield "PK_TOKEN", self.computing or self.token
        yield "T", self.ctype
        yield "E", self.memory
        yield "PK_WIDENED", "1" if self.element else "0"
        yield "PK_IS_COMPLEX", "1" if self.complex else "0"
        yield "PK_GET(x)", f"pk_get_{self.token}(x)" if self.element else "(x)"
        yield "PK_PUT(x)", f"pk_put_{self.token}(x)" if self.element else "(x)"
        yield f"PK_IS_{self.token.upper()}", "1"

    @property
    def floating(self):
        return self.token in ("f16", "bf16", "f32", "f64")

    @property
    def complex(self):
        return self.token in ("c64", "c128")

    @property
    def real(self):
        """Returns the token of the dtype of a part of a complex number; for another dtype its own."""
        return {"c64": "f32", "c128": "f64"}.get(self.token, self.token)

    @property
    def integer(self):
        """Returns whether it is an integer type; bool is not."""
        return self.token[0] in "ui"

    @property
    def memory(self):
        """Returns the type of an element in memory."""
        return self.element or self.ctype


# In the order of the HAL's handle cache (HAL_OP_DTYPE_SLOTS).
DTYPES = {
    d.token: d
    for d in (
        Dtype("u8", 0, "pk_u8", "pk_u8", 1),
        Dtype("i8", 1, "pk_i8", "pk_i8", 1),
        Dtype("i16", 2, "pk_i16", "pk_i16", 2),  # promoted to 32 bits: no overflow in a + s0 * b
        Dtype("i32", 3, "pk_i32", "pk_u32", 4),
        Dtype("i64", 4, "pk_i64", "pk_u64", 8),
        Dtype("f32", 6, "float", "float", 4),
        Dtype("f64", 7, "double", "double", 8),
        Dtype("bool", 11, "pk_bool", "pk_bool", 1),
        Dtype("f16", 5, "float", "float", 2, computing="f32", element="pk_f16"),
        Dtype("bf16", 15, "float", "float", 2, computing="f32", element="pk_bf16"),
        Dtype("c64", 9, "pk_c64", "pk_c64", 8),
        Dtype("c128", 10, "pk_c128", "pk_c128", 16),
        Dtype("u16", 27, "pk_u16", "pk_u16", 2),
        Dtype("u32", 28, "pk_u32", "pk_u32", 4),
        Dtype("u64", 29, "pk_u64", "pk_u64", 8),
    )
}

# Dtypes that kernels only copy and convert: token in kernel names, and number (hal_dtype_t). hal/kernels/pk_float8.h.
FLOAT8 = {"e5m2": 23, "e4m3fn": 24, "e5m2fnuz": 25, "e4m3fnuz": 26, "e8m0fnu": 44}

# Torch's names of the dtypes, as operator entries write them.
TORCH_NAMES = {
    "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128", "bool": "bool",
}  # fmt: skip

_FLOATING, _HALF, _COMPLEX, _INTEGRAL = ("f32", "f64"), ("f16", "bf16"), ("c64", "c128"), ("i64", "i32", "i16", "i8", "u8")

# The sets that `dtypes` of an entry may name, with the names of torch.testing's common_dtype: "floating" is float32 and
# float64, "half" is float16 and bfloat16, "all_types" are the floating and the integral ones.
DTYPE_SETS = {
    "floating": _FLOATING,
    "floating_and_half": _FLOATING + _HALF,
    "floating_and_complex": _FLOATING + _COMPLEX,
    "floating_half_and_complex": _FLOATING + _HALF + _COMPLEX,
    "floating_half_and_int64": (*_FLOATING, *_HALF, "i64"),
    "floating_half_complex_and_int64": (*_FLOATING, *_HALF, *_COMPLEX, "i64"),
    "signed": (*_FLOATING, "i64", "i32"),
    "signed_and_half": (*_FLOATING, *_HALF, "i64", "i32"),
    "signed_half_and_complex": (*_FLOATING, *_HALF, *_COMPLEX, "i64", "i32"),
    "integral": _INTEGRAL,
    "integral_and_bool": (*_INTEGRAL, "bool"),
    "all_types_and_bool": (*_FLOATING, *_INTEGRAL, "bool"),
    "all_types_and_half": _FLOATING + _HALF + _INTEGRAL,
    "all_types_half_and_bool": (*_FLOATING, *_HALF, *_INTEGRAL, "bool"),
    "all_types_half_and_complex": _FLOATING + _HALF + _COMPLEX + _INTEGRAL,
    "all_types_half_complex_and_bool": (*_FLOATING, *_HALF, *_COMPLEX, *_INTEGRAL, "bool"),
    # Narrower dtypes are cast to one of these before the call.
    "widest": ("f32", "f64", "i64"),
    "widest_and_bool": ("f32", "f64", "i64", "bool"),
    # By the size of an element: kernels that move elements and do not compute (dtype policy `element_size`).
    "element_size": ("u8", "i16", "i32", "i64"),
    "element_size_to_16": ("u8", "i16", "i32", "i64", "c128"),
    "every": tuple(DTYPES),
}
