"""The generator of ATen registrations: what it generates from ops.yaml for the installed torch, and what it does with a torch
that lacks an operator or has changed it."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest
import torch
from native_reference import CODEGEN, load_model, overload

MODEL = load_model()
GENERATED = [(op, native) for op in MODEL.ops for native in op.forms]
NAMES = [str(native.func.name) for _, native in GENERATED] + [body.name for body in MODEL.bodies]
TORCH_DTYPES = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
                7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16}  # fmt: skip


@pytest.fixture(scope="module")
def codegen():
    """The generator's modules."""
    sys.path.insert(0, str(CODEGEN))
    import aten_bodies
    import aten_emit
    import aten_model
    import oplist

    yield type("codegen", (), {"bodies": aten_bodies, "emit": aten_emit, "model": aten_model, "oplist": oplist})
    sys.path.remove(str(CODEGEN))


def generate(folder, *arguments):
    command = [sys.executable, "-B", str(CODEGEN / "aten.py"), "--out", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def test_every_operator_of_the_list_is_generated_for_the_installed_torch():
    assert [(skipped.op, skipped.reason) for skipped in MODEL.skipped] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_form_is_registered_for_the_device(name):
    """Also those by hand: a body that does not fit its schema would be left out."""
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "PrivateUse1")


def test_numbers_and_arguments_are_those_of_the_golden_file(codegen):
    """Plugins were built against them: an operator keeps its number and its arguments; a new one gets the next number."""
    golden = (CODEGEN.parent / "hal" / "abi" / "v0_operators.txt").read_text().splitlines()
    lines = []
    for op in codegen.oplist.load():
        arguments = ", ".join(f"{name}|number" if name in op.number_args else name for name in op.args)
        lines.append(f"{op.number} {op.name} ({'; '.join([arguments, ', '.join(op.further)] if op.further else [arguments])})")
    assert lines[: len(golden)] == golden


def test_functional_inplace_and_out_forms_come_together():
    """A form that torch has and we leave out would take a slower way without anyone noticing."""
    for op in MODEL.ops:
        group = op.group
        assert [f for f in (group.functional, group.inplace, group.out) if f] == op.forms
        assert len(op.forms) >= 2


@pytest.mark.parametrize("op", [op for op in MODEL.ops if op.op.route in ("iterator", "pointwise") and not op.op.rare], ids=lambda op: op.name)
def test_fast_path_dtypes_are_those_torch_computes_in(op, codegen):
    """The fast path skips ATen's promotion and checks: for each of its dtypes CPU torch must give that dtype (or bool)."""
    mask = codegen.model.fast_dtypes(op.op)
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
        assert result.dtype == (torch.bool if op.op.result == "bool" else dtype)


def test_files_are_the_same_every_time_and_written_only_when_they_change(tmp_path):
    generate(tmp_path)
    before = {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()}
    assert any(name.startswith("RegisterNative_") for name in before)
    stale = tmp_path / "RegisterNative_99.cpp"
    stale.write_text("int of_an_older_list;")
    generate(tmp_path)
    assert {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()} == before


def test_listed_outputs_are_the_written_ones(tmp_path):
    generate(tmp_path)
    listed = subprocess.run([sys.executable, "-B", str(CODEGEN / "aten.py"), "--list-outputs"], check=True, capture_output=True, text=True)
    assert sorted(listed.stdout.strip().split(";")) == sorted(path.name for path in tmp_path.glob("*.cpp"))


def test_coverage_names_every_form(tmp_path):
    generate(tmp_path)
    document = json.loads((tmp_path / "coverage.json").read_text())
    names = [name for entry in document["operators"] for name in entry["forms"].values()]
    assert sorted(names + [entry["op"] for entry in document["bodies"]]) == sorted(NAMES)
    public, _, build = str(torch.__version__).partition("+")  # PyPI's wheel for CUDA has the build in torch.__version__ alone
    assert document["torch"] in (public, f"{public}+{build}")
    assert document["skipped"] == []
    for entry in document["operators"]:
        assert f"| `{entry['op']}` |" in (tmp_path / "operators.md").read_text()


def test_operator_that_torch_lacks_is_reported_and_left_out(codegen):
    functions = codegen.model.native_functions()
    del functions["exp"]
    model = codegen.model.build(codegen.oplist.load(), functions)
    assert [(skipped.op, skipped.reason) for skipped in model.skipped] == [("exp", "the installed torch has no such operator")]
    text = "".join(codegen.emit.shard(ops) for ops in codegen.emit.shards(model))
    assert "enroll<at::_ops::exp>" not in text
    assert "enroll<at::_ops::expm1>" in text


def test_no_operator_is_registered_twice():
    """The second one would take the place of the first, with a warning at import."""
    assert len(NAMES) == len(set(NAMES))


def test_nothing_for_the_device_is_registered_behind_the_lists_back():
    """Registrations are generated, so that each schema is checked while building: no other file has one for ATen and PrivateUse1."""
    csrc = CODEGEN.parent / "csrc"
    by_hand = [path.name for path in csrc.rglob("*.cpp") if re.search(r"TORCH_LIBRARY_IMPL\(aten, PrivateUse1|enroll(_form)?<", path.read_text())]
    assert by_hand == []
    included = {path.relative_to(csrc / "aten").as_posix()[:-4] for path in (csrc / "aten").rglob("*.cpp")
                if f'#include "aten/{path.relative_to(csrc / "aten").as_posix()[:-4]}.inc"' in path.read_text()}
    assert included == {body.entry.file for body in MODEL.bodies}


def test_what_rows_name_are_functions(codegen):
    """No C++ in the list: numbers and conditions are functions of one header, or ATen's bools."""
    header = (CODEGEN.parent / "csrc" / "aten" / "prepare" / "conditions.h").read_text()
    header += (CODEGEN.parent / "csrc" / "aten" / "prepare" / "pointwise_meta.h").read_text()
    header += (CODEGEN.parent / "csrc" / "aten" / "prepare" / "structured_iterator.h").read_text()
    for op in codegen.oplist.load():
        for function, *arguments in (*op.numbers.values(), *([op.refuse] if op.refuse else [])):
            assert function.isidentifier() and all(name.isidentifier() for name in arguments)
            assert not arguments or f" {function}(" in header, f"{op.name}: {function}"


def test_rows_say_how_operands_are_prepared(codegen, tmp_path):
    """The policy and the layout of a family hold for its rows; C++ reads them from a table in the order of the operators."""
    ops = {op.name: op for op in codegen.oplist.load()}
    assert (ops["cumsum"].policy, ops["cumsum"].layout) == ("number", "lines")
    assert (ops["gather"].policy, ops["convolution_overrideable"].layout) == ("moved", "images")
    assert (ops["add.Tensor"].policy, ops["add.Tensor"].layout) == ("exact", "strided")
    generate(tmp_path)
    rules = [line for line in (tmp_path / "op_rules.h").read_text().splitlines() if line.startswith("    {Policy::")]
    assert [line.split("// ")[1] for line in rules] == list(ops)
    assert rules[ops["gather"].number].startswith("    {Policy::kMoved, Layout::kLines, 1},")


@pytest.mark.parametrize("wrong", ["{policy: widest}", "{layout: columns}"])
def test_unknown_policies_and_layouts_are_refused(codegen, tmp_path, wrong):
    text = codegen.oplist.OPS_YAML.read_text().replace("{policy: number, layout: lines}", wrong)
    (tmp_path / "ops.yaml").write_text(text)
    with pytest.raises(SystemExit, match="is none of"):
        codegen.oplist.load(tmp_path / "ops.yaml")


# Operators of the list whose frozen arguments are not ATen's: random_ in its three forms, whose row `random.from` has the first integer
# and how many there are, which ATen's arguments, their absence and the dtype come to. The result is the user's, as it is.
ASKED_BY_BODIES = 3


def test_the_plugin_is_asked_with_what_the_user_gave():
    """Every operator that bodies answer has a row with ATen's arguments, of which a generator's state is in the call, and what says no
    more than the result does is in the result. That list only shrinks; test_vendor_operators.py and test_vendor_sized.py hold what is seen."""
    not_asked = {body.name for body in MODEL.bodies if body.entry.way != "direct" and not body.asked}
    assert {"convolution_overrideable", "avg_pool2d", "cat.out", "native_group_norm", "topk", "_embedding_bag", "upsample_bilinear2d",
            "reflection_pad2d", "_fused_adam_", "native_layer_norm"}.isdisjoint(not_asked)  # fmt: skip
    assert len(not_asked) <= ASKED_BY_BODIES, sorted(not_asked)


def test_a_body_of_an_operator_that_torch_lacks_is_reported_and_left_out(codegen):
    functions = codegen.model.native_functions()
    del functions["native_group_norm"]
    model = codegen.model.build(codegen.oplist.load(), functions, codegen.oplist.load_bodies())
    assert [(skipped.op, skipped.reason) for skipped in model.skipped] == [("native_group_norm", "the installed torch has no such operator")]
    text = codegen.bodies.source([body for body in model.bodies if body.entry.file == "norm/group_norm"])
    assert "at::_ops::native_group_norm," not in text and "at::_ops::native_group_norm_backward," in text


def test_arguments_that_a_frozen_list_does_not_have_keep_the_plugin_unasked(codegen):
    """A later torch may add an argument: the plugin would not see it, so it is not asked."""
    ops = {op.name: op for op in codegen.oplist.load()}
    functions = codegen.model.native_functions()
    shorter = dataclasses.replace(ops["linalg_cross"], args=ops["linalg_cross"].args[:-1])
    (entry,) = (body for body in codegen.oplist.load_bodies() if body.op == "linalg_cross")
    model = codegen.model.build([shorter], functions, [entry])
    assert [(body.name, body.asked) for body in model.bodies] == [("linalg_cross", None), ("linalg_cross.out", None)]


def test_operator_whose_schema_changed_is_reported(codegen):
    ops = {op.name: op for op in codegen.oplist.load()}
    functions = codegen.model.native_functions()
    renamed = dataclasses.replace(ops["add.Tensor"], args=("self", "addend", "alpha"))
    narrower = dataclasses.replace(ops["add.Tensor"], args=("self", "other"))
    plain = dataclasses.replace(ops["abs"], route="iterator")
    for op, reason in ((renamed, "lacks addend"), (narrower, "does not know: alpha"), (plain, "not a structured operator")):
        model = codegen.model.build([op], functions)
        assert model.ops == []
        assert reason in model.skipped[0].reason


def test_missing_torch_is_one_clear_sentence(tmp_path):
    """A Python without torch: the message names the Python and the cure."""
    blocked = tmp_path / "torchgen"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ImportError('No module named torchgen')")
    done = subprocess.run([sys.executable, "-B", str(CODEGEN / "aten.py"), "--out", str(tmp_path / "out")], capture_output=True, text=True,
                          env={"PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert done.returncode == 1
    assert "torchgen" in done.stderr and "-DPython_EXECUTABLE" in done.stderr and "Traceback" not in done.stderr
