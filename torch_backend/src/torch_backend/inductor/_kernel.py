"""Inductor's loops as kernels in the portable dialect, for devices that compile source. An item computes an element, or
a result of a reduction in a loop.
"""

from __future__ import annotations

import itertools

import sympy
import torch
from torch._inductor.codegen.common import CSE, DeferredLine, IndentedBuffer, PythonPrinter, RemovedArg
from torch._inductor.codegen.simd import SIMDKernel
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ._kernel_ops import RANDOM_TEXT, Overrides, Proxy, value_of
from ._kernel_reduction import Reductions
from ._kernel_text import computing, index_text, loaded, memory_type, stored, value_type, wide_index_text

KERNEL = "FUSED_NAME"  # replaced by the kernel's name once it is known


class TypedCSE(CSE):
    """Declares variables with their types."""

    def generate(self, buffer, expr, *, dtype=None, assignment=True, **options):
        if assignment and isinstance(expr, str):
            self.prefix = f"const {value_type(dtype)} "
        return super().generate(buffer, expr, dtype=dtype, assignment=assignment, **options)


class Kernel(Reductions, SIMDKernel):
    """The source of one kernel, and its launch."""

    overrides = Overrides
    suffix = ";"
    sexpr = kexpr = staticmethod(index_text)
    pexpr = staticmethod(PythonPrinter().doprint)

    def __init__(self, tiling, **options):
        super().__init__(tiling, **options)
        self.cse = TypedCSE("", self.suffix)
        self.after_loop = IndentedBuffer()  # results of reductions, and their stores
        self.kept = OrderedSet()  # variables that are used after the loop that computes them
        self.names = itertools.count()
        self.reports = False
        self.device = V.graph.get_current_device_or_throw()

    def __enter__(self):
        super().__enter__()
        self.exit_stack.enter_context(V.set_ops_handler(Proxy(self, self.overrides())))
        return self

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return memory_type(dtype)

    # ---- index values and error reports ----
    def wide_index(self, expr) -> str:
        """Returns an index expression that becomes a value."""
        return wide_index_text(self.rename_indexing(self.prepare_indexing(expr)))

    def report(self, condition: str, kind: str, value: str, bound: str) -> None:
        """Ends the item with an error of the stream if the condition is true."""
        self.reports = True
        site = "(pk_i64)PK_NO_OPERATOR * 256 + PK_NO_PLACE"
        self.compute.writeline(f"if ({condition}) {{ PK_REPORT(i64, pk_error, {kind}, {site}, {value}, {bound}); return; }}")

    def need_fp64(self, name: str) -> None:
        from ._launch import has_fp64

        if not has_fp64(self.device.index or 0):
            raise NotImplementedError(f"{self.device} does not support float64, in which '{name}' is computed; compute it outside of the compiled function")

    def check_bounds(self, expr, size, lower: bool, upper: bool) -> None:
        if not (lower or upper):
            return
        place, end = self.wide_index(expr), self.wide_index(size)
        parts = [f"({place}) < 0"] * lower + [f"({place}) >= ({end})"] * upper
        self.report(" || ".join(parts), "PK_BAD_INDEX", place, end)

    def device_assert_async(self, cond, msg) -> None:
        raise NotImplementedError("kernels of torch.compile do not support assertions with messages")

    # ---- memory ----
    @staticmethod
    def is_host_number(name: str) -> bool:
        """Returns whether a buffer is a number on the host, which is passed by value."""
        buffer = V.graph.try_get_buffer(name)
        device = None if buffer is None else buffer.get_device()
        return device is not None and device.type == "cpu"

    def load(self, name: str, index):
        pointer, dtype = self.args.input(name), V.graph.get_dtype(name)
        element = pointer if self.is_host_number(name) else f"{pointer}[{self.index_to_str(self.prepare_indexing(index))}]"
        return self.cse.generate(self.loads, loaded(element, dtype), dtype=computing(dtype), shape=())

    def _store_line(self, name: str, index, value) -> DeferredLine:
        pointer, dtype = self.args.output(name), V.graph.get_dtype(name)
        value = value_of(value)
        return DeferredLine(name, f"{pointer}[{self.index_to_str(index)}] = {stored(str(value), value.dtype, dtype)};")

    def store(self, name, index, value, mode=None) -> None:
        if mode is not None:
            raise NotImplementedError(f"kernels of torch.compile do not support the store mode '{mode}'")
        self.stores.writeline(self._store_line(name, self.prepare_indexing(index), value))

    def store_reduction(self, name, index, value) -> None:
        prior, self.inside_reduction = self.inside_reduction, False
        index = self.prepare_indexing(index)
        self.inside_reduction = prior
        self.after_loop.writeline(self._store_line(name, index, value))

    # ---- text ----
    def codegen_iteration_ranges_entry(self, entry) -> None:
        line = f"const {self.index_dtype} {entry.name} = {self.index_to_str(entry.expr)};"
        (self.indexing_code if entry.root.is_loop else self.body).writeline(line)

    def codegen_body(self) -> None:
        parts = (self.indexing_code, self.loads, self.compute, self.stores)
        if not any((*parts, self.after_loop)):
            return
        loops = [tree for tree in self.range_trees if tree.is_loop] if self.inside_reduction else []
        for tree in loops:
            end = self.numel_text(tree)
            self.body.writeline(f"for ({self.index_dtype} {tree.name} = 0; {tree.name} < {end}; {tree.name}++) {{")
        for part in parts:
            with self.body.indent(len(loops)):
                self.body.splice(part)
            part.clear()
        self.body.writeline("}" * len(loops))
        if loops:
            self.cse.invalidate(self.kept)
        for tree in loops:
            tree.cache_clear()
        self.body.splice(self.after_loop)
        self.after_loop.clear()

    @staticmethod
    def _is_static(tree) -> bool:
        return isinstance(tree.numel, (sympy.Integer, int))

    def numel_text(self, tree) -> str:
        return str(tree.numel) if self._is_static(tree) else f"{tree.prefix}numel"

    def _arguments(self):
        """Returns (letter of Kernel.launch, kind and type of pk_args.h, name in the kernel, expression at the call) of
        each argument.
        """
        result = []
        seen = OrderedSet()
        for buffer in self.args.inplace_buffers.values():
            if not isinstance(buffer, RemovedArg) and buffer.inner_name not in seen:
                seen.add(buffer.inner_name)
                outer = buffer.other_names[-1]
                result.append(("p", "BOTH", memory_type(V.graph.get_dtype(outer)), buffer.inner_name, outer))
        for outer, inner in self.args.output_buffers.items():
            if outer not in self.args.inplace_buffers and not isinstance(inner, RemovedArg):
                result.append(("p", "BOTH", memory_type(V.graph.get_dtype(outer)), inner, outer))
        for outer, inner in self.args.input_buffers.items():
            if outer in self.args.inplace_buffers:
                continue
            letter, kind = ("v", "VALUE") if self.is_host_number(outer) else ("p", "IN")
            result.append((letter, kind, memory_type(V.graph.get_dtype(outer)), inner, outer))
        for outer, inner in self.args.sizevars.items():
            is_float = isinstance(outer, sympy.Symbol) and symbol_is_type(outer, SymT.UNBACKED_FLOAT)
            V.graph.wrapper_code.ensure_size_computed(outer)
            size = V.graph.wrapper_code.codegen_sizevar(outer) if V.graph.cpp_wrapper else self.pexpr(outer)
            result.append(("f" if is_float else "i", "VALUE", "float" if is_float else "pk_i64", inner, size))
        return result

    def _numel_arguments(self):
        for tree in self.range_trees:
            if self._is_static(tree) or (tree.is_reduction and not self.features.is_reduction()):
                continue
            yield "i", "VALUE", "pk_i64", f"{tree.prefix}numel", V.graph.wrapper_code.codegen_sizevar(tree.numel)

    def letters(self) -> str:
        """Returns the description of the arguments for Kernel.launch."""
        return "".join(row[0] for row in (*self._arguments(), *self._numel_arguments()))

    def codegen_kernel(self, name: str | None = None) -> str:
        self.codegen_body()
        x = next(tree for tree in self.range_trees if not tree.is_reduction)
        rows = [f"X({kind}, {type_}, {inner})" for _, kind, type_, inner, _ in (*self._arguments(), *self._numel_arguments())]
        rows += ["X(BOTH, pk_error_t, pk_error)"] * self.reports
        code = IndentedBuffer()
        body = self.body.getvalue()
        if "fused_rand" in body:
            code.splice(RANDOM_TEXT)
        code.writeline(f"#define FUSED_ARGS(X) {', '.join(rows)}")
        code.writeline(f"PK_KERNEL({name or KERNEL}, FUSED_ARGS) {{ PK_PROLOGUE(FUSED_ARGS)")
        code.writeline(f"PK_ITEM(fused_item, {self.numel_text(x)}) {{")
        with code.indent():
            code.writeline(f"const {self.index_dtype} {x.name} = ({self.index_dtype})fused_item;")
            code.splice(self.body)
        code.writeline("}")
        code.writeline("}")
        return code.getvalue()

    def call_kernel(self, name: str, node=None, deallocate_ws: bool = True) -> None:
        wrapper = V.graph.wrapper_code
        rows = [*self._arguments(), *self._numel_arguments()]
        x = next(tree for tree in self.range_trees if not tree.is_reduction)
        units = str(x.numel) if self._is_static(x) else next(call for *_, inner, call in rows if inner == f"{x.prefix}numel")
        if V.graph.cpp_wrapper:
            wrapper.writeline(wrapper.launch(name, self.device, units, [(row[0], row[4]) for row in rows]))
        else:
            wrapper.writeline(f"{name}({', '.join([units, *(row[4] for row in rows)])})")
