"""Operator entries: an invalid one is an error with file, line, key, the allowed values and the nearest key. The JSON
schema for editors agrees with the build."""

import importlib
import json
import re
import sys

import pytest
from native_reference import CODEGEN

GOOD = """
- op: mul.Tensor
  number: 0
  args: [self, other|Scalar]
  kernel: {family: binary, expr: "a * b", dtypes: floating_and_half}
  register: structured
- op: sum.dim_IntList
  number: 1
  args: [self, dim]
  omit: [keepdim, dtype]
  kernel:
    family: reduce
    name: sum
    dtypes: [float32, int64]
  register: structured
- op: relu
  number: 2
  args: [self]
  register: functional
  source: pointwise/pointwise_manual.cpp
  function: {relu: relu, relu_: relu_}
- op: _check_divisor
  number: 3
  args: [self, argument]
  kernel: {family: check, name: check_divisor, expr: "a != 0", dtypes: [int64]}
  register: none
- op: fmod.Tensor
  number: 4
  args: [self, other]
  kernel: {family: binary, expr: "pk_fmod(a, b)", dtypes: widest, optimize: size}
  register: structured
  fallback_if: [is_integer_zero, self, other]
  device_assert: {other: _check_divisor}
- op: view
  register: reuse
"""

# (text of the valid entries, its replacement, the error after the file's name)
SCHEMA_MISTAKES = [
    ("family: binary, expr", "familly: binary, expr",
     "4: mul.Tensor: kernel: familly: unknown key; did you mean 'family'? Allowed: family, name, expr, dtypes, device_dtypes, result_dtype, "
     "optimize"),
    ("  register: structured\n- op: sum", "  registre: structured\n- op: sum", "5: mul.Tensor: registre: unknown key; did you mean 'register'?"),
    ("  register: structured\n- op: sum", "  register: structure\n- op: sum",
     "5: mul.Tensor: register: 'structure' is invalid; did you mean 'structured'? Allowed: structured, out, functional, reuse, none"),
    ("  register: structured\n- op: sum", "- op: sum", "1: mul.Tensor: the key 'register' is missing"),
    ("family: reduce\n", "family: redcue\n", "11: sum.dim_IntList: kernel: family: 'redcue' is invalid; did you mean 'reduce'?"),
    ("dtypes: floating_and_half", "dtypes: floating_and_hlaf",
     "4: mul.Tensor: kernel: dtypes: 'floating_and_hlaf' is invalid; did you mean 'floating_and_half'?"),
    ("[float32, int64]", "[float32, int46]", "13: sum.dim_IntList: kernel: dtypes: 'int46' is invalid; did you mean 'int64'?"),
    ("[float32, int64]", "true", "13: sum.dim_IntList: kernel: dtypes: True is invalid: expected a text or a list"),
    ("number: 1\n", "number: one\n", "7: sum.dim_IntList: number: 'one' is invalid: expected an integer"),
    ("number: 1\n", "number: -1\n", "7: sum.dim_IntList: number: -1 is invalid: expected at least 0"),
    ("number: 1\n", "number: true\n", "7: sum.dim_IntList: number: True is invalid: expected an integer"),
    ("  number: 1\n", "", "7: sum.dim_IntList: args: needs the key 'number', which is missing"),
    ("args: [self, dim]", "args: self", "8: sum.dim_IntList: args: 'self' is invalid: expected a list"),
    ("args: [self, dim]", "args: [self, dim|number]", "8: sum.dim_IntList: args: 'dim|number' is invalid: expected a text that matches"),
    ("  function: {relu: relu, relu_: relu_}\n", "",
     "18: relu: register: 'functional' needs the key 'function', which is missing"),
    ("optimize: size", "optimize: speedy", "29: fmod.Tensor: kernel: optimize: 'speedy' is invalid; did you mean 'speed'? Allowed: speed, size"),
    ('expr: "a * b"', 'expr: {complex: "a"}', "4: mul.Tensor: kernel: expr: the key 'default' is missing"),
    ('expr: "a * b"', 'expr: ""', "4: mul.Tensor: kernel: expr: the text is empty"),
    ("- op: view\n  register: reuse", "- op: view\n  register: none", "34: view: register: 'none' needs the key 'number', which is missing"),
    ("- op: view\n", "- view\n- op: view\n", "33: 'view' is invalid: expected a mapping"),
]  # fmt: skip
OTHER_MISTAKES = [
    ("- op: view\n  register: reuse", "- op: view\n  register: reuse\n  register: none", "35: register: the key is already set in line 34"),
    ("number: 1\n", "number: 0\n", "7: sum.dim_IntList: number: 0 is the number of mul.Tensor in {file}:1; the next free number is 1"),
    ("number: 4\n", "number: 6\n", "27: fmod.Tensor: number: 6 leaves a gap; the next free number is 4"),
    ("- op: fmod.Tensor", "- op: mul.Tensor", "26: mul.Tensor: op: has the same name as mul.Tensor in {file}:1"),
    ("- op: fmod.Tensor", "- op: mul_Tensor", "26: mul_Tensor: op: has the same identifier as mul.Tensor in {file}:1"),
    ('family: binary, expr: "a * b"', "family: binary", "4: mul.Tensor: kernel: the family binary needs the key 'expr', which is missing"),
    ("floating_and_half}", "floating_half_and_complex}",
     "4: mul.Tensor: kernel: dtypes: 'floating_half_and_complex' has complex dtypes, and `expr` has no expression 'complex' for them"),
    ("{other: _check_divisor}", "{otter: _check_divisor}",
     "32: fmod.Tensor: device_assert: otter: is not an argument of the operator; did you mean 'other'?"),
    ("{other: _check_divisor}", "{other: _check_divizor}",
     "32: fmod.Tensor: device_assert: other: '_check_divizor' is not an operator of the family check; did you mean '_check_divisor'?"),
    ("args: [self, other]\n  kernel: {family: binary, expr: \"pk_fmod", "args: [self, other|Scalar]\n  kernel: {family: binary, expr: \"pk_fmod",
     "28: fmod.Tensor: args: an operator with `optimize: size` has no variant for a number"),
    ("  kernel:\n    family: reduce\n    name: sum\n    dtypes: [float32, int64]\n", "",
     "10: sum.dim_IntList: register: 'structured' needs a portable kernel (`kernel`) or a function"),
    ("  source: pointwise/pointwise_manual.cpp\n", "", "19: relu: function: needs the key 'source', the file of csrc/aten that has the function"),
    ("name: sum\n", "name: summ\n", "12: sum.dim_IntList: kernel: name: 'summ' is invalid; did you mean 'sum'?"),
    ("  register: reuse", "  register: [reuse", "35: invalid YAML: "),
    ("- op: view\n  register: reuse", "  op: [}", "33: invalid YAML: "),
]  # fmt: skip
TORCH_MISTAKES = [
    ("- op: view\n", "- op: veiw\n", "33: veiw: op: torch .* has no operator aten::veiw; did you mean 'view'"),
    ("[self, dim]", "[self, dims]", "8: sum.dim_IntList: args: .*'dims' is not an argument of sum.dim_IntList.*did you mean 'dim'"),
    ("[keepdim, dtype]", "[keepdim]", "8: sum.dim_IntList: args: the argument 'dtype' of sum.dim_IntList.* is missing: list it in 'args'"),
    ("[keepdim, dtype]", "[keepdim, dtype, keepdims]", "9: sum.dim_IntList: omit: 'keepdims' is not an argument of sum.dim_IntList"),
    ("relu_: relu_", "relu__: relu_", r"20: relu: function: torch .* has no operator aten::relu__; did you mean 'relu_'"),
    ("relu_: relu_", "relu_: rellu_", "20: relu: function: there is no function 'rellu_' in pointwise/pointwise_manual.cpp; did you mean 'relu"),
    ("pointwise_manual.cpp", "pointwise_manuel.cpp",
     "19: relu: source: there is no file .*pointwise_manuel.cpp; did you mean 'pointwise/pointwise_manual.cpp'"),
    ("pointwise_manual.cpp", "conditions.cpp", "19: relu: source: pointwise/conditions.cpp does not include its registrations"),
    ("family: binary, expr: \"a * b\"", "family: reduce, name: sum", "4: mul.Tensor: kernel: family: 'reduce' reduces one tensor"),
    ("fallback_if: [is_integer_zero, self, other]", "fallback_if: [is_integer_zero, self, otter]",
     "31: fmod.Tensor: fallback_if: 'otter' is not an argument of fmod.Tensor"),
    ("fallback_if: [is_integer_zero, self, other]", "fallback_if: [is_integer_zerro, self, other]",
     "31: fmod.Tensor: fallback_if: there is no function 'is_integer_zerro' in csrc/aten/pointwise/conditions.h; did you mean 'is_integer_zero'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def codegen():
    """The generator's modules."""
    sys.path.insert(0, str(CODEGEN))
    try:
        names = ("aten", "entries", "entry_check", "entry_file", "entry_schema", "aten_natives", "aten_sources")
        yield type("codegen", (), {name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(CODEGEN))


def written(folder, text):
    (folder / "pointwise.yaml").write_text(text.lstrip("\n"))
    return folder


def replaced(old, new):
    assert GOOD.count(old) >= 1, old
    return GOOD.replace(old, new, 1)


def test_the_good_entries_are_loaded(codegen, tmp_path):
    entries = codegen.entries.load_all(written(tmp_path, GOOD))
    assert [(entry.name, entry.number) for entry in entries] == [
        ("mul.Tensor", 0), ("sum.dim_IntList", 1), ("relu", 2), ("_check_divisor", 3), ("fmod.Tensor", 4), ("view", None)]  # fmt: skip
    mul, total, relu, _, fmod, _ = entries
    assert mul.scalar_args == {"other"} and mul.is_commutative and mul.is_elementwise and not total.is_elementwise
    assert total.kernel.dtypes == ("i64", "f32") and relu.functions == {"relu": "relu", "relu_": "relu_"}
    assert fmod.kernel.for_size and fmod.subject == "pointwise"


@pytest.mark.parametrize("old,new,error", [*SCHEMA_MISTAKES, *OTHER_MISTAKES])
def test_a_mistake_is_an_error_that_names_its_place(codegen, tmp_path, old, new, error):
    file = written(tmp_path, replaced(old, new)) / "pointwise.yaml"
    with pytest.raises(codegen.entry_file.EntryError) as raised:
        codegen.entries.load_all(tmp_path)
    message = str(raised.value)
    assert message.startswith(f"{file}:{error.format(file=file)}"), message
    assert "\n" not in message


@pytest.mark.parametrize("old,new,error", TORCH_MISTAKES)
def test_a_mistake_about_aten_or_a_source_is_an_error_that_names_its_place(codegen, tmp_path, old, new, error):
    file = written(tmp_path, replaced(old, new)) / "pointwise.yaml"
    with pytest.raises(codegen.entry_file.EntryError, match=f"{re.escape(str(file))}:{error}"):
        codegen.aten.generate(codegen.entries.load_all(tmp_path), codegen.aten_natives.Natives(), codegen.aten_sources.Sources(codegen.aten.CSRC_ATEN))


def test_missing_and_empty_folders(codegen, tmp_path):
    with pytest.raises(codegen.entry_file.EntryError, match="there are no operator entries"):
        codegen.entries.load_all(tmp_path / "nowhere")
    (tmp_path / "reduce.yaml").write_text("")
    with pytest.raises(codegen.entry_file.EntryError, match=r"reduce.yaml:1: expected a list of entries, each beginning with '- op:'"):
        codegen.entries.load_all(tmp_path)


def test_the_build_ends_with_the_error(tmp_path):
    """Without a traceback."""
    import subprocess

    written(tmp_path, replaced("family: binary, expr", "familly: binary, expr"))
    for program in ("kernels.py", "aten.py"):
        done = subprocess.run([sys.executable, "-B", str(CODEGEN / program), "--operators", str(tmp_path), "--out", str(tmp_path / "out")],
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith(f"codegen: {tmp_path / 'pointwise.yaml'}:4: mul.Tensor: kernel: familly: unknown key"), done.stderr
        assert "Traceback" not in done.stderr


# ---- the JSON schema ----


def test_the_committed_schema_is_that_of_the_build(codegen):
    assert codegen.entry_schema.SCHEMA_JSON.read_text() == codegen.entry_schema.text(), "run `python codegen/entry_schema.py --write`"


def test_every_key_has_a_description_and_a_use(codegen):
    keys = {**codegen.entry_schema.ENTRY["properties"], **codegen.entry_schema.KERNEL["properties"]}
    assert all(len(key["description"]) > 10 for key in keys.values())
    used = "".join(path.read_text() for path in (CODEGEN / "operators").glob("*.yaml"))
    assert [key for key in keys if key != "torch" and not re.search(rf"\b{key}:", used)] == []
    table = codegen.entry_schema.table()
    assert all(f"`{key}`" in table or f"`kernel: {key}`" in table for key in keys)


def test_an_editor_agrees_with_the_build(codegen):
    """An independent implementation of JSON Schema accepts the project's entries, and refuses the entries that the
    build refuses by the schema."""
    import jsonschema

    schema = json.loads(codegen.entry_schema.SCHEMA_JSON.read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)

    def plain(value):
        """As an editor reads YAML: keys are strings."""
        if isinstance(value, dict):
            return {str(key).lower() if isinstance(key, bool) else str(key): plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    for path in sorted((CODEGEN / "operators").glob("*.yaml")):
        errors = [error.message for error in validator.iter_errors(plain(codegen.entry_file.read(path)))]
        assert errors == [], path
    import yaml

    assert validator.is_valid(plain(yaml.safe_load(GOOD)))
    for old, new, error in SCHEMA_MISTAKES:
        assert not validator.is_valid(plain(yaml.safe_load(replaced(old, new)))), error


def test_entries_name_their_schema_and_keep_to_120_columns():
    for path in sorted((CODEGEN / "operators").glob("*.yaml")):
        lines = path.read_text().splitlines()
        assert lines[0] == "# yaml-language-server: $schema=../operators.schema.json", path
        assert [line for line in lines if len(line) > 120] == [], path
