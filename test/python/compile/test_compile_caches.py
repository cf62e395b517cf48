"""torch.compile's caches with the device: a second process finds the code of the first one in the FX graph cache and the
AOTAutograd cache, and another machine's in Mega-Cache; programs that torch.compiler.precompile wrote run in it."""

import json

import driver_scripts
import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.host_memory("inductor's C++ kernels read and write device addresses")]

SCRIPT = """
import json, sys, time
import torch
from torch import nn
from torch._dynamo.utils import counters
import torch_backend

artifacts, action = sys.argv[1:]
if action == "load":
    with open(artifacts, "rb") as file:
        torch.compiler.load_cache_artifacts(file.read())
torch.manual_seed(0)
device = torch_backend.device_name()
network = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
x = torch.randn(6, 8)
expected = network(x).square().sum()
expected.backward()
gradients = [parameter.grad.clone() for parameter in network.parameters()]
network.zero_grad()
network = network.to(device)
begin = time.time()
loss = torch.compile(network)(x.to(device)).square().sum()
loss.backward()
torch.accelerator.synchronize()
seconds = time.time() - begin
torch.testing.assert_close(loss.cpu(), expected)
for parameter, gradient in zip(network.parameters(), gradients):
    torch.testing.assert_close(parameter.grad.cpu(), gradient, rtol=1e-4, atol=1e-5)
if action == "save":
    with open(artifacts, "wb") as file:
        file.write(torch.compiler.save_cache_artifacts()[0])
kernels = torch_backend._C.kernel_stats(0)
print(json.dumps({"seconds": seconds, "fx": counters["inductor"], "autograd": counters["aot_autograd"], "compiled": kernels["compiled"]}))
"""


def check(run_python, tmp_path, **settings):
    """Compiles in one process, then in a second one with the same caches, and in one with Mega-Cache's artifacts alone.
    """

    def run(action, folder):
        found = run_python(SCRIPT_WITH[action], timeout=600, TORCHINDUCTOR_CACHE_DIR=tmp_path / folder, **settings)
        return json.loads(found.stdout.splitlines()[-1])

    SCRIPT_WITH = {action: SCRIPT.replace("sys.argv[1:]", repr((str(tmp_path / "artifacts"), action))) for action in ("save", "find", "load")}
    first, second, third = run("save", "first"), run("find", "first"), run("load", "third")
    print("seconds:", [round(one["seconds"], 1) for one in (first, second, third)])
    assert first["fx"]["fxgraph_cache_miss"] == 2 and not first["fx"].get("fxgraph_cache_bypass"), first
    for one in (second, third):
        assert one["autograd"].get("autograd_cache_hit") == 1 and not one["autograd"].get("autograd_cache_miss"), one
        assert one["fx"].get("fxgraph_cache_hit") == 2 and not one["fx"].get("fxgraph_cache_miss"), one
    assert second["seconds"] < first["seconds"] / 2
    return first, second, third


PRECOMPILED = """
import json, time
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.compiler import precompile
import torch_backend

def step(model, x):
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()

torch.manual_seed(0)
device = torch_backend.device_name()
network = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
x = torch.randn(6, 8)
expected = step(network, x)
gradients = [parameter.grad.clone() for parameter in network.parameters()]
network.zero_grad()
network, x = network.to(device), x.to(device)
begin = time.time()
if SAVE:
    with precompile.capture(step, artifact_path=PROGRAM, cache_path=CACHE, backend=BACKEND) as call:
        loss = call(network, x)
else:
    loss = precompile.load(PROGRAM, CACHE)(network, x)
torch.accelerator.synchronize()
seconds = time.time() - begin
assert loss.device.type == device
torch.testing.assert_close(loss.cpu(), expected)
for parameter, gradient in zip(network.parameters(), gradients):
    assert parameter.grad.device.type == device
    torch.testing.assert_close(parameter.grad.cpu(), gradient, rtol=1e-4, atol=1e-5)
kernels = torch_backend._C.kernel_stats(0)
print(json.dumps({"seconds": seconds, "counters": sum(counters["inductor"].values()), "compiled": kernels["compiled"]}))
"""


def check_precompiled(run_python, tmp_path, backend, **settings):
    """Captures a training step in one process, and runs it in a second one, which compiles no graph."""

    def run(save):
        lines = [f"SAVE = {save}", f"PROGRAM, CACHE = {str(tmp_path / 'step.py')!r}, {str(tmp_path / 'step.cache')!r}", f"BACKEND = {backend!r}"]
        found = run_python("\n".join(lines) + PRECOMPILED, timeout=600, TORCHINDUCTOR_CACHE_DIR=tmp_path / "inductor", **settings)
        return json.loads(found.stdout.splitlines()[-1])

    first, second = run(True), run(False)
    print("seconds:", [round(one["seconds"], 1) for one in (first, second)])
    assert second["counters"] == 0, second
    return first, second


needs_precompile = pytest.mark.skipif(not hasattr(torch.compiler, "precompile"), reason="torch.compiler.precompile is new in torch 2.15")


@needs_precompile
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_precompiled_program_on_the_host(run_python, tmp_path, backend):
    first, second = check_precompiled(run_python, tmp_path, backend, TORCH_BACKEND="fake")
    if backend == "inductor":
        assert first["counters"] > 0 and second["seconds"] < first["seconds"] / 2


@needs_precompile
def test_a_precompiled_program_with_kernels_from_source(run_python, tmp_path):
    settings = driver_scripts.opencl_settings(tmp_path, HAL_OPENCL_MEMORY="buffer")
    first, second = check_precompiled(run_python, tmp_path, "inductor", **settings)
    assert first["compiled"] > 0 and second["compiled"] == 0, "the HAL's disk cache has the kernels"


def test_kernels_on_the_host(run_python, tmp_path):
    check(run_python, tmp_path, TORCH_BACKEND="fake")


def test_kernels_from_source(run_python, tmp_path):
    settings = driver_scripts.opencl_settings(tmp_path, HAL_OPENCL_MEMORY="buffer")
    _, second, third = check(run_python, tmp_path, **settings)
    assert second["compiled"] == third["compiled"] == 0, "the HAL's disk cache has the kernels"
