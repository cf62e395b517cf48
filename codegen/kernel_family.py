"""What a family of portable kernels is: a template, its variants and its instances (codegen/kernel_families.py has the families)."""
from __future__ import annotations

from dataclasses import dataclass, replace

from dtypes import DTYPES


@dataclass(frozen=True)
class Variant:
    """One kernel of an instance."""

    name: str
    unit: str  # "items" (PK_ITEM) or "groups" (PK_GROUP)
    grain: int  # fewest units worth a thread of their own
    host: bool = True  # whether there is one in host C
    simt: bool = False  # whether there is one only for devices with many threads


@dataclass(frozen=True)
class Instance:
    """One inclusion of the template: `prefix` + the name of each variant are its kernels."""

    prefix: str
    unit_file: str  # instances with the same value are compiled together
    macros: tuple  # (name, text) pairs, in order
    variants: tuple


class Family:
    """A template, its variants and its instances."""

    # Headers of hal/kernels that only this family needs.
    headers = ()

    # Computing dtypes whose instances are compiled for AVX2 and AVX-512 too.
    cloned = ("f32",)
    # The launcher makes operations on real numbers of those on complex ones (hal/src/op/parts.h).
    by_parts = False
    # The names that kernels may have, where the template knows them.
    kernels = ()
    # {kernel: launcher for devices that take no portable kernels}, where there is one.
    without_kernels = {}

    def __init__(self, name, variants, operands, scalars=0, result=None, template=None, updates=False):
        self.name = name
        self.template = template or name  # families may share one
        self._variants = tuple(variants)
        self.operands = operands  # leading tensor arguments
        self.scalars = scalars  # number arguments that follow them, at most; None = all that follow
        self.result = result  # "any" when the launcher checks the dtypes of results itself
        self.updates = updates  # kernels read what results hold, or write them in part

    def variants(self):
        """Names of the handles that the launcher asks for, in order: HAL_<FAMILY>_VARIANT_<NAME>."""
        return [variant.name for variant in self._variants]

    def instances(self, entry):
        """Returns the instances that an entry needs; several entries may need the same instance."""
        for token in (*entry.kernel.dtypes, *entry.kernel.device_dtypes):
            dtype = DTYPES[token]
            if dtype.complex and self.by_parts:
                continue
            macros = [("PK_PREFIX", f"{entry.kernel.name}_{token}_"), *dtype.macros(), ("PK_CLONES", str(self.clones(entry, dtype)))]
            macros += list(self.macros(entry, dtype))
            variants = self.instance_variants(entry, dtype)
            if token in entry.kernel.device_dtypes:
                variants = [replace(variant, host=False) for variant in variants]
            yield Instance(f"{entry.kernel.name}_{token}_", f"{self.template}_{token}", tuple(macros), tuple(variants))

    def is_cloned(self, entry, dtype):
        """Whether an instance is compiled for AVX2 and AVX-512 too."""
        return dtype.token in self.cloned

    def clones(self, entry, dtype):
        """PK_CLONES of hal/kernels/pk_host.h."""
        return int(self.is_cloned(entry, dtype))

    def macros(self, entry, dtype):
        """Further macros of an instance, as (name, text) pairs."""
        return ()

    def instance_variants(self, entry, dtype):
        """The kernels of one instance."""
        return self._variants


def runs_of(dtype):
    """Of half precision: how the host converts runs of it (hal/kernels/pk_widen.h)."""
    if dtype.element:
        yield "PK_RUNS", f"PK_RUNS_{dtype.token.upper()}"


def by_float(entry, dtype):
    """Of half precision: the kernels of float32 by which the host computes it."""
    if dtype.element:
        yield "PK_BY_FLOAT(form)", f"PK_CAT({entry.kernel.name}_{dtype.computing}_, form)"
        yield from runs_of(dtype)


class ByFloat(Family):
    """A family whose kernels on the host compute rows of half precision as float32; what does not fit is in clones."""

    cloned = ("f32", "f16", "bf16")

    def macros(self, entry, dtype):
        yield from by_float(entry, dtype)
