"""The family of copies and conversions between dtypes (hal/ops/copy)."""
from __future__ import annotations

from dtypes import DTYPES, FLOAT8
from kernel_family import Family, Instance, runs_of


class Copy(Family):
    """Pairs of dtypes: copy_<to>_<from>_<variant>. Copies with the same bits share a kernel, which Copy.kernel names.

    float8 is converted from and to the dtypes that kernels compute as float: copy_<other>_<float8>_<variant> and
    copy_<other>_to_<float8>_<variant>.
    """

    headers = ("pk_float8.h",)

    # The dtype whose copies serve every dtype of that size.
    MOVED = {1: "u8", 2: "i16", 4: "i32", 8: "i64", 16: "c128"}

    def variants(self):
        tokens = (*DTYPES, *FLOAT8, *(f"to_{token}" for token in FLOAT8))
        return [f"{token}_{variant.name}" for token in tokens for variant in self._variants]

    def instances(self, entry):
        yield from self.float8_instances(entry)
        for to, source in dict.fromkeys(self.kernel(to, source) for to in entry.kernel.dtypes for source in entry.kernel.dtypes):
            if (to, source) == self.COMPOSED:
                continue
            prefix = f"{entry.kernel.name}_{to}_{source}_"
            macros = [("PK_PREFIX", prefix), ("PK_CLONES", "0")]
            macros += [("R", DTYPES[to].memory), ("A", DTYPES[source].memory), ("PK_CONVERT(x)", self.convert(to, source))]
            macros += self.runs(to, source)
            yield Instance(prefix, f"{self.name}_{to}", tuple(macros), self._variants)

    def float8_instances(self, entry):
        for other in (dtype for dtype in DTYPES.values() if dtype.ctype == "float"):
            get, put = f"pk_get_{other.token}" if other.element else "", f"pk_put_{other.token}" if other.element else ""
            for token in FLOAT8:
                for direction, result, operand, conversion in (("", other.memory, "pk_u8", f"{put}(pk_get_{token}(x))"),
                                                               ("to_", "pk_u8", other.memory, f"pk_put_{token}({get}(x))")):
                    prefix = f"{entry.kernel.name}_{other.token}_{direction}{token}_"
                    macros = [("PK_PREFIX", prefix), ("PK_CLONES", "0" if other.element else "1"), ("R", result), ("A", operand), ("PK_CONVERT(x)", conversion)]
                    if other.element:  # by float32's kernel, which has clones
                        way = "pk_half_to_bytes" if direction else "pk_bytes_to_half"
                        macros += runs_of(other)
                        macros += [("PK_BY_FLOAT", f"{entry.kernel.name}_f32_{direction}{token}_contig"),
                                   ("PK_CONVERT_RUN(out, a, n)", f"{way}(&PK_CAT(PK_BY_FLOAT, _entry), PK_RUNS, out, a, n)")]
                    yield Instance(prefix, f"{self.name}_float8", tuple(macros), self._variants)

    # Complex numbers of different kinds are copied as their parts, by the launcher (hal/ops/copy/copy.c).
    COMPOSED = (None, None)

    @classmethod
    def kernel(cls, to, source):
        """Returns the (to, from) of the kernel that copies `source` to `to`."""
        target, origin = DTYPES[to], DTYPES[source]
        if target.token == origin.token or (target.integer and origin.integer and target.size == origin.size):
            return cls.MOVED[target.size], cls.MOVED[target.size]
        if target.complex or origin.complex:
            parts = ("c64", "f32"), ("c128", "f64"), ("bool", "c64"), ("bool", "c128")
            return (to, source) if (to, source) in parts else cls.COMPOSED
        if target.token == "bool":
            return to, cls.MOVED[origin.size] if origin.integer else source
        # Integers wrap, so neither the sign of the target matters, nor that of a wider source. Floating numbers are
        # converted to 8 and 16 bits through 64.
        if target.integer and (not origin.floating or target.size < 4):
            return cls.MOVED[target.size], cls.MOVED[origin.size] if origin.integer and origin.size > target.size else source
        return to, source

    @staticmethod
    def runs(to, source):
        """Returns how the host converts contiguous elements between half precision and float32: hal/kernels/pk_widen.h."""
        for other, token, call in ((to, source, "widen(out, (const pk_u16 *)(a), n)"), (source, to, "narrow((pk_u16 *)(out), a, n)")):
            if other == DTYPES[token].computing == "f32":
                yield from runs_of(DTYPES[token])
                yield "PK_CONVERT_RUN(out, a, n)", f"pk_half_runs(PK_RUNS, 1)->{call}"

    @staticmethod
    def convert(to, source):
        """Returns the conversion as in torch on the CPU: to bool by != 0, floating to small integers through 64 bits."""
        target, origin = DTYPES[to], DTYPES[source]
        value = f"pk_get_{source}(x)" if origin.element else "(x)"
        if to == source:
            return value
        if target.complex:
            return f"pk_real_{to}(x)"
        if to == "bool":
            return "((x).re != 0 || (x).im != 0)" if origin.complex else f"({value} != 0)"
        if source == "bool":
            value = f"({value} != 0)"
        if origin.floating and to in ("u8", "i16", "u32"):
            return f"((R)(pk_i64){value})"
        if origin.floating and to == "u64":
            return f"pk_u64_of_double({value})"
        return f"pk_put_{to}((float){value})" if target.element else f"((R){value})"
