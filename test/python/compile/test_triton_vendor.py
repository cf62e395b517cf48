"""A vendor's Triton backend: that of docs/examples/triton_vendor, whose compiler translates Triton IR to C for the plugin
fake. Its kernels run, alone and in compiled code, and have the CPU's results."""

import importlib.util
import os
import re
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDER = Path(os.environ.get("TRITON_PACKAGES", ROOT / "build" / "triton"))
IS_INSTALLED = (FOLDER / "triton").is_dir() or importlib.util.find_spec("triton") is not None
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_INSTALLED, reason="Triton is not installed; `make test-full` installs it"),
              pytest.mark.host_memory("inductor's C++ kernels read and write device addresses")]  # fmt: skip

HEAD = """
import torch, torch_backend
torch_backend.use("fake")
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def tuned(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

x, y = torch.randn(1000), torch.randn(1000)
a, b = x.to("fake"), y.to("fake")
"""


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    """The vendor's package as pip installs it, and folders for caches."""
    folder = tmp_path_factory.mktemp("vendor")
    shutil.copytree(ROOT / "docs/examples/triton_vendor/acme_triton", folder / "acme_triton")
    project = (ROOT / "docs/examples/triton_vendor/pyproject.toml").read_text()
    assert '[project.entry-points."triton.backends"]\nacme = "acme_triton"' in project
    information = folder / "acme_triton-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-triton\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[triton.backends]\nacme = acme_triton\n")
    return folder


@pytest.fixture
def run(run_python, vendor, tmp_path):
    def run(script, with_vendor=True, **settings):
        paths = [str(vendor)] * with_vendor + [str(FOLDER)]
        head = f"import sys; sys.path[:0] = {paths[:-1]!r}; sys.path.append({paths[-1]!r})\n"
        caches = {"TRITON_CACHE_DIR": vendor / "triton", "TORCHINDUCTOR_CACHE_DIR": tmp_path / "inductor"}
        return run_python(head + HEAD + script, timeout=300, HAL_FAKE_DEVICES="2", **caches, **settings)

    return run


def test_kernels_have_the_cpus_results(run):
    run("""
@triton.jit
def mixed(x, y, out, sums, n, f, BLOCK: tl.constexpr):
    at = tl.program_id(0)
    i = at * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x + i, mask=i < n, other=0.0)
    right = tl.load(y + i, mask=i < n, other=0.0)
    tl.store(sums + at, tl.sum(left * right, axis=0))
    tl.store(out + i, tl.where(left > 0.5, tl.exp(left) * f, right / 3.0), mask=i < n)

out, sums = torch.empty(1000, device="fake"), torch.empty(8, device="fake")
mixed[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](a, b, out, sums, 1000, 2.5, BLOCK=128)
torch.testing.assert_close(out.cpu(), torch.where(x > 0.5, x.exp() * 2.5, y / 3))
torch.testing.assert_close(sums.cpu(), torch.stack([part.sum() for part in (x * y).split(128)]))
for index in (1, 0):
    with torch.accelerator.device_index(index):
        place = f"fake:{index}"
        out = torch.empty(1000, device=place)
        add[(16,)](x.to(place), y.to(place), out, 1000, BLOCK=64)
        assert torch.equal(out.cpu(), x + y)
out = torch.empty(1000, device="fake")
tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](a, b, out, 1000)
assert torch.equal(out.cpu(), x + y) and tuned.best_config.kwargs["BLOCK"] in (64, 128)
from triton.runtime import driver
assert type(driver.active).__name__ == "AcmeDriver" and driver.active.get_current_target().backend == "acme"
""")


def test_what_the_vendors_compiler_or_plugin_lacks_is_an_error_that_names_it(run):
    run("""
@triton.jit
def places(out):
    tl.store(out + tl.program_id(1), tl.num_programs(0))

for call, words in ((lambda: places[(2,)](a), "acme: the operation"), (lambda: add[(2, 2)](a, b, a, 1000, BLOCK=64), "'add'")):
    try:
        call()
        torch.accelerator.synchronize()
    except (NotImplementedError, RuntimeError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
""")


FUNCTIONS = """
@torch.library.triton_op("mine::add", mutates_args={})
def my_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)](x, y, out, out.numel(), BLOCK=64)
    return out

def operator(x, y):
    return torch.sin(my_add(x * 2, y)) + 1

def direct(x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK=128)
    return out * 2

def measured(x, y):
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out * 2

expected = {operator: torch.sin(x * 2 + y) + 1, direct: (x + y) * 2, measured: (x + y) * 2}
"""


@pytest.mark.parametrize("name", ["operator", "direct", "measured"])
def test_compiled_code_calls_kernels_and_operators_of_kernels(name, run):
    run(FUNCTIONS + f"function = {name}" + """
for options in ({"backend": "aot_eager"}, {}, {"dynamic": True}, {"mode": "reduce-overhead"}):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, **options)
    for _ in range(3 if "mode" in options else 1):
        torch.testing.assert_close(compiled(a, b).cpu(), expected[function], msg=f"{options}")
""")


GENERATED = {
    "arithmetic": "lambda x, y: (x * 2 + y) / (y * y + 1) - 3",
    "comparisons": "lambda x, y: torch.where(x > y, x.relu(), y.abs() * 0.5)",
    "several results": "lambda x, y: (x + y, x - y, (x * y).neg())",
    "views": "lambda x, y: x.view(10, 100)[2:7] * 2 + y.view(10, 100)[:5]",
}


@pytest.mark.parametrize("name", GENERATED)
def test_kernels_that_inductor_generates_have_the_cpus_results(name, run):
    run(f"""
from torch._inductor.utils import run_and_get_code
function = {GENERATED[name]}
result, (code, *_) = run_and_get_code(torch.compile(function), a, b)
assert "async_compile.triton(" in code and "  queue_on_host(" not in code
torch.testing.assert_close([one.cpu() for one in torch.utils._pytree.tree_leaves(result)], torch.utils._pytree.tree_leaves(function(x, y)))
""", TORCH_BACKEND_INDUCTOR_TRITON="1")


def test_without_the_vendors_backend_generated_kernels_are_an_error_with_the_cure(run):
    run("""
try:
    torch.compile(lambda x: x + 1)(a)
    raise SystemExit("Triton has no compiler for the device")
except Exception as error:
    assert "TORCH_BACKEND_INDUCTOR_TRITON=1" in str(error) and "the device's vendor" in str(error), error
""", with_vendor=False, TORCH_BACKEND_INDUCTOR_TRITON="1")


def test_an_operator_of_a_kernel_is_a_correct_operator(run):
    run(FUNCTIONS + "torch.library.opcheck(my_add, (a, b))")


def test_code_that_cpp_launches_refuses_kernels(run):
    run(FUNCTIONS + """
def refused(call, words):
    torch._dynamo.reset()
    try:
        call()
    except Exception as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)

refused(lambda: torch.compile(direct, options={"cpp_wrapper": True})(a, b), ("cpp_wrapper cannot contain the Triton kernel 'add'", "without cpp_wrapper"))

class Model(torch.nn.Module):
    def forward(self, x, y):
        return operator(x, y)

exported = torch.export.export(Model(), (a, b))
refused(lambda: torch._inductor.aoti_compile_and_package(exported), ("a package of AOTInductor cannot contain the Triton kernel 'add'",))
""")


def test_without_the_vendors_backend_compiled_code_has_the_error_too(run):
    run("""
def direct(x, y):
    out = torch.empty_like(x)
    add[(16,)](x, y, out, 1000, BLOCK=64)
    return out

for options in ({}, {"backend": "aot_eager"}, {"fullgraph": True}):
    torch._dynamo.reset()
    try:
        torch.compile(direct, **options)(a, b)
    except Exception as error:
        assert "Triton cannot compile for 'fake:0'" in str(error) and "the device's vendor" in str(error), error
    else:
        raise AssertionError(options)
assert torch.equal(torch.compile(lambda x, y: x + y)(a, b).cpu(), x + y)
""", with_vendor=False)  # fmt: skip


def test_the_program_of_the_guide_has_the_cpus_results(run):
    program = re.search(r"```python\n(.*?)```", (ROOT / "docs/triton.md").read_text(), re.S)[1]
    program = program.replace('"cuda"', '"fake"').replace("nvgpu", "fake")
    run(program + """
assert torch.equal(result.cpu(), x.cpu() + y.cpu()) and torch.equal(compiled.cpu(), (x.cpu() + y.cpu()) * 2)
""")  # fmt: skip
