"""Several platforms in one process: a client of the CPU's PJRT plugin for each entry of HAL_PJRT_PLUGIN. Their devices
have the numbers after each other, and everything works on each of them."""

import os
import sys

import driver_scripts
import pytest
import warm_interpreter
from test_pjrt import INVALID, OLD_PLUGIN

PLUGIN = str(driver_scripts.PJRT_PLUGIN)
USE = "import torch, torch_backend; torch_backend.use('pjrt')"

# A training step of each device, as a program; then data travels through all devices.
EACH_DEVICE = """
import torch, torch_backend
from torch_backend import lazy
torch_backend.use("pjrt")
devices = [f"pjrt:{i}" for i in range(torch.accelerator.device_count())]
torch.manual_seed(0)
weight, x = torch.randn(16, 4), torch.randn(8, 16)

def train(device):
    w, data = weight.to(device).requires_grad_(), x.to(device)
    for step in range(3):
        with lazy.record():
            loss = (data @ w).tanh().square().sum()
            (gradient,) = torch.autograd.grad(loss, w)
            with torch.no_grad():
                w -= 0.1 * gradient
            lazy.mark_step()
    return w.detach().cpu()

results = []
for device in devices:
    with torch.device(device), torch.accelerator.device_index(int(device[-1])):
        results.append(train(device))
w = weight.clone().requires_grad_()
for step in range(3):
    (gradient,) = torch.autograd.grad((x @ w).tanh().square().sum(), w)
    w = (w - 0.1 * gradient).detach().requires_grad_()
for device, result in zip(devices, results):
    torch.testing.assert_close(result, w.detach(), rtol=1e-5, atol=1e-6, msg=device)
a = torch.arange(5.0)
for device in devices + devices[::-1]:
    a = (a.to(device) + 1) * 2
expected = torch.arange(5.0)
for _ in range(2 * len(devices)):
    expected = (expected + 1) * 2
assert torch.equal(a.cpu(), expected)
causes = [compilation.cause for compilation in lazy.compilations()]
assert sum("StableHLO" in cause for cause in causes) >= len(devices), causes
print(len(devices))
"""


@pytest.fixture
def run(tmp_path, run_file):
    """Runs a script on several platforms; returns the finished process."""
    settings = driver_scripts.pjrt_settings(tmp_path)

    def run(script, plugins=None, **more):
        plugins = plugins or [settings["HAL_PJRT_PLUGIN"]] * 2
        environment = {**os.environ, **settings, "HAL_PJRT_PLUGIN": ",".join(map(str, plugins)), "HAL_PJRT_DEVICES": "1,2", **more}
        return run_file(script, environment, tmp_path)

    return run


def passes(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_the_devices_of_two_platforms_train_and_exchange_data(run):
    """A second process loads the programs of both."""
    for compiled in (True, False):
        done = run(EACH_DEVICE, HAL_PJRT_MEMORY="addressed", HAL_LOG="info")
        assert passes(done) == ["3"] and ("pjrt: compiled a" in done.stderr) == compiled, done.stderr
    assert passes(run(EACH_DEVICE, HAL_PJRT_MEMORY="opaque")) == ["3"]


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1], ids=["newer first", "older first"])
@pytest.mark.parametrize("memory", ["addressed", "opaque"])
def test_platforms_of_two_versions_of_xla_work_in_one_process(run, memory, order):
    if not OLD_PLUGIN.exists() and "CI" not in os.environ:
        pytest.skip(f"{OLD_PLUGIN} does not exist; `make test-full` installs it")
    plugins = [driver_scripts.PJRT_PLUGIN, OLD_PLUGIN][::order]
    assert passes(run(EACH_DEVICE, plugins=plugins, HAL_PJRT_MEMORY=memory)) == ["3"]


def test_each_platform_has_its_options(run):
    script = f"{USE}; print(torch.accelerator.device_count())"
    assert passes(run(script, HAL_PJRT_DEVICES=None, HAL_PJRT_OPTIONS="cpu_device_count=3;cpu_device_count=2")) == ["5"]


@pytest.mark.parametrize("cases", [
    [("HAL_PJRT_DEVICES", "2", "invalid HAL_PJRT_DEVICES='2': expected 2 numbers from 1 to 64, separated by commas"),
     ("HAL_PJRT_DEVICES", "1,2,3", "invalid HAL_PJRT_DEVICES='1,2,3': expected 2 numbers"),
     ("HAL_PJRT_DEVICES", "1,", "invalid HAL_PJRT_DEVICES='1,': expected 2 numbers"),
     ("HAL_PJRT_DEVICES", "64,1", "invalid HAL_PJRT_DEVICES='64,1': expected 1 to 64 in all")],
    [("HAL_PJRT_OPTIONS", "a=1;b=2;c=3", "HAL_PJRT_OPTIONS has options for 3 platforms, separated by semicolons, and HAL_PJRT_PLUGIN has 2")],
    [("HAL_PJRT_PLUGIN", f"{PLUGIN},", "HAL_PJRT_PLUGIN is not an absolute path: , and not a known platform"),
     ("HAL_PJRT_PLUGIN", ",".join([PLUGIN] * 9), "HAL_PJRT_PLUGIN has more than 8 platforms"),
     ("HAL_PJRT_PLUGIN", f"{PLUGIN},/missing.so", "/missing.so: cannot open shared object file")],
], ids=["devices", "options", "plugins"])  # fmt: skip
def test_invalid_lists_are_named(run, cases):
    passes(run(INVALID.format(cases=cases), TORCH_BACKEND=None))


def test_a_platform_with_fewer_devices_than_requested_is_an_error(run):
    done = run(f"{USE}; torch.ones(1, device='pjrt')", HAL_PJRT_DEVICES="1,60")
    assert done.returncode and "fewer than the 60 that were counted or that HAL_PJRT_DEVICES requests" in done.stderr, done.stderr


def test_ranks_on_two_platforms_use_shared_memory(tmp_path):
    script = driver_scripts.TESTS / "distributed/threads.py"
    settings = driver_scripts.pjrt_settings(tmp_path, HAL_PJRT_DEVICES="2,1", HAL_LOG="info")
    settings["HAL_PJRT_PLUGIN"] = ",".join([settings["HAL_PJRT_PLUGIN"]] * 2)
    done = warm_interpreter.run([sys.executable, "-P", script, "3"], env={**os.environ, **settings}, timeout=300)
    assert done.returncode == 0 and done.stdout.split() == ["150", "checks"], done.stdout + done.stderr
    assert done.stderr.count("collectives run by shared memory") == 6, done.stderr
