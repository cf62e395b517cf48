"""Kernels that clspv compiles and a driver of Vulkan runs: workarounds for faults of both (plugins/vulkan/clspv_compiler.py).
Mesa's llvmpipe 22.3.6 ends loops that read indices too early if they report invalid ones by atomic operations. clspv
truncates the masks of doubles, and llvmpipe rounds them wrong."""

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import driver_scripts
import pytest

import torch_backend

ROOT = Path(__file__).resolve().parents[3]
KERNELS = [f"{family}_{dtype}*" for family in ("scatter_reduce", "fill") for dtype in ("f32", "f64", "i64")]

SCATTER = """
import torch, torch_backend
from torch_backend import fallback

SHAPES = [((5,), 0), ((100,), 0), ((1000,), 0), ((7, 33), 0), ((33, 7), 1), ((64, 64), 1), ((3, 5, 50), 2)]
fallback.reset()
for dtype in (torch.float32, torch.float64, torch.int64):
    for shape, dim in SHAPES:
        for places in (1, 3, 40):
            size = [*shape[:dim], places, *shape[dim + 1 :]]
            to, source = torch.randn(size).mul(3).to(dtype), torch.randn(shape).mul(3).to(dtype)
            index = torch.randint(places, shape)
            for reduce in ("sum", "prod", "amax", "amin"):
                expected = to.scatter_reduce(dim, index, source, reduce)
                for _ in range(2):
                    got = to.to("vk").scatter_reduce(dim, index.to("vk"), source.to("vk"), reduce).cpu()
                    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3, msg=lambda m: f"{dtype} {shape} {places} {reduce}: {m}")
assert not [row for row in fallback.report() if "scatter_reduce" in str(row)], fallback.report()
try:
    torch.zeros(4, device="vk").scatter_reduce(0, torch.tensor([1, 9, 2], device="vk"), torch.ones(3, device="vk"), "sum").cpu()
except IndexError as error:
    assert "index 9 is out of bounds" in str(error), error
else:
    raise AssertionError("an index out of range was not reported")
print("done")
"""


@pytest.fixture
def run_with(tmp_path):
    """Compiles a pack of kernels next to a copy of the plugin, and runs a script with it."""

    def run(kernels, script):
        settings = driver_scripts.vulkan_settings(tmp_path)
        plugin = shutil.copy(Path(torch_backend.__file__).parent / "plugins/libhal_vulkan.so", tmp_path)
        driver_scripts.vulkan_pack(tmp_path / "libhal_vulkan.pack", kernels)
        environment = {**os.environ, **settings, "TORCH_BACKEND": plugin}
        done = subprocess.run([sys.executable, "-P", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.stdout.strip() == "done", done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_loops_that_report_invalid_indices_compute_the_cpus_numbers(run_with):
    run_with(KERNELS, SCATTER)


# ---- double precision ----
DOUBLES = """
import torch, torch_backend
from torch_backend import fallback

torch.manual_seed(0)
one = [torch.abs, torch.log, torch.sin, torch.asin, torch.erf, torch.erfinv, torch.lgamma, torch.digamma]
a = torch.cat([torch.randn(60).double() * 10.0**power for power in range(-6, 4)] + [torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan")])])
a = a.double()
x, b, y = a.to("vk"), a.roll(7), a.roll(7).to("vk")
for function in one:
    torch.testing.assert_close(function(x).cpu(), function(a), equal_nan=True, rtol=1e-11, atol=1e-11, msg=lambda m: f"{function}: {m}")
assert torch.equal(torch.copysign(x, y).cpu().view(torch.int64), torch.copysign(a, b).view(torch.int64))
halves = torch.cat([torch.arange(-9.5, 10), torch.arange(-2.0, 2, 0.25), 2.0 ** torch.arange(48.0, 54).double() + 0.5, a.float()]).double()
for function in (torch.round, torch.floor, torch.ceil, torch.trunc):
    ours, theirs = function(halves.to("vk")).cpu(), function(halves)
    assert torch.equal(ours.view(torch.int64), theirs.view(torch.int64)) or torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(
        ours.nan_to_num().view(torch.int64), theirs.nan_to_num().view(torch.int64)), function
torch.testing.assert_close(torch.round(x, decimals=1).cpu(), torch.round(a, decimals=1), equal_nan=True)
torch.testing.assert_close(torch.lgamma(x.float()).cpu(), torch.lgamma(a.float()), equal_nan=True)  # in double, too
a = torch.cat([torch.linspace(-10, 10, 4001), torch.randn(500) * 1e3, torch.randn(500) * 1e6])  # angles of float
x = a.to("vk")
for function in (torch.sin, torch.cos, torch.tan):
    torch.testing.assert_close(function(x).cpu(), function(a), rtol=1e-6, atol=1e-7, msg=lambda m: f"{function}: {m}")
names = {f"aten::{function.__name__}" for function in (*one, torch.copysign, torch.cos, torch.tan, torch.round, torch.floor)}
assert not [row for row in fallback.report() if row.op.split(".")[0] in names], fallback.report()
print("done")
"""


@pytest.mark.slow
def test_functions_of_doubles_are_the_cpus(run_with):
    names = ("abs", "log", "sin", "asin", "erf", "erfinv", "lgamma", "digamma", "copysign", "round", "round_decimals", "floor", "ceil", "trunc")
    run_with([*(f"{name}_f64_*" for name in names), "sin_f32_*", "cos_f32_*", "tan_f32_*", "lgamma_f32_*", "copy_f64_f32*"], DOUBLES)


# ---- the compiler of the pack ----
# A module of SPIR-V with one string, which the compiler's first runs do not write.
CRASHES = """
import os, signal, struct
def compile(text):
    with open("runs", "a+") as file:
        file.write("x")
        file.flush()
        file.seek(0)
        if len(file.read()) <= int(os.environ["CRASHES"]):
            os.kill(os.getpid(), signal.SIGSEGV)
    return struct.pack("<8I", 0x07230203, 0x10000, 0, 2, 0, 3 << 16 | 7, 1, 0)
"""


@pytest.mark.parametrize(("crashes", "runs"), [(0, 1), (3, 4), (100, 8)])
def test_a_compiler_that_ends_by_a_signal_runs_again(tmp_path, crashes, runs):
    (tmp_path / "pyclspv.py").write_text(CRASHES)
    (tmp_path / "kernel.cl").write_text("")
    command = [sys.executable, "-P", ROOT / "plugins/vulkan/clspv_compiler.py", "kernel.cl", "kernel.spv"]
    environment = {**os.environ, "PATH": "", "PYTHONPATH": str(tmp_path), "CRASHES": str(crashes), "HAL_PACK_KERNEL": "add_f32_contig"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert len((tmp_path / "runs").read_text()) == runs
    if crashes < 8:
        assert done.returncode == 0 and b"torch_backend.fold=" in (tmp_path / "kernel.spv").read_bytes(), done.stderr
    else:
        assert done.returncode == 1 and "ended by signal 11 in each of 8 runs" in done.stderr, done.stderr


def test_an_invalid_module_is_not_written(tmp_path):
    if shutil.which("spirv-val") is None:
        pytest.skip("needs spirv-tools")
    (tmp_path / "pyclspv.py").write_text(CRASHES)  # a module without a memory model
    (tmp_path / "kernel.cl").write_text("")
    command = [sys.executable, "-P", ROOT / "plugins/vulkan/clspv_compiler.py", "kernel.cl", "kernel.spv"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "CRASHES": "0", "HAL_PACK_KERNEL": "add_f32_contig"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "clspv wrote an invalid module: error: " in done.stderr and not (tmp_path / "kernel.spv").exists()


# A function with the masks of clspv's fabs and copysign of double, for numbers and vectors, and those of integers.
MASKED = """
OpCapability Shader
OpCapability Float64
OpCapability Int64
OpCapability Linkage
OpMemoryModel Logical GLSL450
%void = OpTypeVoid
%ulong = OpTypeInt 64 0
%double = OpTypeFloat 64
%v2ulong = OpTypeVector %ulong 2
%v2double = OpTypeVector %double 2
%low = OpConstant %ulong 2147483647
%high = OpConstant %ulong 18446744071562067968
%lows = OpConstantComposite %v2ulong %low %low
%type = OpTypeFunction %void %double %v2double %ulong
%function = OpFunction %void None %type
%x = OpFunctionParameter %double
%y = OpFunctionParameter %v2double
%n = OpFunctionParameter %ulong
%begin = OpLabel
%1 = OpFNegate %double %x
%2 = OpBitcast %ulong %1
%3 = OpBitwiseAnd %ulong %2 %low
%4 = OpBitwiseAnd %ulong %2 %high
%5 = OpBitwiseOr %ulong %3 %4
%6 = OpBitwiseAnd %ulong %low %5
%7 = OpFAdd %v2double %y %y
%8 = OpBitcast %v2ulong %7
%9 = OpBitwiseAnd %v2ulong %8 %lows
%10 = OpIAdd %ulong %n %n
%11 = OpBitwiseAnd %ulong %10 %low
%12 = OpBitwiseAnd %ulong %10 %high
OpReturn
OpFunctionEnd
"""


@pytest.fixture
def mend(tmp_path):
    """Applies a function of the compiler to a module of SPIR-V; returns the text of the mended module, which is valid, and
    does not change when it is mended again."""
    if not all(map(shutil.which, ("spirv-as", "spirv-val", "spirv-dis"))):
        pytest.skip("needs spirv-tools")
    spec = importlib.util.spec_from_file_location("clspv_compiler", ROOT / "plugins/vulkan/clspv_compiler.py")
    compiler = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiler)

    def mended(function, text):
        (tmp_path / "before").write_text(text)
        subprocess.run(["spirv-as", "--preserve-numeric-ids", "-o", "module", "before"], cwd=tmp_path, check=True)
        module = (tmp_path / "module").read_bytes()
        words = list(struct.unpack(f"<{len(module) // 4}I", module))
        getattr(compiler, function)(words)
        (tmp_path / "module").write_bytes(struct.pack(f"<{len(words)}I", *words))
        subprocess.run(["spirv-val", "module"], cwd=tmp_path, check=True)
        before = list(words)
        getattr(compiler, function)(words)
        assert words == before
        return subprocess.run(["spirv-dis", "--raw-id", "module"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    return mended


def test_only_masks_of_doubles_are_mended(mend):
    text = mend("mend_masks", MASKED)
    constants = dict(re.findall(r"(%\d+) = OpConstant\w* %\d+ (.*)", text))
    used = {int(line[0]): {constants.get(operand) for operand in line[1:]} for line in re.findall(r"%(\d+) = OpBitwiseAnd %\d+ (%\d+) (%\d+)", text)}
    low, high = {"2147483647", "9223372036854775807"}, {"18446744071562067968", "9223372036854775808"}
    assert [used[place] & (low | high) for place in (3, 4, 6, 11, 12)] == [
        {"9223372036854775807"}, {"9223372036854775808"}, {"9223372036854775807"}, {"2147483647"}, {"18446744071562067968"}]  # fmt: skip
    (parts,) = used[9] - {None}
    assert [constants[part] for part in parts.split()] == ["9223372036854775807"] * 2


# Indices that clspv writes for distances of -4 and -16 bytes (elements of 4 and 8 bytes), also if another addition or a
# loop is between them and the access, and the same numbers elsewhere.
INDEXED = """
OpCapability Shader
OpCapability Linkage
OpMemoryModel Logical GLSL450
%void = OpTypeVoid
%uint = OpTypeInt 32 0
%bool = OpTypeBool
%float = OpTypeFloat 32
%size = OpConstant %uint 64
%one = OpConstant %uint 1
%back4 = OpConstant %uint 1073741823
%back8 = OpConstant %uint 536870910
%mask = OpConstant %uint 2147483647
%array = OpTypeArray %float %size
%pointer = OpTypePointer Function %array
%element = OpTypePointer Function %float
%type = OpTypeFunction %void %uint %bool
%function = OpFunction %void None %type
%n = OpFunctionParameter %uint
%again = OpFunctionParameter %bool
%begin = OpLabel
%sum = OpVariable %pointer Function
%1 = OpIAdd %uint %n %back4
%2 = OpAccessChain %element %sum %1
%3 = OpIAdd %uint %back8 %n
%4 = OpIAdd %uint %3 %one
OpBranch %loop
%loop = OpLabel
%5 = OpPhi %uint %4 %begin %6 %loop
%6 = OpIAdd %uint %5 %one
%7 = OpAccessChain %element %sum %5
OpLoopMerge %end %loop None
OpBranchConditional %again %loop %end
%end = OpLabel
%8 = OpIAdd %uint %n %back4
%9 = OpBitwiseAnd %uint %8 %mask
OpReturn
OpFunctionEnd
"""


def test_only_negative_distances_of_indices_are_mended(mend):
    text = mend("mend_indices", INDEXED)
    constants = dict(re.findall(r"(%\d+) = OpConstant %\d+ (.*)", text))
    added = {int(line[0]): {constants.get(operand) for operand in line[1:]} - {None} for line in re.findall(r"%(\d+) = OpIAdd %\d+ (%\d+) (%\d+)", text)}
    assert added == {1: {"4294967295"}, 3: {"4294967294"}, 4: {"1"}, 6: {"1"}, 8: {"1073741823"}}
    assert re.search(r"%9 = OpBitwiseAnd %\d+ %8 (%\d+)", text)[1] in {name for name, value in constants.items() if value == "2147483647"}


# ---- gradients of padding, sorts ----
BEFORE = """
import torch, torch_backend
from torch_backend import fallback

torch.manual_seed(0)
for size, padding in (((1, 1, 3), (0, 2)), ((2, 3, 5), (2, 1)), ((2, 2, 4, 5), (1, 2, 2, 1)), ((1, 2, 3, 4, 5), (0, 3, 1, 2, 2, 1))):
    grads = []
    for place in ("cpu", "vk"):
        torch.manual_seed(1)
        x = torch.randn(size).to(place).requires_grad_()
        y = torch.nn.functional.pad(x, padding, mode="replicate")
        y.backward(torch.randn(y.shape).to(place))
        grads.append(x.grad.cpu())
    torch.testing.assert_close(*grads, msg=lambda m: f"{size} {padding}: {m}")
for n in (5, 1000, 20011):
    x = torch.randn(n)
    for ours, theirs in zip(x.to("vk").sort(stable=True), x.sort(stable=True)):
        assert torch.equal(ours.cpu(), theirs), n
rows = {row.op for row in fallback.report()}
assert not [row for row in rows if "backward" in row or "sort" in row], rows
print("done")
"""


@pytest.mark.slow
def test_elements_before_an_index_are_accessed(run_with):
    run_with(["pad_backward_f32_*", "sort_f32_*"], BEFORE)


# ---- copies ----
HALVES = """
import torch, torch_backend
from torch_backend import fallback

for half in (torch.bfloat16, torch.float16):
    for n in (1, 7, 8, 64, 1003):
        for skip in (0, 1):
            a = torch.cat([torch.randn(n), torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 65504.0, 1e-7])])
            x = a.to("vk")[skip:]
            assert torch.equal(x.to(half).cpu(), a[skip:].to(half)), (half, n, skip)
            assert torch.equal(a.to(half).to("vk")[skip:].float().cpu(), a.to(half)[skip:].float()), (half, n, skip)
    for a in (torch.randn(3, 70), torch.randn(2, 5, 40)):
        of, to = a.to("vk").mT, torch.empty_like(a, device="vk").mT
        assert torch.equal(torch.empty(of.shape, dtype=half, device="vk").copy_(of).cpu(), a.mT.to(half)), (half, a.shape)
        assert torch.equal(to.copy_(a.to(half).mT.contiguous().to("vk")).cpu(), a.mT.to(half).float()), (half, a.shape)
assert not fallback.report(), fallback.report()
print("done")
"""


@pytest.mark.slow
def test_copies_between_half_precision_and_float_are_compiled(run_with):
    run_with([f"copy_{to}_{of}_*" for half in ("f16", "bf16") for to, of in ((half, "f32"), ("f32", half))], HALVES)


COMPLEX = """
import torch, torch_backend
from torch_backend import fallback

x = torch.randn(3, 5)
assert torch.equal(x.to("vk").cdouble().cpu(), x.cdouble())
assert torch.equal(x.to("vk").t().cdouble().cpu(), x.t().cdouble())
assert [row.op for row in fallback.report()] == ["aten::copy_"], fallback.report()
print("done")
"""


@pytest.mark.slow
def test_a_copy_of_two_kernels_falls_back_if_the_second_is_missing(run_with):
    run_with(["copy_f64_f32_*"], COMPLEX)  # without copy_c128_f64_*


MISSING = """
import torch, torch_backend

torch.manual_seed(0)
for dtype in (torch.float32, torch.float16):
    grads = []
    for place in ("cpu", "vk"):
        torch.manual_seed(0)
        x, w, b = [torch.randn(size).to(dtype).to(place).requires_grad_() for size in ((2, 6, 3), (6,), (6,))]
        y = torch.nn.functional.group_norm(x, 3, w, b)
        y.backward(torch.randn(y.shape).to(dtype).to(place))
        grads.append([y.detach().cpu(), *(t.grad.cpu() for t in (x, w, b))])
    torch.testing.assert_close(*grads, rtol=1e-2, atol=1e-2)
print("done")
"""


@pytest.mark.slow
def test_a_gradient_of_several_kernels_falls_back_if_one_is_missing(run_with):
    run_with(["addcmul_f32_*"], MISSING)  # without dot_f32_*
