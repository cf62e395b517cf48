"""Defines a family of portable kernels: a template, its variants and its instances (codegen/kernel_families.py has the
families).
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from dtypes import DTYPES


@dataclass(frozen=True)
class Variant:
    """One kernel of an instance."""

    name: str
    unit: str  # "items" (PK_ITEM) or "groups" (PK_GROUP)
    grain: int  # minimum number of units for a separate thread
    host: bool = True  # whether there is one in host C
    simt: bool = False  # whether it exists only for devices with many threads


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

    # Computing dtypes whose instances are also compiled for AVX2 and AVX-512.
    cloned = ("f32",)
    # The launcher splits operations on complex numbers into operations on real ones (hal/src/op/parts.h).
    by_parts = False
    # The names that kernels may have, if the template defines them.
    kernels = ()
    # {kernel: launcher for devices that do not support portable kernels}, if there is one.
    without_kernels = {}

    def __init__(self, name, variants, operands, scalars=0, result=None, template=None, updates=False):
        self.name = name
        self.template = template or name  # families may share one
        self._variants = tuple(variants)
        self.operands = operands  # leading tensor arguments
        self.scalars = scalars  # maximum number of number arguments that follow them; None = all that follow
        self.result = result  # "any" if the launcher checks the dtypes of results itself
        self.updates = updates  # kernels read the previous values of results, or write them in part

    def variants(self):
        """Returns the names of the handles that the launcher uses, in order: HAL_<FAMILY>_VARIANT_<NAME>."""
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
        """Returns whether an instance is also compiled for AVX2 and AVX-512."""
        return dtype.token in self.cloned

    def clones(self, entry, dtype):
        """Returns PK_CLONES of hal/kernels/pk_host.h."""
        return int(self.is_cloned(entry, dtype))

    def macros(self, entry, dtype):
        """Returns further macros of an instance, as (name, text) pairs."""
        return ()

    def instance_variants(self, entry, dtype):
        """Returns the kernels of one instance."""
        return self._variants


def runs_of(dtype):
    """For half precision: returns how the host converts runs of it (hal/kernels/pk_widen.h)."""
    if dtype.element:
        yield "PK_RUNS", f"PK_RUNS_{dtype.token.upper()}"


def by_float(entry, dtype):
    """For half precision: returns the kernels of float32 by which the host computes it."""
    if dtype.element:
        yield "PK_BY_FLOAT(form)", f"PK_CAT({entry.kernel.name}_{dtype.computing}_, form)"
        yield from runs_of(dtype)


class ByFloat(Family):
    """A family whose kernels on the host compute rows of half precision as float32; exceptions are in `clones`."""

    cloned = ("f32", "f16", "bf16")

    def macros(self, entry, dtype):
        yield from by_float(entry, dtype)
