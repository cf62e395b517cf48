"""Errors in a list of custom operators: one message with the file, the operator, the key and the value."""

import importlib
import pathlib
import re
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "custom_op" / "ops.yaml"


@pytest.fixture(scope="module")
def codegen():
    """The generator's modules, from the sources."""
    pytest.importorskip("torchgen")
    sys.path.insert(0, str(ROOT / "codegen"))
    try:
        yield importlib.import_module("custom")
    finally:
        sys.path.remove(str(ROOT / "codegen"))


GOOD = """
namespace: mine
dtypes:
  T: [float32, float64]
ops:
  - schema: scale(Tensor x, float by=2.0, str mode="a") -> Tensor
    args:
      x: {shape: "..., D", dtype: T}
      by: {min: 0}
    results:
      result: {shape: "..., D", dtype: T}
    function: mine_scale
    backward:
      x: grad * by
    reference: x * by
  - schema: two(Tensor x) -> (Tensor y, Tensor z)
    args: {x: {dtype: T}}
    results: {y: {shape: "3", dtype: T}, z: {shape: "", dtype: int64, differentiable: false}}
"""


def generate(codegen, tmp_path, text, stable=True):
    """Runs the generator, for every PyTorch or for one; returns the generated texts."""
    path = tmp_path / "ops.yaml"
    path.write_text(textwrap.dedent(text))
    model = codegen.custom_model.load(path)
    library = (codegen.custom_stable if stable else codegen.custom_emit).library(model, "mine")
    return library, codegen.c_header(model, "mine"), codegen.kernel_source(model, "mine"), codegen.module(model, "mine", stable)


MISTAKES = [
    # (text of the valid list, its replacement, the message after the file's name)
    ("namespace: mine\n", "", "the key 'namespace' is missing"),
    ("namespace: mine", "namespace: aten", "namespace: 'aten' is torch's own; choose another"),
    ("namespace: mine", "namespace: a-b", "namespace: invalid name 'a-b'"),
    ("namespace: mine", "namespace: mine\nname: x", "name: unknown key with the value 'x'; known: dtypes, kernels, namespace, ops"),
    ("namespace: mine", "namespace: [", "is not YAML: "),
    ("float32, float64]", "float33]", "dtypes: T: 'float33' is not one of the dtypes uint8, "),
    ("T: [float32, float64]", "float32: [float64]", "dtypes: float32: ['float64'] hides the dtype of that name"),
    ("schema: scale(Tensor x,", "schema: scale(Tensor x", "op scale: schema: invalid schema 'scale(Tensor x float by"),
    ("schema: scale(Tensor x", "schema: scale.over(Tensor x", "op scale.over: schema: 'scale.over(Tensor x, float by=2.0, str mode=\"a\") -> Tensor' has an overload"),
    ("scale(Tensor x,", "scale(Tensor(a!) x,", "declares that tensors alias or are written"),
    ("scale(Tensor x, float", "scale(Tensor x, Device d, float", "argument 'd' has the type 'Device'; those that can be passed to C are Tensor, Tensor[], int"),
    ("scale(Tensor x, float by=2.0", "scale(Tensor[] x, float by=2.0", "args: x: shape: unknown key with the value '..., D'; known: doc, dtype"),
    ("scale(Tensor x, float", "scale(Tensor sizes, float", "'sizes' cannot name an argument or result: the generated code uses it"),
    ('mode="a") -> Tensor\n', 'mode="a") -> int\n', "must return one or more results of type Tensor"),
    ("two(Tensor x) -> (Tensor y, Tensor z)", "two(Tensor x) -> (Tensor, Tensor)", "returns several results; name them"),
    ("by: {min: 0}", "bye: {min: 0}", "op scale: args: bye: {'min': 0} does not describe an argument of the schema; it has x, by, mode"),
    ("by: {min: 0}", "by: {min: low}", "op scale: args: by: min: 'low' is not a number"),
    ("by: {min: 0}", "mode: {min: 0}", "op scale: args: mode: min: unknown key with the value 0"),
    ('x: {shape: "..., D", dtype: T}', 'x: {shape: "..., D"}', "op scale: args: x: the key 'dtype' is missing"),
    ('x: {shape: "..., D", dtype: T}', 'x: {shape: "D, ...", dtype: T}', "op scale: args: x: shape: 'D, ...' has '...' at another place than the first"),
    ('x: {shape: "..., D", dtype: T}', 'x: {shape: "D+1", dtype: T}', "op scale: args: x: shape: invalid dimension 'D+1' in 'D+1'"),
    ('x: {shape: "..., D", dtype: T}', 'x: {shape: "D", dtype: U}', "op scale: args: x: dtype: 'U' is neither a dtype (uint8"),
    ('x: {shape: "..., D", dtype: T}', 'x: {shape: "D", dtype: T}', "op scale: results: result: shape: '...' is not in the shape of an argument"),
    ('result: {shape: "..., D", dtype: T}', 'result: {shape: "..., E", dtype: T}', "op scale: results: result: shape: 'E' is not in the shape of an argument"),
    ('result: {shape: "..., D", dtype: T}', 'y: {shape: "..., D", dtype: T}', "op scale: results: the key 'result' is missing"),
    ("y: {shape: \"3\", dtype: T}, ", "", "op two: results: the key 'y' is missing"),
    ("function: mine_scale", "function: mine scale", "op scale: function: invalid name 'mine scale'"),
    ("function: mine_scale", "fn: mine_scale", "op scale: fn: unknown key with the value 'mine_scale'"),
    ("      x: grad * by", "      by: grad * by", "op scale: backward: by: 'by' is not a Tensor argument of the schema"),
    ("      x: grad * by", "      x: grad * bye", "op scale: backward: x: 'bye' in 'grad * bye' is unknown; there are x, by, mode, result, grad"),
    ("      x: grad * by", "      x: grad * (", "op scale: backward: x: invalid expression 'grad * (': "),
    ("      x: grad * by", "      x: by * 2", "op scale: backward: x: 'by * 2' is number; wanted: tensor"),
    ("      x: grad * by", "      x: frobnicate(grad)", "op scale: backward: x: 'frobnicate(grad)' in 'frobnicate(grad)' calls no operator of this list and no function"),
    ("      x: grad * by", "      x: two(grad)", "op scale: backward: x: 'two(grad)' is 2 tensor(s); wanted: tensor"),
    ("      x: grad * by", "      x: scale(grad)", "'scale(grad)' in 'scale(grad)' has 1 arguments; scale takes 3, 1 of them without default; pass all"),
    ("      x: grad * by", "      x: scale(grad, mode, mode)", "passes text for 'by', which is float"),
    ("      x: grad * by", "      x: grad @ x", "'grad @ x' in 'grad @ x' joins tensor and tensor; + - * / and tensor ** number are possible"),
    ("      x: grad * by", "      x: grad[0]", "'grad[0]' in 'grad[0]' is not possible here"),
    ("      x: grad * by", "      x: relu(self=grad)", "is not a call by a plain name with positional arguments"),
    ("    reference: x * by", "    reference: {y: x}", "op scale: reference: the key 'result' is missing"),
    ("    reference: x * by", "    reference: grad", "op scale: reference: result: 'grad' in 'grad' is unknown"),
    ("    reference: x * by", "    reroute: aten::nothing", "op scale: reroute: aten: unknown operator 'aten::nothing' in the installed torch"),
    ("    reference: x * by", "    reroute: aten::rms_norm", "op scale: reroute: aten: 'aten::rms_norm' is a composite of other operators, whose gradient would be lost"),
    ("    reference: x * by", "    reroute: aten::relu_", "op scale: reroute: aten: 'aten::relu_' is not a functional operator with 1 result(s)"),
    ("    reference: x * by", "    reroute: {aten: aten::gelu, args: {x: self}}", "argument 'approximate' of aten::gelu is not used; set its required value under 'when'"),
    ("    reference: x * by", "    reroute: {aten: aten::gelu, args: {x: approximate}}", "reroute: args: x: 'approximate' is not an argument of aten::gelu of the same type"),
    ("    reference: x * by", "    reroute: {aten: aten::gelu, args: {x: self}, when: {approximate: 3}}", "when: approximate: 3 cannot be compared with an argument of type str"),
    ("    reference: x * by", "    reroute: {aten: aten::gelu, args: {x: self}, when: {approximat: none}}", "argument 'approximate' of aten::gelu is not used"),
    ("  - schema: two(", "  - schema: scale(", "op scale: is defined twice in the list"),
    ("ops:\n", "kernels: [{source: no.pk, prefix: no, dtypes: T, items: [a]}]\nops:\n", "kernels: no.pk: there is no file"),
    ("ops:\n", "kernels: [{source: ops.yaml, prefix: no, dtypes: U, items: [a]}]\nops:\n", "kernels: ops.yaml: dtypes: 'U' is not one of the sets T"),
    ("ops:\n", "kernels: [{source: ops.yaml, prefix: no, dtypes: T}]\nops:\n", "kernels: ops.yaml: neither 'items' nor 'groups' names a kernel"),
]  # fmt: skip


@pytest.mark.parametrize("stable", [True, False], ids=["every torch", "one torch"])
@pytest.mark.parametrize(("old", "new", "message"), MISTAKES, ids=[m[2][:60] for m in MISTAKES])
def test_an_error_is_one_message(codegen, tmp_path, old, new, message, stable):
    assert old in GOOD
    with pytest.raises(SystemExit) as stopped:
        generate(codegen, tmp_path, GOOD.replace(old, new, 1), stable)
    message = str(stopped.value)
    assert message.startswith(f"codegen: {tmp_path / 'ops.yaml'}: ") and "\n" not in message
    assert message in message


def test_a_missing_file_is_named(codegen, tmp_path):
    with pytest.raises(SystemExit, match="codegen: .*nowhere.yaml: cannot be read: No such file"):
        codegen.custom_model.load(tmp_path / "nowhere.yaml")


def test_the_valid_list_is_generated_as_written(codegen, tmp_path):
    cpp, header, kernels, module = generate(codegen, tmp_path, GOOD, stable=False)
    assert 'm.def("scale(Tensor x, float by=2.0, str mode=\\"a\\") -> Tensor");' in cpp
    assert "gradients[0] = (grad * at::Scalar(by));" in cpp
    assert "autogradNotImplementedFallback" in cpp  # of `two`
    assert "hal_status_t mine_scale(" in header and "mine_two" not in header and "mine_kernel" not in header
    assert "the list has no kernels" in kernels
    assert 'def scale(x: "torch.Tensor", by: "float" = 2.0, mode: "str" = "a") -> "torch.Tensor":' in module
    compile(module, "module", "exec")


def test_the_valid_list_for_every_torch_uses_the_stable_abi(codegen, tmp_path):
    cpp, header, kernels, module = generate(codegen, tmp_path, GOOD)
    assert (header, kernels) == generate(codegen, tmp_path, GOOD, stable=False)[1:3]
    assert "STABLE_TORCH_LIBRARY_FRAGMENT(mine, m)" in cpp and "STABLE_TORCH_LIBRARY_IMPL(mine, PrivateUse1, m)" in cpp
    assert "at::" not in cpp and "c10::" not in cpp
    assert "gradients[0] = grad * by" in module and "_library.register('two', fake=_two_fake)" in module
    compile(module, "module", "exec")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("float by=2.0", "Scalar by=2.0", "mine::scale: argument 'by' has the type Scalar, which LibTorch's stable ABI does not support"),
        ("two(Tensor x)", "two(Tensor a, *, Tensor x)", "mine::two: argument 'x' is a tensor by keyword only, for which gradients cannot be registered"),
    ],
)
def test_operators_beyond_the_stable_abi_are_reported(codegen, tmp_path, old, new, message):
    path = tmp_path / "ops.yaml"
    text = GOOD.replace(old, new).replace("args: {x: {dtype: T}}", "args: {x: {dtype: T}, a: {dtype: T}}" if "two" in new else "args: {x: {dtype: T}}")
    path.write_text(textwrap.dedent(text).replace("      by: {min: 0}\n", ""))
    model = codegen.custom_model.load(path)
    assert codegen.custom_stable.out_of_reach(model).startswith(message)
    path.write_text(textwrap.dedent(GOOD))
    assert codegen.custom_stable.out_of_reach(codegen.custom_model.load(path)) == ""


@pytest.mark.parametrize("stable", [True, False], ids=["every torch", "one torch"])
def test_the_generator_writes_the_same_text_twice(codegen, tmp_path, stable):
    assert generate(codegen, tmp_path, GOOD, stable) == generate(codegen, tmp_path, GOOD, stable)


def test_the_guide_explains_every_key_and_includes_the_example(codegen):
    guide = (ROOT / "docs" / "custom-operators.md").read_text()
    for key in {"schema", "results", *codegen.custom_model._OP_KEYS}:
        assert f"`{key}`" in guide, key
    included = re.findall(r"literalinclude\} (\S+)", guide)
    assert {pathlib.Path(name).name for name in included} >= {"ops.yaml", "ops.c", "rms_norm.pk", "CMakeLists.txt", "train.py"}
    assert all((ROOT / "docs" / name).exists() for name in included)
