"""torch.compile's inductor on a device that compiles source: fused kernels in the portable dialect produce eager CPU's
numbers, invalid indices are errors, and the host does not access device memory (HAL_OPENCL_MEMORY=buffer: an address is
not a pointer)."""

import json
import os
import select
import subprocess
import sys

import driver_scripts
import pytest


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    return driver_scripts.opencl_kernels(tmp_path_factory, HAL_OPENCL_MEMORY="buffer")


@pytest.fixture
def run(run_python, caches):
    """Runs a script in an interpreter of its own."""
    return lambda script, **settings: run_python(HELPERS + script, timeout=600, **{**caches, **settings})


class Interpreter:
    """A process that runs one script after the other, because inductor takes longer to load than most scripts to run. Each
    script has new globals and no compiled graphs of earlier ones. A script that ends the process, or that does not end,
    fails; the next one starts another process."""

    def __init__(self, environment):
        self.environment, self.process = environment, None

    def run(self, script, timeout=600):
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-P", "-c", HELPERS + LOOP]
            self.process = subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(script) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            self.close()
            pytest.fail(f"the script ran for more than {timeout} s")
        line = self.process.stdout.readline()
        assert line, f"the script ended the process: exit code {self.process.wait()}"
        error = json.loads(line)
        assert not error, error

    def close(self):
        if self.process:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="module")
def interpreter(caches):
    process = Interpreter({**os.environ, **caches})
    yield process
    process.close()


@pytest.fixture
def run_script(interpreter):
    return interpreter.run


HELPERS = """
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F
from torch.utils import _pytree as pytree
import torch._inductor.config
import torch_backend
from torch_backend import _C, fallback

torch._inductor.config.fx_graph_cache = False
torch._dynamo.config.recompile_limit = 64

def to(place, tree):
    return pytree.tree_map(lambda x: x.to(place) if isinstance(x, torch.Tensor) else x, tree)

def check(function, *inputs, rtol=None, atol=None, kernels=True, **options):
    torch._dynamo.reset()
    result, code = run_and_get_code(torch.compile(function, **options), *to("ocl", inputs))
    assert not any("run_on_host(" in text or "queue_on_host(" in text for text in code), "a kernel ran on the host"
    assert not kernels or any("compile_kernel(" in text for text in code), "no kernel was made"
    torch.testing.assert_close(to("cpu", result), function(*inputs), rtol=rtol, atol=atol, equal_nan=True)
    return code

torch.manual_seed(0)
"""

LOOP = """
import json, sys, traceback

for line in sys.stdin:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    fallback.reset()
    torch.manual_seed(0)
    try:
        exec(compile(json.loads(line), "script", "exec"), dict(globals()))
        error = ""
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps(error), flush=True)
"""


def test_element_wise_chains_in_all_dtypes(run_script):
    run_script("""
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    x, y = torch.randn(3, 50).to(dtype), torch.randn(50).to(dtype)
    rough = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype)
    check(lambda x, y: (x * 2 + y).tanh() - torch.where(x > y, x.exp(), y.abs().sqrt()), x, y, rtol=rough, atol=rough)
    check(lambda x, y: (torch.maximum(x, y / 0), torch.fmod(x, y), torch.remainder(x, y), torch.pow(x.abs(), y), x.sign(), torch.isnan(x.log())),
          x, y, rtol=rough, atol=rough)
for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
    x, y = torch.randint(-128, 127, (400,)).to(dtype), torch.randint(1, 9, (400,)).to(dtype)
    check(lambda x, y: (x + y, x * x * x, x // y, x % y, torch.div(x, y, rounding_mode="trunc"), -x, x & y, x << 1, x > y, x / y), x, y)
big = torch.tensor([2**31 - 1, -2**31, 5], dtype=torch.int32)
check(lambda x: (x + 1, x * 3, x.abs(), -x), big)
check(lambda x: (x + 1, x.abs()), torch.tensor([2**63 - 1, -2**63]))
b = torch.rand(99) > 0.5
check(lambda a, b: (a & b, a | ~b, a ^ b, a.logical_not(), a.float() + b, a.to(torch.int32) - 1), b, b.flip(0))
special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38])
check(lambda x: (x.exp(), x.log(), x.sqrt(), x.rsqrt(), x.reciprocal(), x.relu(), x.sigmoid(), x.clamp(-1, 2), x.maximum(x.flip(0)), x.floor(), x.isinf()), special)
check(lambda x: (x.erf(), x.erfc(), x.lgamma(), x.expm1(), x.log1p(), x.log2(), x.asinh(), x.atan2(x + 1), x.round(), torch.erfinv(x)), torch.rand(200) * 0.9)
check(lambda x: (x.to(torch.int32), x.to(torch.uint8), x.to(torch.int64), x.to(torch.bool), x.half(), x.bfloat16()), torch.randn(300) * 100 + 101)
""")


def test_views_broadcasting_and_cat(run_script):
    run_script("""
x = torch.randn(6, 8, 10)
check(lambda x: x.permute(2, 0, 1)[1:7, ::2] * x[0, 0, :6, None, None] + 1, x)
check(lambda x: torch.cat([x[:, :3] + 1, x.flip(1) * 2, x[:, 5:6]], 1), x)
check(lambda x: (F.pad(x, (1, 2, 0, 3), value=7.0).sin(), x.unfold(2, 3, 2).cos(), x.roll(3, 2) + 0), x)
check(lambda x: torch.arange(10, device=x.device) * 3000000000 + x.long(), x)
check(lambda x: x.add_(1).mul(2), x.clone())
check(lambda x, s: x * s, x, 2.5)
check(lambda x: torch.stack([x, x * 2]).sum(0).triu(), x)
check(lambda x: x[:0] + 1, x, kernels=False)
""")


def test_reductions(run_script):
    run_script("""
x = torch.randn(37, 300)
check(lambda x: (x.sum(), x.sum(0), x.mean(1), x.amax(0), x.amin(1), x.prod(1), (x > 3).any(1), (x > -9).all(0)), x, rtol=1e-4, atol=1e-4)
check(lambda x: (torch.var_mean(x, 1), x.std(0), x.argmax(1), x.argmin(0), x.argmax(), x.norm(dim=1), x.logsumexp(0)), x, rtol=1e-4, atol=1e-4)
check(lambda x: (x.softmax(-1), x.log_softmax(0), F.layer_norm(x, (300,)), F.cross_entropy(x, torch.arange(37, device=x.device))), x, rtol=1e-4, atol=1e-5)
nan = x.clone()
nan[3, 7] = nan[5, 250] = float("nan")
check(lambda x: (x.amax(1), x.amin(0), x.argmax(1), x.argmin(1), x.max(), x.sum(1)), nan, rtol=1e-4, atol=1e-4)
check(lambda x: (x.argmax(1), x.argmin(1)), torch.zeros(4, 50))
check(lambda x: (x.argmax(1), x.amax(1)), torch.full((4, 50), -float("inf")))
for dtype in (torch.int32, torch.int64, torch.uint8, torch.bool):
    n = torch.randint(0, 2 if dtype is torch.bool else 100, (20, 70)).to(dtype)
    check(lambda n: (n.sum(1), n.sum(), n.amax(0), n.prod(0), (n > 0).any(1)), n)
for dtype in (torch.float16, torch.bfloat16):
    check(lambda x: (x.sum(1), x.mean(0), x.softmax(1), x.amax(1)), x.to(dtype), rtol=3e-2, atol=3e-2)
check(lambda x: x.double().sum(0), x)
# A sum of many equal numbers: one partial sum after the other would lose digits.
check(lambda x: (x.sum(1), x.sum()), torch.full((2, 1 << 20), 0.1), rtol=1e-5, atol=0.0)
check(lambda x: x.sum(), torch.randn(300000), rtol=1e-3, atol=1e-3)
""")


def test_indices(run_script):
    run_script("""
x, i = torch.randn(50, 30), torch.randint(-50, 50, (17,))
check(lambda x, i: x[i] * 2, x, i)
check(lambda x, i: x[i, i.abs() % 30].exp(), x, i)
check(lambda x, i: F.embedding(i.abs() % 50, x) + 1, x, i)
check(lambda x, i: x.gather(0, i.abs()[:, None].expand(17, 30) % 50) * 2, x, i)
check(lambda x, i: torch.index_put(x, (i,), x[:17], accumulate=True) * 2, x, i, rtol=1e-5, atol=1e-5)
check(lambda x, i: x.scatter_add(0, i.abs()[:, None].expand(17, 30) % 50, x[:17]) * 2, x, i, rtol=1e-5, atol=1e-5)
check(lambda x: (x.cumsum(1) * 2, x.sort(1)[0] + 1, x.topk(3, 1)[0] * 2), x, rtol=1e-5, atol=1e-5)
check(lambda x: x.masked_fill(x > 0, -1.0) + x.masked_fill(x < 0, 2.0), x)
take = torch.compile(lambda x, i: x[i] * 2)
for bad in (50, -51):
    try:
        take(x.to("ocl"), torch.tensor([1, bad], device="ocl")).cpu()
    except IndexError as error:
        assert "out of bounds" in str(error) and "50" in str(error), error
    else:
        raise AssertionError("a bad index passed")
torch.testing.assert_close(take(x.to("ocl"), torch.tensor([1, 2], device="ocl")).cpu(), x[1:3] * 2)
try:
    torch.compile(lambda a, b: a // b)(torch.arange(3, device="ocl"), torch.tensor([1, 0, 2], device="ocl")).cpu()
except RuntimeError as error:
    assert "ZeroDivisionError" in str(error), error
else:
    raise AssertionError("a division by 0 passed")
""")


def test_random_numbers_follow_the_seed(run_script):
    run_script("""
drop = torch.compile(lambda x: F.dropout(x, 0.3) * 2)
x = torch.ones(20000, device="ocl")
torch.manual_seed(1)
first, second = drop(x), drop(x)
torch.manual_seed(1)
torch.testing.assert_close(drop(x), first, rtol=0, atol=0)
assert not torch.equal(first, second)
assert abs((first == 0).float().mean().item() - 0.3) < 0.02 and abs(first.mean().item() - 2) < 0.05
numbers = torch.compile(lambda: (torch.rand(100000, device="ocl"), torch.randn(100000, device="ocl"), torch.randint(-5, 9, (100000,), device="ocl")))
uniform, normal, whole = to("cpu", numbers())
assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02 and abs((normal**4).mean() - 3) < 0.2
assert whole.min() == -5 and whole.max() == 8 and torch.bincount(whole + 5).min() > 6500
""")


def test_changing_shapes_are_one_kernel(run_script):
    run_script("""
compiled = torch.compile(lambda x: (x * 2 + 1).sum(0) + x.shape[0], dynamic=True)
for n in (3, 5, 17, 1000):
    x = torch.randn(n, 4)
    torch.testing.assert_close(compiled(x.to("ocl")).cpu(), (x * 2 + 1).sum(0) + n, rtol=1e-4, atol=1e-4)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
check(lambda x, y: torch.cat([x.T.reshape(-1), y.reshape(-1)]).view(-1, 2).softmax(1), torch.randn(6, 4), torch.randn(4, 6), dynamic=True)
""")


def test_operators_are_fused(run_script):
    run_script("""
def function(x):
    y = (x * 2 + 1).tanh() - x.exp()
    return y.softmax(-1)
x = torch.randn(20, 30, device="ocl")
def launched():
    return sum(plugin + portable for _, plugin, portable, _ in _C.operator_counts())
_C.operator_reset()
eager = function(x)
assert launched() >= 6
compiled = torch.compile(function)
compiled(x)
_C.operator_reset()
result, code = run_and_get_code(compiled, x)
assert launched() == 0, _C.operator_counts()
torch.testing.assert_close(result, eager)
torch._dynamo.reset()
(text,) = check(function, x.cpu())
assert text.count("compile_kernel(") == 1, text
""")


def test_a_training_step(run_script):
    run_script("""
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
reference, net = network(), network().to("ocl")
x, target = torch.randn(16, 8), torch.randint(0, 4, (16,))
step = torch.compile(lambda x, y: F.cross_entropy(net(x), y))
for _ in range(3):
    loss, expected = step(x.to("ocl"), target.to("ocl")), F.cross_entropy(reference(x), target)
    loss.backward(), expected.backward()
    torch.testing.assert_close(loss.cpu(), expected)
    for ours, theirs in zip(net.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            ours -= 0.1 * ours.grad
            theirs -= 0.1 * theirs.grad
        ours.grad = theirs.grad = None
assert not fallback.report(), fallback.report()
""")


CACHED = """
check(lambda x: (x * 2 + 1).cos().sum(1), torch.randn(8, 8))
stats = _C.kernel_stats(0)
print(stats["compiled"], stats["loaded"])
"""


def test_the_next_process_finds_the_kernels_compiled(run, tmp_path):
    run(CACHED, HAL_CACHE_DIR=tmp_path)
    compiled, loaded = map(int, run(CACHED, HAL_CACHE_DIR=tmp_path).stdout.split()[-2:])
    assert compiled == 0 and loaded > 0


def test_cpp_wrapper_is_refused_with_a_cure(run_script):
    run_script("""
try:
    with torch._inductor.config.patch(cpp_wrapper=True):
        torch.compile(lambda x: x.sin() + 1)(torch.randn(8, device="ocl"))
except Exception as error:
    assert "cpp_wrapper = False" in str(error), error
else:
    raise AssertionError("cpp_wrapper passed")
""")


MODELS = """
class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    def forward(self, x):
        return self.head(self.layer(self.embed(x)))
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(n, 8, 3, padding=1, bias=False) for n in (3, 8))
        self.norm1, self.norm2, self.head = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.Linear(8, 10)
    def forward(self, x):
        x = F.relu(self.norm1(self.first(x)))
        x = F.max_pool2d(F.relu(self.norm2(self.second(x)) + x), 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
for kind, data in ((Transformer, torch.randint(0, 50, (4, 10))), (Residual, torch.randn(4, 3, 16, 16))):
    torch._dynamo.reset()
    torch.manual_seed(0)
    reference, net = kind(), kind()
    net.load_state_dict(reference.state_dict())
    net.to(torch_backend.device_name())
    step = torch.compile(lambda x: net(x).square().mean())
    for _ in range(2):
        loss, expected = step(data.to(torch_backend.device_name())), reference(data).square().mean()
        loss.backward(), expected.backward()
        torch.testing.assert_close(loss.cpu(), expected, rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(net.parameters(), reference.parameters()):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-4)
            with torch.no_grad():
                ours -= 0.05 * ours.grad
                theirs -= 0.05 * theirs.grad
            ours.grad = theirs.grad = None
    for ours, theirs in zip(net.buffers(), reference.buffers()):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["cpu", "simt"])
def test_networks_train_as_on_the_cpu(run, form):
    run(MODELS, HAL_OPENCL_FORM=form)


def test_without_a_compiler_the_operators_run_with_one_warning(run_python):
    done = run_python(HELPERS + MODELS, timeout=600, TORCH_BACKEND="fake", HAL_FAKE_PROTECT=1)
    assert done.stderr.count("does not generate kernels for 'fake'") == 1, done.stderr
