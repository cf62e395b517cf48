"""The generator of ATen registrations: its output from the operator entries for the installed PyTorch, and its behavior
with a PyTorch that lacks an operator or has changed it. Invalid entries: test_entries.py."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest
import torch
from native_reference import CODEGEN, load_model, overload

MODEL = load_model()
GENERATED = [(operator, native) for operator, native in MODEL.overloads()]
NAMES = [str(native.func.name) for _, native in GENERATED]
TORCH_DTYPES = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
                7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16}  # fmt: skip


@pytest.fixture(scope="module")
def codegen():
    """The generator's modules."""
    sys.path.insert(0, str(CODEGEN))
    import aten
    import aten_model
    import aten_natives
    import aten_sources
    import entries
    import kernel_operands
    from entry_file import EntryError

    yield type("codegen", (), {"aten": aten, "model": aten_model, "entries": entries, "EntryError": EntryError, "Natives": aten_natives.Natives,
                               "Sources": aten_sources.Sources, "operands": kernel_operands})
    sys.path.remove(str(CODEGEN))


def generate(folder, *arguments):
    command = [sys.executable, "-B", str(CODEGEN / "aten.py"), "--out", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def test_every_entry_is_registered_for_the_installed_torch():
    """All entries except those that name other versions of PyTorch."""
    assert [entry.name for entry in MODEL.left_out if not entry.torch] == []
    registered = {operator.entry.name for operator, _ in MODEL.overloads()} | {entry.name for entry in MODEL.left_out}
    assert [entry.name for entry in MODEL.entries if entry.register != "none" and entry.name not in registered] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_overload_is_registered_for_the_device(name):
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "PrivateUse1")


def test_numbers_and_arguments_are_those_of_the_golden_file(codegen):
    """Plugins were built against them: an operator keeps its number and its arguments; a new one gets the next number.
    """
    golden = (CODEGEN.parent / "hal" / "abi" / "v0_operators.txt").read_text().splitlines()
    lines = []
    for entry in codegen.entries.load():
        arguments = ", ".join(f"{name}|Scalar" if name in entry.scalar_args else name for name in entry.args)
        lines.append(f"{entry.number} {entry.name} ({'; '.join([arguments, ', '.join(entry.vendor_args)] if entry.vendor_args else [arguments])})")
    assert lines[: len(golden)] == golden


def test_functional_inplace_and_out_overloads_come_together():
    """An overload that PyTorch has and the entries omit would use a slower path without a warning."""
    for operator in MODEL.kernels:
        group = operator.group
        assert [native for native in (group.functional, group.inplace, group.out) if native] == operator.natives
        assert len(operator.natives) >= 2


@pytest.mark.parametrize("op", [op for op in MODEL.kernels if op.entry.is_elementwise and not op.entry.kernel.for_size], ids=lambda op: op.name)
def test_fast_path_dtypes_are_those_torch_computes_in(op, codegen):
    """The fast path skips ATen's promotion and checks: for each of its dtypes, the result of CPU PyTorch must have that
    dtype (or bool)."""
    mask = codegen.model.fast_dtypes(op)
    for number in range(64):
        if not mask >> number & 1:
            continue
        dtype = TORCH_DTYPES[number]
        arguments, keywords = [], {}
        keyword_only = {a.name for a in op.group.functional.func.arguments.flat_kwarg_only}
        texts = {"rounding_mode": "trunc", "approximate": "none", "reduction": 0, "is_result": False, "self_is_result": False}
        for argument in op.group.functional.func.arguments.flat_all:
            given = torch.ones(2, dtype=dtype) if str(argument.type) in ("Tensor", "Tensor?") else texts.get(argument.name, 1)
            if argument.name in keyword_only:
                keywords[argument.name] = given
            else:
                arguments.append(given)
        result = overload(op.name)(*arguments, **keywords)
        assert result.dtype == (torch.bool if op.entry.kernel.result_dtype == "bool" else dtype)


def test_files_are_the_same_every_time_and_written_only_when_they_change(tmp_path):
    generate(tmp_path)
    before = {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()}
    assert any(name.startswith("Register_") for name in before)
    stale = tmp_path / "Register_99.cpp"
    stale.write_text("int of_an_older_list;")
    generate(tmp_path)
    assert {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()} == before


def test_listed_outputs_are_the_written_ones(tmp_path):
    generate(tmp_path)
    listed = subprocess.run([sys.executable, "-B", str(CODEGEN / "aten.py"), "--list-outputs"], check=True, capture_output=True, text=True)
    assert sorted(listed.stdout.strip().split(";")) == sorted(path.name for path in tmp_path.glob("*.cpp"))


def test_coverage_names_every_overload(tmp_path):
    generate(tmp_path)
    document = json.loads((tmp_path / "coverage.json").read_text())
    names = [name for operator in document["operators"] for name in operator["overloads"].values()]
    assert sorted(names + [function["op"] for function in document["functions"]]) == sorted(NAMES)
    # PyPI's wheel for CUDA has the build only in torch.__version__
    public, _, build = str(torch.__version__).partition("+")
    assert document["torch"] in (public, f"{public}+{build}")
    for operator in document["operators"]:
        assert f"| `{operator['op']}` |" in (tmp_path / "operators.md").read_text()


def test_each_operator_has_its_text(tmp_path):
    """Generated code is found by the operator's name, and has no function pointers except those that the dispatcher
    receives."""
    generate(tmp_path)
    texts = "".join(path.read_text() for path in (*tmp_path.glob("Register_*.cpp"), *tmp_path.glob("*/*.inc")))
    one_line = re.sub(r"\s+", " ", texts)
    for _, native in GENERATED:
        name = native.func.name.unambiguous_name()
        assert len(re.findall(rf"[ &]op_{name}\(const AtenOp &", texts)) == 1, name
        assert one_line.count(f"register_kernel<at::_ops::{name}>(aten_{name}, op_{name});") == 1, name
    for path in CODEGEN.parent.glob("csrc/**/*.*"):
        assert "AnyFunction" not in path.read_text(), path
    assert "reinterpret_cast" not in texts
    assert max(map(len, texts.splitlines())) <= 150  # of long names


def test_no_operator_is_registered_twice():
    """The second registration would replace the first one, with a warning at import."""
    assert len(NAMES) == len(set(NAMES))


def test_nothing_else_registers_operators_of_aten():
    """Registrations are generated, so that each schema is checked at build time: no other file registers for ATen and
    PrivateUse1."""
    csrc = CODEGEN.parent / "csrc"
    by_hand = [path.name for path in csrc.rglob("*.cpp") if re.search(r"TORCH_LIBRARY_IMPL\(aten, PrivateUse1|register_kernel<", path.read_text())]
    assert by_hand == []
    included = {path.relative_to(csrc / "aten").as_posix() for path in (csrc / "aten").rglob("*.cpp")
                if f'#include "aten/{path.relative_to(csrc / "aten").as_posix()[:-4]}.inc"' in path.read_text()}  # fmt: skip
    assert included == {operator.entry.source for operator in MODEL.functions if operator.entry.source}


def test_conditions_and_numbers_are_functions_of_the_subject(codegen):
    """`precomputed` and `fallback_if` contain no C++: only functions of one header next to the subject's sources, or
    ATen's bools. Adding an operator therefore does not change csrc/aten/prepare."""
    for entry in codegen.entries.load():
        header = CODEGEN.parent / "csrc" / "aten" / entry.subject / "conditions.h"
        for function, *names in (*entry.precomputed.values(), *([entry.fallback_if] if len(entry.fallback_if) > 1 else [])):
            assert all(name.isidentifier() for name in names)
            assert f" {function}(" in header.read_text(), f"{entry.name}: {function}"


def test_families_define_how_operands_are_prepared(codegen, tmp_path):
    """C++ reads the dtype policy and the layout from a table in the order of the operators."""
    operators = {entry.name: entry for entry in codegen.entries.load()}
    assert codegen.operands.operands_of(operators["cumsum"]) == codegen.operands.Operands("number", "at_least_1d")
    assert codegen.operands.operands_of(operators["add.Tensor"]) == codegen.operands.Operands()
    generate(tmp_path)
    rules = [line for line in (tmp_path / "op_rules.h").read_text().splitlines() if line.startswith("    {Policy::")]
    assert [line.split("// ")[1] for line in rules] == list(operators)


def test_vendors_operators_receive_the_callers_arguments():
    """Each operator with a computed number calls the vendor's operator with ATen's arguments, directly or in its
    function."""
    for operator in MODEL.functions:
        entry = operator.entry
        assert entry.number is None or entry.calls_vendor or operator.indices is not None, entry.name
    callers = {operator.entry.name for operator in MODEL.functions if operator.entry.calls_vendor}
    assert {"convolution_overrideable", "cat", "native_group_norm", "topk", "_embedding_bag", "_fused_adam", "native_layer_norm"}.isdisjoint(callers)


def test_errors_name_an_operator_of_aten(codegen, tmp_path):
    """Entries with names that ATen does not have name the operator that contains them: users do not know "index.lines".
    """
    natives, entries = codegen.Natives(), codegen.entries.load()
    unknown = [entry for entry in entries if entry.name not in natives.groups and not entry.torch]
    assert len(unknown) > 30 and all(natives.has_function(entry.part_of) for entry in unknown)
    for key, match in (("", "op: torch .* has no operator aten::index.lines; the key 'part_of' is missing"),
                       ("indx", "part_of: torch .* has no operator aten::indx")):  # fmt: skip
        changed = [dataclasses.replace(entry, part_of=key) if entry.name == "index.lines" else entry for entry in codegen.entries.load_all()]
        with pytest.raises(codegen.EntryError, match=rf"index\.yaml:\d+: index\.lines: {match}"):
            codegen.model.build(changed, natives)


# ---- another torch ----


@pytest.fixture
def natives(codegen):
    """The operators of a future PyTorch."""
    natives = codegen.Natives()
    natives.version = "2.99.0"
    return natives


def test_an_operator_that_torch_lacks_is_an_error_with_its_place(codegen, natives):
    del natives.groups["exp"]
    with pytest.raises(codegen.EntryError, match=r"pointwise_unary\.yaml:\d+: exp: op: torch 2\.99\.0 has no operator aten::exp; did you mean '"):
        codegen.model.build(codegen.entries.load_all(), natives)


def test_an_entry_for_some_versions_of_torch_is_left_out_of_others(codegen, natives):
    del natives.groups["exp"]
    every = [dataclasses.replace(entry, torch="<2.20") if entry.name == "exp" else entry for entry in codegen.entries.load_all()]
    model = codegen.model.build(every, natives)
    assert [entry.name for entry in model.left_out] == ["exp"]
    assert "exp" in [entry.name for entry in model.entries]  # its number remains, for plugins
    assert "exp" not in [operator.name for operator in model.kernels]
    assert "expm1" in [operator.name for operator in model.kernels]


def test_a_changed_schema_is_an_error_that_names_the_argument(codegen, natives):
    """A later PyTorch may add an argument, which the vendor's operator would not receive."""
    native = natives.groups["batch_norm_backward"]
    schema = str(native.func).replace("Tensor reserve)", "Tensor reserve, bool fast=False)")
    natives.groups["batch_norm_backward"] = dataclasses.replace(native, func=type(native.func).parse(schema))
    with pytest.raises(codegen.EntryError, match=r"norm\.yaml:\d+: batch_norm_backward: args: the argument 'fast' of .* is missing"):
        codegen.model.build(codegen.entries.load_all(), natives)


@pytest.mark.parametrize("change,message", [
    ({"args": ("self", "addend", "alpha")}, "args: 'addend' is not an argument of add.Tensor"),
    ({"args": ("self", "other")}, "args: the argument 'alpha' of add.Tensor.* is missing: list it in 'args' or 'vendor_args'"),
    ({"name": "add.Tensro"}, "op: torch .* has no operator aten::add.Tensro; did you mean 'add.Tensor'"),
    ({"meta": "Binary"}, "register: aten::add.Tensor is structured in torch .*'meta' is for operators that ATen has not structured"),
])  # fmt: skip
def test_an_entry_that_does_not_fit_its_schema(codegen, change, message):
    (entry,) = (entry for entry in codegen.entries.load() if entry.name == "add.Tensor")
    with pytest.raises(codegen.EntryError, match=message):
        codegen.model.build([dataclasses.replace(entry, **change)])


def test_missing_torch_is_one_clear_sentence(tmp_path):
    """A Python without torch: the message names the Python and the remedy."""
    blocked = tmp_path / "torchgen"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ImportError('No module named torchgen')")
    done = subprocess.run([sys.executable, "-B", str(CODEGEN / "aten.py"), "--out", str(tmp_path / "out")], capture_output=True, text=True,
                          env={"PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert done.returncode == 1
    assert "torchgen" in done.stderr and "-DPython_EXECUTABLE" in done.stderr and "Traceback" not in done.stderr
