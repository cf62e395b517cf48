"""The OpenCL plugin in PyTorch, on any OpenCL device: portable kernels compiled from source produce the CPU's numbers,
networks train without a fallback, and the next process finds compiled kernels."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import driver_scripts
import pytest

TESTS = Path(__file__).resolve().parents[1]
OPINFO = TESTS.parent / "opinfo" / "run.py"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return driver_scripts.opencl_kernels(tmp_path_factory)


@pytest.fixture
def run_tests(settings, tmp_path):
    """Runs tests of other files on the OpenCL device; returns the output of pytest."""

    def run(path, *options, timeout=1800, **more):
        return driver_scripts.run_tests("opencl", {**settings, **more}, tmp_path, path, *options, timeout=timeout)

    return run


TRAIN = """
import torch
from torch_backend import fallback
def train(place, steps=6):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                              torch.nn.Flatten(), torch.nn.Linear(128, 10)).to(place)
    data, labels = torch.randn(16, 1, 8, 8).to(place), (torch.arange(16) % 10).to(place)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(data), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""


SLOW = pytest.mark.slow  # each compiles all kernels again


@pytest.mark.parametrize("memory, form", [("svm-fine", "cpu"), pytest.param("svm-coarse", "cpu", marks=SLOW), pytest.param("buffer", "cpu", marks=SLOW),
                                          pytest.param("svm-fine", "simt", marks=SLOW)])  # fmt: skip
def test_a_network_trains_as_on_the_cpu_without_a_fallback(run, memory, form):
    script = f"{TRAIN}\ntorch.testing.assert_close(train('ocl'), train('cpu'), rtol=1e-4, atol=1e-5)\nassert not fallback.report(), fallback.report()"
    done = run(script, HAL_OPENCL_MEMORY=memory, HAL_OPENCL_FORM=form)
    assert "computed by the fallback" not in done.stderr


# Empty views: with an offset into no memory, and at the end of a tensor. Such an address is in no memory of the device,
# which OpenCL's buffers detect.
EMPTY = """
import torch
def work(place):
    whole = torch.ones(1 << 20, device=place)
    none = lambda *sizes: torch.empty(*sizes, 2, device=place)[..., 1]
    end = lambda *sizes: whole[1 << 20:].reshape(sizes)
    out = []
    for e in (none, end):
        out += [e(4, 0) @ e(0, 3), e(3, 0).sum(1), torch.cat([e(0, 3), torch.ones(2, 3, device=place)]), e(0, 2).clone(), e(2, 0).exp()]
        if not {all_operators}:
            continue
        out += [torch.dot(e(0), e(0)), torch.bmm(e(2, 3, 0), e(2, 0, 3)), e(3, 0).amax(0), e(0, 3).prod(0), e(0) + 1, e(2, 0).softmax(1),
                torch.nn.functional.linear(e(3, 0), e(2, 0), torch.ones(2, device=place)), e(3, 0).cumsum(0), e(0).sort()[0], e(0, 2).var(0),
                e(2, 0).mean(1), e(0, 4)[:, 1:3], e(2, 0).logsumexp(1), e(0, 3).index_select(1, torch.zeros(2, dtype=torch.long, device=place)),
                torch.ones(3, device=place).index_add(0, torch.zeros(0, dtype=torch.long, device=place), e(0)), e(0).double(), e(2, 0).fill_(1)]
    return [value.cpu() for value in out]
for expected, actual in zip(work("cpu"), work("ocl")):
    torch.testing.assert_close(actual, expected, equal_nan=True)
"""


@pytest.mark.parametrize("all_operators", [False, pytest.param(True, marks=SLOW)])
def test_empty_views_have_no_address(run, all_operators):
    run(EMPTY.format(all_operators=all_operators), HAL_OPENCL_MEMORY="buffer")


# test_models.py: losses and weights of the CPU, and those in mixed precision, which follow them. float16, which scales
# gradients, stands for bfloat16, too: each dtype compiles all kernels again.
def test_a_model_gets_the_losses_and_weights_of_the_cpu(run_tests):
    assert "2 passed" in run_tests("training/test_models.py", "-k", "vae and float32_losses and not bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["digits", "resnet", "lstm", "transformer", "vae"])
def test_models_train_as_on_the_cpu_in_float32_and_under_autocast(run_tests, model):
    assert "7 passed" in run_tests("training/test_models.py", "-k", model)


CONVOLVE = """
import torch
from torch_backend import fallback
def convolve(place, dtype, image, weight, transposed):
    torch.manual_seed(0)
    kind = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
    layer = kind(6, 8, 3, stride=2, padding=1, groups=2).to(dtype).to(place).to(memory_format=weight)
    x = torch.randn(2, 6, 9, 8).to(dtype).to(place).to(memory_format=image).detach().requires_grad_()
    y = layer(x)
    y.float().sin().sum().backward()
    return y, x.grad, layer.weight.grad, layer.bias.grad
dense, last = torch.contiguous_format, torch.channels_last
for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 2e-2), (torch.bfloat16, 2e-2)):
    for case in ((dense, dense, False), (last, dense, False), (last, last, True), (dense, last, False)):
        for ours, theirs in zip(convolve("ocl", dtype, *case), convolve("cpu", dtype, *case), strict=True):
            assert ours.stride() == theirs.stride(), (dtype, case)
            torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)
assert not fallback.report(), fallback.report()
"""


@pytest.mark.parametrize("form", [pytest.param("cpu", marks=SLOW), pytest.param("simt", marks=SLOW)])
def test_convolutions_of_every_dtype_and_order_are_the_cpus(run, form):
    """Half precision and channels last are read without a copy."""
    done = run(CONVOLVE, HAL_OPENCL_FORM=form)
    assert done.returncode == 0, done.stderr[-2000:]


RUNS = """
import torch
functional = torch.nn.functional
def check(ours, theirs, dtype):
    tolerance = {torch.float16: 2e-3, torch.float32: 1e-5}.get(dtype, 0)
    torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)
torch.manual_seed(0)
for dtype in (torch.float32, torch.float16, torch.uint8):
    for n in (1, 3, 5, 16, 1003):
        for first, second, third in ((0, 0, 0), (1, 1, 1), (0, 3, 0), (2, 0, 1)):
            values = [(torch.rand(n + 3) * 9).to(dtype) for _ in range(2)]
            (a, b), (x, y) = [[t[at:at + n] for t, at in zip(ts, (first, second))] for ts in (values, [t.to("ocl") for t in values])]
            into = torch.zeros(n + 4, dtype=dtype, device="ocl")
            torch.add(x, y, out=into[third:third + n])
            expected = torch.zeros(n + 4, dtype=dtype)
            expected[third:third + n] = a + b
            check(into, expected, dtype)  # nothing outside it is written
            check(x > y, a > b, dtype), check(torch.where(x > y, x, y), torch.where(a > b, a, b), dtype)
            check(x * 2, a * 2, dtype), check(x.float(), a.float(), dtype), check(x.sum(), a.sum(), dtype)
    if dtype.is_floating_point:
        for n in (3, 64, 1003):
            t = torch.randn(7, n).to(dtype)
            for u in (t, t.flatten()[1:].narrow(0, 0, 6 * n).view(6, n)):
                v = t.to("ocl") if u is t else t.to("ocl").flatten()[1:].narrow(0, 0, 6 * n).view(6, n)
                check(v.sum(1), u.sum(1), torch.float16), check(v.softmax(1), u.softmax(1), dtype), check(v.log_softmax(1), u.log_softmax(1), torch.float16)
                check(functional.layer_norm(v, (n,)), functional.layer_norm(u, (n,)), torch.float16)
"""


@SLOW
def test_operands_that_begin_anywhere_are_read_in_runs_or_by_element(run):
    done = run(RUNS, HAL_OPENCL_FORM="simt")
    assert done.returncode == 0, done.stderr[-2000:]


# A sum in both forms, and each other reduction in one of them: each compiles several kernels.
@pytest.mark.parametrize("form, passed, names", [("cpu", 4, "every_device or (float32 and (squares or count)) or (bfloat16 and squares)"),
                                                 ("simt", 3, "every_device or (float32 and (squares or largest))")], ids=["cpu", "simt"])  # fmt: skip
def test_reductions_end_groups_of_lazy_work(run_tests, form, passed, names):
    assert f"{passed} passed" in run_tests("device/test_lazy_segments.py", "-k", names, HAL_OPENCL_FORM=form)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["cpu", "simt"])
def test_all_groups_with_reductions_of_lazy_work(run_tests, form):
    run_tests("device/test_lazy_segments.py", HAL_OPENCL_FORM=form)


STEP = """
import torch
x, w = torch.randn(8, 16), torch.randn(16, 4)
def compute(x, w):
    y = (x @ w).softmax(1)
    return (y * 2).relu(), y.sum(0)
for ours, theirs in zip(compute(x.to("ocl"), w.to("ocl")), compute(x, w)):
    torch.testing.assert_close(ours.cpu(), theirs)  # kernels of binaries compute, too
"""


def test_compiled_kernels_are_found_again_by_the_next_process(run, tmp_path):
    script = f"{STEP}\nfrom torch_backend import _C\nstats = _C.kernel_stats(0)\nprint(stats['compiled'], stats['loaded'], stats['refused'])"
    run(script, HAL_CACHE_DIR=tmp_path)
    compiled, loaded, refused = map(int, run(script, HAL_CACHE_DIR=tmp_path).stdout.split())
    assert compiled == 0 and refused == 0 and loaded >= 4


def test_a_training_step_is_captured_and_replayed(run):
    script = """
import torch
def train(place, graphed):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(place)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    data, labels = torch.randn(16, 8).to(place), (torch.arange(16) % 4).to(place)
    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(net(data), labels)
        loss.backward()
        optimizer.step()
        return loss
    losses = [step().item() for _ in range(3)]
    if graphed:
        graph = torch.accelerator.Graph()
        with torch.ocl.graph(graph):
            loss = step()
    for _ in range(5):
        if graphed:
            graph.replay()
        else:
            loss = step()
        losses.append(loss.item())
    return losses
torch.testing.assert_close(train("ocl", True), train("cpu", False), rtol=1e-4, atol=1e-5)
graph = torch.accelerator.Graph()
with torch.ocl.graph(graph):
    sampled = torch.rand(1000, device="ocl")
torch.manual_seed(1)
expected = [torch.rand(1000, device="ocl") for _ in range(2)]
torch.manual_seed(1)
for numbers in expected:
    graph.replay()
    assert torch.equal(sampled, numbers)
"""
    run(script)


def test_two_plugins_compute_in_one_process_and_copy_among_each_other(run):
    run(
        """
        import torch
        a = torch.arange(1000.0, device="fake:0")
        b = a.to("fake:1")
        assert torch.get_device_module("fake").get_device_properties(1).name != torch.get_device_module("fake").get_device_properties(0).name
        torch.testing.assert_close((b * 2 + 1).to("fake:0").cpu(), torch.arange(1000.0) * 2 + 1)
        """,
        TORCH_BACKEND="fake,opencl",
        HAL_FAKE_DEVICES="1",
    )


def test_half_precision_integers_and_complex_numbers_equal_the_cpus(run):
    run(
        """
        import torch
        torch.manual_seed(0)
        for dtype in (torch.float16, torch.float64, torch.int64):
            a, b = (torch.randn(33, 47) * 9).to(dtype), (torch.randn(47, 20) * 9).to(dtype)
            x, y = a.to("ocl"), b.to("ocl")
            torch.testing.assert_close((x + x).cpu(), a + a)
            torch.testing.assert_close(x.sum(1).cpu(), a.sum(1))
            torch.testing.assert_close((x @ y).cpu(), a @ b)
            torch.testing.assert_close(x.t().contiguous().cpu(), a.t().contiguous())
        z = torch.randn(33, 47, dtype=torch.complex64)
        torch.testing.assert_close(z.to("ocl").sum(1).cpu(), z.sum(1))
        torch.testing.assert_close(z.to("ocl").mean(0).cpu(), z.mean(0))
        """
    )


def test_running_logarithms_of_sums_are_as_exact_as_their_type(run):
    run(driver_scripts.sum_logarithms("ocl"))


def test_uniform_numbers_are_those_of_the_fake_device_bit_for_bit(run_python, settings):
    script = "import torch; torch.manual_seed(7); print(torch.rand(1003, device='{}').cpu().view(torch.int32).sum().item())"
    other = run_python(script.format("fake"), TORCH_BACKEND="fake")
    assert run_python(script.format("ocl"), **settings).stdout == other.stdout


def test_a_compiler_that_fails_leaves_the_fallback_and_a_warning(run):
    done = run(
        """
        import torch
        x = torch.randn(9, device="ocl")
        torch.testing.assert_close(torch.sinh(x).cpu(), torch.sinh(x.cpu()))
        """,
        HAL_LAYERS="fault",
        HAL_FAULT="module_load:1:INVALID_ARGUMENT",
    )
    assert "computed by the fallback" in done.stderr


@pytest.mark.slow
def test_the_demo_trains(settings, tmp_path):
    command = [sys.executable, "-P", "-m", "torch_backend.demo", "--quiet", "--json", "--picture", str(tmp_path / "loss.png")]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout[done.stdout.index("{") :])
    assert summary["parameter_device"] == "ocl:0" and summary["accuracy"] >= 0.93 and summary["loss_difference"] <= 1e-4


@pytest.fixture
def sweep(settings, tmp_path):
    """Runs the operator database; returns the kinds of the outcomes and the output. Differences from the committed
    lists, which have few entries with a reason each, fail."""

    def run(*options):
        command = [sys.executable, "-P", str(OPINFO), "--plugin", "opencl", "--timeout", "400", "--json", str(tmp_path / "o.json"), *options]
        done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=3000, cwd=tmp_path)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return [outcome["kind"] for outcome in json.loads((tmp_path / "o.json").read_text())], done.stdout

    return run


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "strict"])
def test_the_operator_database_has_the_cpus_results(sweep, mode):
    kinds, printed = sweep("--dtype", "float32", "--mode", mode)
    assert kinds.count("wrong") == 0 and kinds.count("crash") == 0
    if mode == "async":
        assert kinds.count("pass") >= 666  # 99 % of the 672 that can be sampled
    else:
        assert int(re.search(r"^strict +(\d+)", printed, re.MULTILINE)[1]) >= 520  # without a fallback


@pytest.mark.slow
def test_compiled_operators_have_the_cpus_results(sweep):
    """Compiled by inductor, an eighth of the database: each entry starts a compiler."""
    kinds, _ = sweep("--dtype", "float32", "--mode", "compiled", "--every", "8")
    assert kinds.count("pass") >= 83 and not {"wrong", "error", "crash"} & set(kinds)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "int64", "bool"])
def test_the_operator_database_has_the_cpus_results_in_other_dtypes(sweep, dtype):
    kinds, _ = sweep("--dtype", dtype, "--mode", "async")
    assert kinds.count("crash") == 0 and kinds.count("error") == 0
