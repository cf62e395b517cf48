"""torch_backend.autocompare: finds a wrong result of a plugin at its first call, reports the location, and writes a
file that reproduces it. It reports nothing on correct devices."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import warm_interpreter
import torch_backend

KINDS = {"reads": 1, "input": 2, "around": 3, "backward": 4, "good": 5}


@pytest.fixture
def crooked(build_plugin):
    """Returns a plugin of crooked.c by the kind of its fault."""
    return lambda kind: build_plugin(f"crooked_{kind}", "crooked.c", CROOKED=KINDS[kind])


@pytest.fixture
def run(run_python, crooked):
    """Runs a script on a plugin with a fault."""

    def run(kind, script, **options):
        head = "import torch, torch_backend\nfrom torch_backend import autocompare\n"
        return run_python(head + script, TORCH_BACKEND=crooked(kind), HAL_ALLOW_UNSAFE_PLUGINS=1, **options)

    return run


STRIDED = """x = torch.arange(6.0).view(2, 3).to("five")
y = torch.arange(6.0).view(3, 2).to("five")
with autocompare() as compare:
    assert (x * x).sum().item() == 55  # contiguous operands are right
    z = x * y.t()  # the line
"""


def reproduce(path, plugin=None):
    """Runs a reproducer, which finds the plugin that it names automatically."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_"))}
    environment.update({"TORCH_BACKEND": str(plugin)} if plugin else {}, HAL_ALLOW_UNSAFE_PLUGINS="1")
    return warm_interpreter.run([sys.executable, path], env=environment, cwd=path.parent, timeout=120)


def test_a_wrong_value_on_strided_operands_is_found_at_its_first_call_and_shown_again_by_one_file(run, crooked, tmp_path):
    done = run("reads", STRIDED, check=False)
    assert done.returncode == 1
    message = done.stderr[done.stderr.index("Divergence: ") :]
    assert "aten::mul.Tensor on five differs from CPU torch" in message
    assert "self: float32[2, 3] on five:0" in message and "other: float32[2, 3] strides [1, 2] on five:0" in message
    # y.t() is [[0, 2, 4], [1, 3, 5]] and reads as 0 1 0, 1 0 1: the largest error is that of 5 * 5 at the end
    assert "4 of 6 elements differ; the largest error is 20 at [1, 2]: 5.0 instead of 25.0" in message
    assert f"at {tmp_path}/script.py:7 in <module>: z = x * y.t()" in message
    (script,) = tmp_path.glob("autocompare-*.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == [script.name, "script.py"]  # one file
    alone = tmp_path / "elsewhere"
    alone.mkdir()
    moved = script.rename(alone / "moved.py")
    bad, good = reproduce(moved), reproduce(moved, crooked("good"))
    assert bad.returncode == 1 and "4 of 6 elements differ" in bad.stdout, bad.stderr
    assert good.returncode == 0 and "agrees with CPU torch" in good.stdout, good.stderr
    assert reproduce(moved, "fake").returncode == 0
    missing = reproduce(moved, "/nowhere/libhal_none.so")
    assert missing.returncode == 2 and "/nowhere/libhal_none.so" in missing.stderr


@pytest.mark.parametrize("kind, script, sentence", [
    ("input", "x * x.neg()", "self was changed in memory that the operator must not write"),
    ("around", "torch.mul(x[:, 1:], x[:, 1:], out=x.neg()[:, :2])", "out was changed in memory that the operator must not write"),
    ("around", "x[:1, :2].mul_(2.0)", "self was changed in memory that the operator must not write"),
])  # fmt: skip
def test_writing_where_nothing_is_to_be_written_is_found(run, crooked, tmp_path, kind, script, sentence):
    done = run(kind, f'x = torch.arange(6.0).view(2, 3).to("five")\nwith autocompare():\n    {script}\n', check=False)
    assert sentence in done.stderr
    (path,) = tmp_path.glob("autocompare-*.py")
    assert reproduce(path).returncode == 1 and reproduce(path, crooked("good")).returncode == 0


@pytest.mark.parametrize("threads", ["0", "1"], ids=["the caller's thread", "autograd's thread"])
def test_nodes_of_the_backward_pass_are_compared(run, crooked, tmp_path, threads):
    script = """
x = torch.arange(-3.0, 3.0).to("five").requires_grad_()
with autocompare():
    loss = x.relu().sum()
    loss.backward()
"""
    done = run("backward", script, check=False, TORCH_BACKEND_AUTOGRAD_THREADS=threads)
    assert "aten::threshold_backward on five differs" in done.stderr and "node ReluBackward0" in done.stderr
    (path,) = tmp_path.glob("autocompare-*.py")
    assert reproduce(path).returncode == 1 and reproduce(path, crooked("good")).returncode == 0
    run("good", script, TORCH_BACKEND_AUTOGRAD_THREADS=threads)


def test_compiled_functions_run_operator_by_operator_and_are_compared(run):
    script = """
x = torch.arange(6.0).view(2, 3).to("five")
function = torch.compile(lambda a, b: a * b.t() + 1, backend="eager")
with autocompare(directory=None):
    function(x, x.view(3, 2))
"""
    assert "aten::mul.Tensor on five differs" in run("reads", script, check=False).stderr


def test_going_on_collects_all_and_writes_a_file_for_each_operator(run, tmp_path):
    (tmp_path / "autocompare-mul.Tensor.py").write_text("mine")
    script = """
import warnings
warnings.simplefilter("ignore")
x = torch.arange(6.0).view(2, 3).to("five").requires_grad_()
with autocompare(stop=False) as compare:
    for _ in range(3):
        x.detach() * x.detach().view(3, 2).t()
print(len(compare.divergences), [found.op for found in compare.divergences][0], compare.divergences[0].reproducer)
"""
    done = run("reads", script)
    assert done.stdout == "3 aten::mul.Tensor autocompare-mul.Tensor-2.py\n"
    assert (tmp_path / "autocompare-mul.Tensor.py").read_text() == "mine"  # never overwritten


def test_the_command_runs_a_program_and_its_arguments(crooked, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"import sys, torch\nprint(sys.argv[1:], __name__)\n{STRIDED.replace('with autocompare() as compare:', 'if True:')}sys.exit(3)\n")
    results = {}
    for kind in ("reads", "good"):
        environment = {**os.environ, "TORCH_BACKEND": str(crooked(kind)), "HAL_ALLOW_UNSAFE_PLUGINS": "1"}
        command = [sys.executable, "-P", "-m", "torch_backend", "autocompare", "--directory", str(tmp_path / "found"), str(program), "--every", "7"]
        results[kind] = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert "['--every', '7'] __main__" in results[kind].stdout
    assert results["reads"].returncode == 1 and "differs from CPU torch" in results["reads"].stderr
    assert [path.name for path in (tmp_path / "found").iterdir()] == ["autocompare-mul.Tensor.py"]
    assert results["good"].returncode == 3 and "0 divergences" in results["good"].stderr
    nothing = subprocess.run([*command[:5], "nowhere.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert nothing.returncode == 2 and "nowhere.py" in nothing.stderr


# ---- on a correct device ----


def compared(compare):
    return {row.op.removeprefix("aten::"): row.compared for row in compare.report() if row.compared}


def left_out(compare):
    return {row.op.removeprefix("aten::"): row.left_out for row in compare.report() if row.left_out}


def test_a_training_step_agrees_and_every_operator_of_it_is_counted(device):
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Dropout(0.5)]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(36, 5)).to(device)
    optimizer = torch.optim.Adam(network.parameters())
    with torch_backend.autocompare(directory=None) as compare:
        loss = torch.nn.functional.cross_entropy(network(torch.randn(4, 3, 8, 8, device=device)), torch.arange(4, device=device))
        loss.backward()
        optimizer.step()
    assert {"convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward", "addmm", "max_pool2d_with_indices"} <= set(compared(compare))
    assert left_out(compare)["randn"] == {"random": 1} and left_out(compare)["native_dropout"] == {"random": 1}
    assert left_out(compare)["t"].keys() == {"view"}
    assert "0 divergences" in compare.summary()


@pytest.mark.parametrize("call", [
    lambda x: x.t().contiguous(), lambda x: x.t().clone(), lambda x: x.expand(4, 3, 3) + x, lambda x: x[::2, 1:].mul_(x[:2, :2]),
    lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)), lambda x: torch.add(x, x, out=torch.empty(3, 6, device=x.device)[:, ::2]),
    lambda x: x.add_(x), lambda x: x.t().copy_(x.clone()), lambda x: x.sort(stable=True), lambda x: torch.zeros(9, device=x.device).sort(),
    lambda x: torch.zeros(9, device=x.device).topk(3), lambda x: torch.zeros(9, device=x.device).max(0), lambda x: x.unsqueeze(0).squeeze_(0),
    lambda x: torch.view_as_complex(torch.stack([x, x], -1)).conj() * 2j, lambda x: x.cpu(), lambda x: x.to(torch.float16).sum(),
    lambda x: x.cpu().copy_(x), lambda x: x.copy_(torch.ones(3, 3)), lambda x: torch._foreach_mul_([x, x.clone()], 2.0), lambda x: (x > 4).any().item(),
    lambda x: (x - x.mean()).sum(), lambda x: x.new_full((2,), 3), lambda x: torch.arange(5, device=x.device), lambda x: torch.empty(3, 0, device=x.device).sum(0),
    lambda x: x[x > 3], lambda x: x.index_put_((torch.tensor([0, 2]),), torch.ones(3, device=x.device)), lambda x: x / 0, lambda x: (x - 4).log(),
    lambda x: x.to_sparse().to_dense(), lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    lambda x: torch.nn.functional.logsigmoid(x.clone().requires_grad_()).sum().backward(), lambda x: x.resize_(2, 2),
])  # fmt: skip
def test_nothing_is_found_where_nothing_is_wrong(device, call):
    x = torch.arange(9.0, device=device).view(3, 3)
    with torch_backend.autocompare(directory=None):
        call(x)


def test_one_of_every_so_many_calls_is_compared_the_first_among_them(device):
    x = torch.ones(3, device=device)
    with torch_backend.autocompare(every=4, directory=None) as compare:
        for _ in range(9):
            x.exp()
        x.sin()
    assert compared(compare) == {"exp": 3, "sin": 1} and left_out(compare)["exp"] == {"not one of 4": 6}


def test_a_programs_results_are_what_they_are_without(device):
    """Also on the CPU, for which PyTorch itself has different results under a mode of this kind."""
    torch.manual_seed(0)
    x = torch.randn(5, 5, dtype=torch.complex64)
    for place in ("cpu", device):
        expected = torch.linalg.pinv(x.to(place))
        with torch_backend.autocompare(directory=None):
            assert torch.equal(torch.linalg.pinv(x.to(place)), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.complex128], ids=str)
def test_what_cancels_is_no_fault(device, dtype):
    """For any order of the sum, only rounding remains; on some processors the CPU's result is 0 by chance."""
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(301, 299, dtype=torch.float64, generator=generator)
        x = torch.cat([x, -x.flip(0)]).to(dtype).to(device)
        with torch_backend.autocompare(directory=None) as compare:
            x.sum()
            torch.ones(1, 602, dtype=dtype, device=device) @ x @ torch.ones(299, 1, dtype=dtype, device=device)
        assert sum(compared(compare).values()) >= 2


def compared_with(function, ours, x):
    """Returns the verdict on a result of one operand."""
    from torch_backend._autocompare import call, tolerance

    def precise(*disturbance):
        return function(call._Disturbed(*disturbance)(x) if disturbance else x.double())

    return tolerance.compare(ours, function(x), precise=precise)


def test_cpu_torchs_luck_is_nobodys_fault():
    """A sum whose exact result is 0: CPU PyTorch may return exactly 0."""
    x = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(torch.float16)
    x = torch.cat([x, -x])
    lucky = lambda x: x.double().sum().to(x.dtype)  # noqa: E731
    assert lucky(x) == 0
    assert compared_with(lucky, torch.tensor(3e-6, dtype=torch.float16), x) is None
    assert compared_with(lucky, torch.tensor(3e-4, dtype=torch.float16), x) is not None


@pytest.mark.parametrize("function", [torch.floor, torch.round, torch.sign, lambda x: x % 1, lambda x: (x > 2).to(x.dtype)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_step_excuses_nothing(dtype, function):
    """If a result jumps where an operand changes in its last place, the value on the other side of the jump is
    accepted, and no other."""
    x = torch.tensor([0.0, 1.0, 2.0, 2.5, 3.0, -1.0], dtype=dtype)
    for place in range(len(x)):
        ours = function(x)
        ours[place] += 1
        assert compared_with(function, ours, x) is not None


def test_calls_that_ran_on_the_cpu_are_counted_separately(device):
    x = torch.eye(3, device=device)
    with torch_backend.autocompare(directory=None) as compare:
        torch.linalg.eigvals(x)
    assert left_out(compare)["linalg_eig"] == {"fallback": 1} and "linalg_eig" not in compared(compare)


def test_nothing_is_compared_outside_and_tensors_of_the_host_are_left_alone(device):
    with torch_backend.autocompare(directory=None) as compare:
        torch.ones(3).exp()
    torch.ones(3, device=device).exp()
    assert compare.report() == []


@pytest.mark.parametrize("arguments", [{"every": 0}, {"every": 1.5}, {"rtol": -1}, {"atol": -1.0}, {"rtol": float("nan")}])
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=f"autocompare: invalid {next(iter(arguments))}="):
        torch_backend.autocompare(**arguments)


def test_a_tolerance_of_ones_own_is_used(run):
    """The fault changes 25 to 5; the absolute tolerance accepts it."""
    script = STRIDED.replace("autocompare()", "autocompare(atol=21, directory=None)")
    run("reads", script)


def test_tolerances_are_those_of_the_table():
    from torch_backend._autocompare import tolerance

    one = torch.ones(100)
    for dtype, rtol in {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2 * 2**-7, torch.float16: 2 * 2**-10}.items():
        assert tolerance.rtol_of(dtype) == rtol
        assert tolerance.compare(one.to(dtype).double() * (1 + rtol), one.double(), rtol) is None
        found = tolerance.compare(one.double().index_fill(0, torch.tensor(7), 1 + 3 * rtol), one.double(), rtol)
        assert found.index == (7,) and found.different == 1 and found.error == pytest.approx(3 * rtol)
    nan = torch.tensor([1.0, float("nan"), float("inf")])
    assert tolerance.compare(nan, nan.clone()) is None
    for other in ([1.0, 2.0, float("inf")], [1.0, float("nan"), 3.0], [1.0, float("nan"), float("-inf")], [float("nan"), float("nan"), float("inf")]):
        assert tolerance.compare(torch.tensor(other), nan).different == 1
    # results with cancellation are compared with the CPU's own error
    exact, cpu = torch.tensor([1e-8], dtype=torch.float64), torch.tensor([3e-7])
    assert tolerance.compare(torch.tensor([-2e-7]), cpu, precise=lambda *disturbance: exact) is None
    assert tolerance.compare(torch.tensor([-2e-5]), cpu, precise=lambda *disturbance: exact) is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "complex64", "int64"])
def test_the_operator_database_raises_no_false_alarm(device, dtype):
    """Forward and backward, two samples of each entry."""
    from op_database import op_db

    dtype = getattr(torch, dtype)

    def moved(tree):
        return torch.utils._pytree.tree_map(
            lambda leaf: leaf.detach().to(device).requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf, tree)

    compare = torch_backend.autocompare(stop=False, directory=None)
    for entry in op_db:
        if dtype not in entry.dtypes:
            continue
        try:
            samples = list(itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=dtype in entry.backward_dtypes), 2))
        except Exception:  # an entry for other machines
            continue
        for sample in samples:
            first, args, kwargs = moved((sample.input, sample.args, sample.kwargs))
            try:
                with compare:
                    results = entry.op(first, *args, **{key: device if key == "device" else value for key, value in kwargs.items()})
                    leaves = [leaf for leaf in torch.utils._pytree.tree_flatten(results)[0] if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
                    if leaves:
                        sum(leaf.abs().sum() for leaf in leaves).backward()
            except (RuntimeError, NotImplementedError, AssertionError, TypeError):
                pass  # test_opinfo.py tests the calls that the device refuses
    assert [str(found) for found in compare.divergences] == []
    assert sum(row.compared for row in compare.report()) > 500
