"""Custom operators: the guide's example and a library of special cases, each built out of tree from the installed
package alone."""

import os
import shutil
import sys

import pytest
import torch
import torch.nn.functional as F
from custom_libraries import EXAMPLE, KINDS, PACKAGE, configure

import torch_backend
from torch_backend import fallback

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake and compilers")

@pytest.fixture(scope="session", params=["example_ops", "single_ops"])
def example(request, libraries):
    return _import(libraries[request.param][0], request.param)


@pytest.fixture(scope="session", params=["kinds", "others"])
def kinds(request, libraries):
    return _import(libraries[request.param][0], request.param)


def namespace(library):
    """The namespace of a library's operators."""
    return library.__name__.removesuffix("_ops")


@pytest.fixture(autouse=True)
def reroutes_for_these_tests_only():
    """The libraries remain loaded; the tests of other files use PyTorch's own operators."""
    with torch_backend.ops.reroutes(True):
        yield
    torch_backend.ops.reroutes(False)


def _import(folder, name):
    import importlib

    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def composition(x, weight, eps=1e-6):
    """rms_norm in PyTorch's own operators."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


# ---- the example: values and gradients ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4, 7), (7,), (2, 3, 129), (1, 1), (0, 5), (2, 0, 3)], ids=str)
def test_rms_norm_and_its_gradients_equal_the_composition(device, example, dtype, shape):
    torch.manual_seed(0)
    x, weight = torch.randn(shape, dtype=dtype), torch.randn(shape[-1], dtype=dtype)
    ours, theirs = ([t.detach().clone().to(p).requires_grad_() for t in (x, weight)] for p in (device, "cpu"))
    y, rstd = example.rms_norm(*ours)
    expected = composition(*theirs)
    assert y.device.type == device and not rstd.requires_grad and rstd.shape == shape[:-1]
    y.sin().sum().backward()
    expected.sin().sum().backward()
    torch.testing.assert_close(y.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-6)
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_swish_mul_in_every_declared_dtype(device, example, dtype):
    torch.manual_seed(0)
    x, w = torch.randn(5, 33).to(dtype), torch.randn(5, 33).to(dtype)
    ours = example.swish_mul(x.to(device), w.to(device))
    theirs = (F.silu(x.double()) * w.double()).to(dtype)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.cpu(), theirs)


def test_the_kernels_ran_and_nothing_fell_back(device, example):
    x = torch.randn(8, 16, device=device)
    torch_backend.ops.reset()
    with fallback.strict():
        example.rms_norm(x, torch.ones(16, device=device))
        example.swish_mul(x, x)
    native = {row.op: row.native for row in torch_backend.ops.report()}
    assert native[f"{namespace(example)}::rms_norm"] == 1 and native[f"{namespace(example)}::swish_mul"] == 1


def test_operands_that_are_not_contiguous(device, example):
    x, weight = torch.randn(6, 4), torch.randn(12)[::2]
    theirs = composition(x.t(), weight)
    ours = example.rms_norm(x.to(device).t(), weight.to(device))[0]
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-6)
    wide = torch.randn(3, 8)
    torch.testing.assert_close(example.swish(wide.to(device)[:, 2:5].expand(2, 3, 3)).cpu(), F.silu(wide[:, 2:5].expand(2, 3, 3)))


def test_gradients_are_those_of_finite_differences(device, example):
    x, w = (torch.randn(3, 4, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2))
    weight = torch.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, weight: example.rms_norm(x, weight)[0], (x, weight))
    assert torch.autograd.gradcheck(example.swish_mul, (x, w))


def test_second_derivatives_by_expressions_work_and_others_are_refused(device, example):
    x, w = (torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradgradcheck(example.swish_mul, (x, w))
    y, _ = example.rms_norm(x, torch.ones(3, dtype=torch.float64, device=device, requires_grad=True))
    with pytest.raises(NotImplementedError, match=f"{namespace(example)}::rms_norm.*create_graph.*'rstd'"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_the_references_serve_the_cpu(example):
    x, weight = torch.randn(3, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    y, _ = example.rms_norm(x, weight)
    torch.testing.assert_close(y, composition(x, weight))
    y.sum().backward()
    assert x.grad is not None and weight.grad is not None


# ---- the example: PyTorch's machinery ----


def samples(device):
    def make(*shape, dtype=torch.float32, grad=True):
        return torch.randn(shape, dtype=dtype, device=device, requires_grad=grad)

    yield "rms_norm", (make(4, 8), make(8))
    yield "rms_norm", (make(2, 3, 5), make(5), 1e-3)
    yield "rms_norm", (make(2, 5, dtype=torch.float64, grad=False), make(5, dtype=torch.float64, grad=False))
    yield "rms_norm_backward", (make(4, 8, grad=False), make(4, 8, grad=False), make(8, grad=False), make(4, grad=False))
    yield "swish_mul", (make(4, 8), make(4, 8))
    yield "swish_mul", (make(3), make(3, grad=False))
    yield "swish", (make(4, 8).half().detach().requires_grad_(),)


@pytest.mark.parametrize("number", range(7))
def test_opcheck(device, example, number):
    name, arguments = list(samples(device))[number]
    operator, registration = getattr(getattr(torch.ops, namespace(example)), name).default, "test_autograd_registration"
    outcome = torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))
    # PyTorch runs this test on its own devices only; the kernel of the key `Autograd` applies to all devices.
    on_host = [a.detach().cpu().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in arguments]
    outcome |= torch.library.opcheck(operator, on_host, test_utils=registration)
    assert set(outcome.values()) == {"SUCCESS"} and len(outcome) == 4, outcome
    assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"{namespace(example)}::{name}", "AutogradPrivateUse1")


def test_fake_tensors_have_the_shapes_of_real_ones(device, example):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        y, rstd = example.rms_norm(torch.empty(2, 3, 8, device=device), torch.empty(8, device=device))
    assert y.shape == (2, 3, 8) and rstd.shape == (2, 3) and y.device.type == device
    torch_backend.meta.check(f"{namespace(example)}::rms_norm", torch.ones(2, 3, 8, device=device), torch.ones(8, device=device))
    assert example.swish(torch.empty(3, 4, device="meta")).shape == (3, 4)


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_the_example_trains_compiled_as_on_the_cpu(device, built, example, compiler):
    torch._dynamo.reset()
    train = _import(EXAMPLE, "train").train
    reference, eager, compiled = train("cpu"), train(device), train(device, compiler=compiler)
    assert eager == pytest.approx(reference, rel=1e-4) and compiled == pytest.approx(eager, rel=1e-5)
    assert eager[-1] < 0.9 * eager[0]


def test_compiled_gradients_equal_eager_ones_without_a_graph_break(device, example):
    def function(x, weight, w):
        return example.swish_mul(getattr(torch.ops, namespace(example)).rms_norm(x, weight)[0], w).sum()

    results = []
    for call in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(0)
        leaves = [torch.randn(shape).to(device).requires_grad_() for shape in ((4, 6), (6,), (4, 6))]
        call(*leaves).backward()
        results.append([leaf.grad.cpu() for leaf in leaves])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("settings", [{"HAL_FAKE_ASYNC": 0}, {"HAL_FAKE_ASYNC": 1, "HAL_FAKE_DELAY": 200}, {"HAL_FAKE_PROTECT": 1}], ids=str)
def test_the_example_trains_in_every_mode_of_the_fake_device(built, run_python, settings):
    path = f"{built}{os.pathsep}{PACKAGE.parent}"
    losses = run_python((EXAMPLE / "train.py").read_text(), timeout=300, TORCH_BACKEND="fake", PYTHONPATH=path, **settings).stdout.splitlines()
    assert len(losses) == 20
    for line in losses:
        ours, theirs = (float(part.split()[0]) for part in line.split(", "))
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_the_operators_are_queued_not_run(built, run_python):
    """With a pause before each item of the queue, the calls return while the work is still waiting."""
    path = f"{built}{os.pathsep}{PACKAGE.parent}"
    script = """
    import torch, torch_backend, example_ops
    x = torch.ones(64, device="fake")
    torch.fake.synchronize()
    for _ in range(40):
        x = example_ops.swish(x)
    print(torch.fake.current_stream().query())
    torch.fake.synchronize()
    print(torch.fake.current_stream().query(), bool(x.cpu().isfinite().all()))
    """
    done = run_python(script, TORCH_BACKEND="fake", PYTHONPATH=path, HAL_FAKE_ASYNC=1, HAL_FAKE_DELAY=20000)
    assert done.stdout.split() == ["False", "True", "True"]


def test_importing_the_library_without_a_plugin_names_the_remedy(built, run_python):
    path = f"{built}{os.pathsep}{PACKAGE.parent}"
    done = run_python("import example_ops", check=False, PYTHONPATH=path, TORCH_DEVICE_BACKEND_AUTOLOAD=0)
    assert done.returncode == 1 and "RuntimeError: No plugin of torch_backend is active. Set TORCH_BACKEND=fake" in done.stderr


def test_docstrings_list_shapes_dtypes_and_errors(example):
    text = example.rms_norm.__doc__
    for part in ("Divides each row", "x: the rows; shape [..., D]; dtype float32 | float64 (T)", "eps: added to the mean square; >= 0",
                 "rstd: one over", "not differentiable", "ValueError", "Gradient: x, weight."):  # fmt: skip
        assert part in text, text
    assert set(example.__all__) == {"rms_norm", "rms_norm_backward", "swish", "swish_mul"}


# ---- checks ----


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (lambda d: (torch.ones(2, 3, device=d).long(), torch.ones(3, device=d)), RuntimeError,
         "argument #1 'x' to have one of the following scalar types: Float, Double; but got Long instead .*example::rms_norm"),
        (lambda d: (torch.ones(2, 3, device=d), torch.ones(3, device=d).double()), RuntimeError,
         "example::rms_norm: expected 'weight' to have the dtype of 'x', Float, but got Double"),
        (lambda d: (torch.ones(2, 3, device=d), torch.ones(3)), RuntimeError,
         "same device, but found at least two devices, {device}:0 and cpu! .example::rms_norm: 'x' is on {device}:0, 'weight' is on cpu"),
        (lambda d: (torch.ones(2, 3, device=d), torch.ones(4, device=d)), RuntimeError,
         "example::rms_norm: expected dimension 0 of 'weight' to have the size 3 .D of 'x'., but 'weight' has the shape .4."),
        (lambda d: (torch.ones((), device=d), torch.ones(4, device=d)), RuntimeError,
         "example::rms_norm: expected 'x' to have the shape ...., D., but got "),
        (lambda d: (torch.ones(2, 3, device=d), torch.ones(3, 1, device=d)), RuntimeError,
         "expected 'weight' to have the shape .D., but got .3, 1."),
        (lambda d: (torch.ones(2, 3, device=d), torch.ones(3, device=d), -1.0), ValueError,
         "example::rms_norm: expected 0 <= eps <= inf, but got -1"),
        (lambda d: (torch.ones(2, 3, device=d), torch.ones(3, device=f"{d}:1")), RuntimeError, "{device}:0 and {device}:1"),
        (lambda d: (torch.ones(2, 3, device=d), "three"), RuntimeError, "(?s)Expected a value of type 'Tensor' for argument 'weight'"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused_with_a_message(device, example, arguments, error, message):
    with pytest.raises(error, match=message.replace("{device}", device).replace("example::", f"{namespace(example)}::")):
        example.rms_norm(*arguments(device))


def test_operands_of_different_leading_dimensions_are_refused(device, example):
    with pytest.raises(RuntimeError, match=f"{namespace(example)}::swish_mul: expected the leading dimensions of 'w' to be .2, 3. as those of 'x'"):
        example.swish_mul(torch.ones(2, 3, device=device), torch.ones(3, 2, device=device))


def test_the_second_device_serves_too(device, example):
    x = torch.randn(4, 8)
    ours, _ = example.rms_norm(x.to(f"{device}:1"), torch.ones(8, device=f"{device}:1"))
    assert ours.device.index == 1
    torch.testing.assert_close(ours.cpu(), composition(x, torch.ones(8)), rtol=1e-5, atol=1e-6)


# ---- reroutes ----


def test_torchs_operator_goes_to_the_librarys_and_its_gradient_is_torchs(device, example):
    x = torch.randn(5, 7)
    leaf = x.to(device).requires_grad_()
    torch_backend.ops.reset()
    result = F.silu(leaf)
    assert {row.op: row.native for row in torch_backend.ops.report()}.get(f"{namespace(example)}::swish") == 1
    torch.testing.assert_close(result.detach().cpu(), F.silu(x))
    result.sum().backward()
    theirs = x.clone().requires_grad_()
    F.silu(theirs).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), theirs.grad)


def test_what_a_reroute_does_not_fit_goes_the_usual_way(device, example):
    x = torch.randn(3, dtype=torch.complex64)
    torch_backend.ops.reset()
    torch.testing.assert_close(F.silu(x.to(device)).cpu(), F.silu(x))
    assert f"{namespace(example)}::swish" not in {row.op for row in torch_backend.ops.report()}
    with pytest.raises(RuntimeError):
        F.silu(torch.ones(3, device=device, dtype=torch.int64))


def test_reroutes_can_be_switched_off(device, example):
    with torch_backend.ops.reroutes(False):
        torch_backend.ops.reset()
        x = torch.randn(3)
        torch.testing.assert_close(F.silu(x.to(device)).cpu(), F.silu(x))
        assert f"{namespace(example)}::swish" not in {row.op for row in torch_backend.ops.report()}
    F.silu(x.to(device))
    assert f"{namespace(example)}::swish" in {row.op for row in torch_backend.ops.report()}


def test_a_reroute_serves_only_the_values_it_was_declared_for(device, kinds):
    x = torch.randn(6)
    assert F.gelu(x.to(device), approximate="tanh").tolist() == [7.0] * 6
    torch.testing.assert_close(F.gelu(x.to(device)).cpu(), F.gelu(x))
    matrix = torch.randn(2, 3)  # nan_gelu supports one dimension
    torch.testing.assert_close(F.gelu(matrix.to(device), approximate="tanh").cpu(), F.gelu(matrix, approximate="tanh"))


def test_an_unimplemented_reroute_takes_the_usual_way_natively_or_by_fallback(device, kinds):
    x = torch.randn(6)
    torch_backend.ops.reset()
    torch.testing.assert_close(torch.relu(x.to(device)).cpu(), torch.relu(x))
    torch.testing.assert_close(torch.sin(x.to(device)).cpu(), torch.sin(x))
    rows = {row.op: row for row in torch_backend.ops.report()}
    assert f"{namespace(kinds)}::no_relu" not in rows and any(name.startswith("sin") for name in rows)


# ---- every kind of argument ----


def test_every_kind_of_argument_crosses_to_c(device, kinds):
    x, y, more = torch.ones(2, 3, device=device), torch.ones(2, 4, device=device, dtype=torch.float64), torch.ones(1, device=device)

    def weigh(*arguments, **options):
        result = kinds.weigh(*arguments, **options)
        assert result.shape == (2, 3) and len(set(result.flatten().tolist())) == 1
        return result[0, 0].item()

    assert weigh(x, y, [more, more], 2, 0.25, True, "four", [10, 20], [0.5, 1.0], 3) == 21144.25
    assert weigh(x, None, [], -5, 0.0, False, "", [], [], 2.5, oi=7, si=1, of=None) == 5.5
    if namespace(kinds) == "kinds":  # the number of the others is not a Scalar
        assert weigh(x, None, [more[:0]], 0, 0.0, False, "", [1], [], 2 + 3j, of=0) == 10007


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"i": 6}, ValueError, "::weigh: expected -5 <= i <= 5, but got 6"),
        ({"of": -0.5}, ValueError, "expected 0 <= of <= inf, but got -0.5"),
        ({"y": lambda d: torch.ones(2, 3, device=d).double()}, RuntimeError, "dimension 1 of 'y' to have the size 4, but 'y' has the shape .2, 3."),
        ({"y": lambda d: torch.ones(3, 4, device=d).double()}, RuntimeError, "dimension 0 of 'y' to have the size 2 .N of 'x'"),
        ({"y": lambda d: torch.ones(2, 4, device=d)}, RuntimeError, "argument #2 'y' to have scalar type Double; but got Float"),
        ({"more": lambda d: [torch.ones(1, device=d), torch.ones(1, device=d).double()]}, RuntimeError, "'more' to have the dtype of 'x'"),
        ({"more": lambda d: [torch.ones(1)]}, RuntimeError, "'more' is on cpu"),
        ({"il": [1.5]}, RuntimeError, "argument 'il'"),
        ({"s": 3}, RuntimeError, "argument 's'"),
    ],
    ids=["i", "of", "y's last dimension", "y's first dimension", "y's dtype", "more's dtype", "more's device", "il", "s"],
)
def test_every_kind_of_argument_is_checked(device, kinds, change, error, message):
    arguments = {"x": torch.ones(2, 3, device=device), "y": None, "more": [], "i": 0, "f": 0.0, "b": False, "s": "", "il": [], "fl": [], "number": 1}
    arguments.update({name: value(device) if callable(value) else value for name, value in change.items()})
    with pytest.raises(error, match=message):
        kinds.weigh(**arguments)


def test_results_may_have_computed_shapes_and_operands_any_strides(device, kinds):
    a, b = torch.ones(2, 6, 4, device=device).transpose(1, 2), torch.ones(2, 6, 5, device=device).transpose(1, 2)
    rows, folded = kinds.shapes(a, b)
    assert rows.shape == (2, 9, 6) and folded.shape == (2, 12, 3) and folded.dtype == torch.float32
    assert set(rows.flatten().tolist()) == {5.0}  # the second operand is unchanged
    assert set(folded.flatten().tolist()) == {1.0}  # the first one was made contiguous
    torch_backend.meta.check(f"{namespace(kinds)}::shapes", a, b)
    torch.library.opcheck(getattr(torch.ops, namespace(kinds)).shapes.default, (a, b), test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))


# ---- operators without a kernel ----


def test_an_operator_without_a_kernel_raises_an_error(device, kinds):
    with pytest.raises(NotImplementedError, match=f"{namespace(kinds)}::plugin_only: neither the plugin of {device}:0 nor the operator's library has a kernel "
                       "for these tensors .float.2, 3..*declares no `reference`"):  # fmt: skip
        kinds.plugin_only(torch.ones(2, 3, device=device))
    with pytest.raises(NotImplementedError, match=f"{namespace(kinds)}::plugin_only: the operator has kernels for the '{device}' device only, but its tensors "
                       "are on cpu"):  # fmt: skip
        kinds.plugin_only(torch.ones(2, 3))


def test_a_reference_replaces_a_missing_kernel_and_its_gradient_follows_the_formula(device, kinds):
    x = torch.ones(3, device=device, requires_grad=True)
    bias = torch.ones(3, device=device, requires_grad=True)
    result = kinds.by_reference(x, bias, 0.25)
    assert result.tolist() == [0.5] * 3
    result.sum().backward()
    assert x.grad.tolist() == [0.25] * 3 and bias.grad.tolist() == [0.25] * 3
    x.grad = None
    kinds.by_reference(x, None).sum().backward()
    assert x.grad.tolist() == [0.5] * 3


def test_an_operator_without_a_formula_refuses_the_backward_pass(device, kinds):
    x = torch.ones(3, device=device, requires_grad=True)
    result = kinds.with_bias(x, None)
    with pytest.raises(RuntimeError, match=f"derivative for {namespace(kinds)}::with_bias is not implemented"):
        result.sum().backward()


def test_errors_in_the_list_stop_the_configuration_with_one_message(tmp_path):
    shutil.copytree(KINDS, tmp_path / "source")
    path = tmp_path / "source" / "ops.yaml"
    path.write_text(path.read_text().replace("function: kinds_seven", "functoin: kinds_seven"))
    done = configure(tmp_path / "source", tmp_path / "build")
    assert done.returncode != 0
    assert f"codegen: {path}: op nan_gelu: functoin: unknown key with the value 'kinds_seven'" in " ".join(done.stderr.split())


# ---- meta functions in Python ----


def test_a_meta_function_for_an_operator_of_another_library(device):
    library = torch.library.Library("test_meta", "DEF")
    library.define("repeat(Tensor x, int n) -> Tensor")
    library.impl("repeat", lambda x, n: x.repeat(n), "PrivateUse1")

    @torch_backend.meta.register("test_meta::repeat")
    def _(x, n):
        return x.new_empty(x.shape[0] * n)

    x = torch.arange(3.0, device=device)
    torch_backend.meta.check("test_meta::repeat", x, 4)
    assert torch.compile(lambda x: torch.ops.test_meta.repeat(x, 2) + 1, backend="aot_eager", fullgraph=True)(x).tolist() == [1, 2, 3, 1, 2, 3]


def test_a_wrong_meta_function_is_found(device):
    library = torch.library.Library("test_wrong_meta", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x.repeat(2), "PrivateUse1")
    torch_backend.meta.register("test_wrong_meta::twice")(lambda x: torch.empty_like(x))
    with pytest.raises(AssertionError, match=r"test_wrong_meta::twice: result 0 has the shape \(6,\), but its meta function returns \(3,\)"):
        torch_backend.meta.check("test_wrong_meta::twice", torch.ones(3, device=device))


def test_meta_functions_of_unknown_or_served_operators_are_refused(example):
    with pytest.raises(RuntimeError, match="torch has no operator 'test_meta::nothing'"):
        torch_backend.meta.register("test_meta::nothing")
    with pytest.raises(RuntimeError, match=f"'{namespace(example)}::swish' has a meta function already"):
        torch_backend.meta.register(f"{namespace(example)}::swish")


def test_another_torch_than_the_one_it_was_built_for_is_an_error_with_a_message(libraries, run_python):
    script = """
        import torch, torch_backend
        torch_backend.device_name()
        torch.__version__ = "2.99.1"
        try:
            import single_ops
        except ImportError as error:
            print(error)
    """
    said = run_python(script, TORCH_BACKEND="fake", PYTHONPATH=str(libraries["single_ops"][0])).stdout.strip()
    minor = ".".join(torch.__version__.split(".")[:2])
    assert said == f"the operators of single_ops are built for torch {minor} and torch 2.99.1 is installed; build them again with it"
