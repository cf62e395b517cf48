"""The plugin pjrt on the CPU's PJRT plugin: networks train as on the CPU without a fallback, and invalid settings and
forks are errors that name their cause."""

import json
import os
import subprocess
import sys

import driver_scripts
import pytest

USE = "import torch, torch_backend; torch_backend.use('pjrt')"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return driver_scripts.pjrt_settings(tmp_path_factory.mktemp("pjrt"))


@pytest.fixture
def run(settings, tmp_path):
    """Runs a script on the device; returns the finished process."""

    def run(script, **more):
        environment = {name: value for name, value in {**os.environ, **settings, **more}.items() if value is not None}
        return subprocess.run([sys.executable, "-P", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run


def passes(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_network_trains_as_on_the_cpu_without_a_fallback(run):
    passes(run(driver_scripts.train_as_on_the_cpu("pjrt")))


def test_devices_and_streams_exchange_data(run):
    script = driver_scripts.cross_devices("pjrt").replace("test double", "PJRT")
    passes(run(script))


def test_the_platform_determines_the_number_of_devices(run):
    script = f"{USE}; print(torch.accelerator.device_count())"
    assert passes(run(script, HAL_PJRT_DEVICES=None, HAL_PJRT_OPTIONS="cpu_device_count=3")).strip() == "3"


def test_another_library_is_not_a_pjrt_plugin(run):
    library = subprocess.run([sys.executable, "-c", "import _ctypes; print(_ctypes.__file__)"], capture_output=True, text=True, check=True).stdout.strip()
    done = run(USE, HAL_PJRT_PLUGIN=library)
    assert done.returncode and f"HAL_PJRT_PLUGIN={library} is not a PJRT plugin: it lacks the function GetPjrtApi" in done.stderr


# A process tries one setting after the other, until one is valid.
INVALID = """
import os, torch, torch_backend
for setting, value, message in {cases}:
    before = os.environ.get(setting)
    os.environ[setting] = value
    try:
        torch_backend.use("pjrt")
    except RuntimeError as error:
        assert message in str(error), error
    else:
        raise AssertionError((setting, value))
    os.environ[setting] = before or ""
"""


@pytest.mark.parametrize("cases", [
    [("HAL_PJRT_PLUGIN", "", "HAL_PJRT_PLUGIN is not set"),
     ("HAL_PJRT_PLUGIN", "libother.so", "HAL_PJRT_PLUGIN is not an absolute path: libother.so"),
     ("HAL_PJRT_PLUGIN", "/missing/plugin.so", "/missing/plugin.so: cannot open shared object file"),
     ("HAL_PJRT_DEVICES", "some", "invalid HAL_PJRT_DEVICES='some': expected 1 to 64"),
     ("HAL_PJRT_OPTIONS", "cpu_device_count", "invalid HAL_PJRT_OPTIONS at 'cpu_device_count': expected at most 32 pairs name=value")],
    [("HAL_PJRT_OPTIONS", "no_such_option=1", "no_such_option")],
], ids=["settings", "options of the platform"])  # fmt: skip
def test_an_invalid_setting_is_named(run, cases):
    passes(run(INVALID.format(cases=cases), TORCH_BACKEND=None))


# More devices than the platform has are known only when it starts.
def test_missing_devices_are_an_error_of_the_first_use(run):
    done = run(f"{USE}; torch.ones(1, device='pjrt')", HAL_PJRT_DEVICES="64")
    assert done.returncode and "fewer than the 64 that were counted or that HAL_PJRT_DEVICES requests" in done.stderr, done.stderr


FORK = f"""
{USE}
import os
x = torch.ones(3, device="pjrt")
child = os.fork()
if not child:
    try:
        torch.ones(3, device="pjrt")
    except RuntimeError as error:
        os._exit(3 if "fork" in str(error) else 4)
    os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert (x + 1).tolist() == [2, 2, 2]
"""


def test_a_forked_child_gets_an_error_and_the_parent_continues(run):
    passes(run(FORK))


def test_counting_devices_starts_no_thread_and_allows_forks(run):
    script = f"{USE}\nimport os\nassert torch.accelerator.device_count() == 2\nassert len(os.listdir('/proc/self/task')) == {{before}}"
    before = passes(run("import torch, torch_backend, os; print(len(os.listdir('/proc/self/task')))")).strip()
    passes(run(script.format(before=before)))


# ---- programs -------------------------------------------------------------------------------------------------------

TRAIN = """
import json, torch, torch_backend
from torch_backend import lazy

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 10)

    def forward(self, x):
        y = self.norm(self.first(x)).relu()
        return self.head(torch.max_pool2d((self.second(y) + y).relu(), 2).mean((2, 3)))

class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(50, 32), torch.nn.Linear(32, 50)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.head(self.layer(self.embedding(x))).transpose(1, 2)

def mlp():
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

def steps(model, make, x, target, device, count, mark):
    torch.manual_seed(1)
    model = model().to(device)
    x, target, optimizer, losses = x.to(device), target.to(device), make(model.parameters()), []
    torch.manual_seed(2)
    for _ in range(count):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        mark()
    return torch.stack(losses).cpu()

def kinds():
    torch.manual_seed(0)
    images, labels, words = torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,)), torch.randint(0, 50, (2, 2, 12))
    return {"mlp": (mlp, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), torch.randn(16, 64), torch.randint(0, 10, (16,))),
            "transformer": (Transformer, lambda p: torch.optim.AdamW(p, lr=0.01), words[0], words[1]),
            "block": (Block, lambda p: torch.optim.Adam(p, lr=0.01), images, labels)}
"""


def test_networks_train_in_lazy_mode_with_the_losses_of_fake_and_one_program_for_each_step(run):
    script = TRAIN + """
for name, kind in kinds().items():
    expected = steps(*kind, "pjrt:2", 6, lambda: None)  # the first device of fake
    before = len(lazy.compilations())
    with lazy.record("pjrt:0"):
        losses = steps(*kind, "pjrt:0", 6, lambda: lazy.mark_step("pjrt:0"))
    compiled = [line for line in map(str, lazy.compilations()[before:]) if "a program of" in line]
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{name}: {text}")
    assert len(compiled) <= 3, (name, compiled)
    assert not any("step 3" in line for line in compiled), (name, compiled)
"""  # fmt: skip
    passes(run(script, TORCH_BACKEND="pjrt,fake"))


def test_a_second_process_loads_the_program_and_compiles_a_damaged_one_again(run, settings, tmp_path):
    script = f"""
{USE}
from torch_backend import lazy
a = torch.arange(12.0, device="pjrt").reshape(3, 4)
with lazy.record():
    b = a @ a.t() + 1
assert torch.equal(b.cpu(), a.cpu() @ a.cpu().t() + 1)
"""
    folder = tmp_path / "cache"

    def counts():
        done = run(script, HAL_CACHE_DIR=str(folder), HAL_LOG="info")
        passes(done)
        return done.stderr.count("pjrt: compiled a program"), done.stderr.count("pjrt: loaded a program")

    assert counts() == (1, 0)
    assert counts() == (0, 1)
    (file,) = (folder / "pjrt").glob("*.program")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert counts() == (1, 0)
    assert counts() == (0, 1)


# pjrt_operators.py compares operators as programs with the portable kernels on the same device.
@pytest.mark.slow  # half a minute
def test_operators_as_programs_have_the_results_of_the_kernels(settings, tmp_path):
    script = driver_scripts.TESTS / "device/pjrt_operators.py"
    environment = {**os.environ, **settings, "HAL_PJRT_DEVICES": "1", "HAL_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-P", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["cases"] > 250 and not outcome["wrong"] and not outcome["separate"], outcome


def test_a_program_is_reported_with_its_operators(run):
    script = f"""
{USE}
from torch_backend import lazy
a = torch.ones(3, 4, device="pjrt")
with lazy.record():
    b = (a + 1).sum(1)
assert b.tolist() == [8, 8, 8]
(line,) = map(str, lazy.compilations())
assert "a program of 2 operators for the compiler 'pjrt', add.Tensor to sum.dim_IntList: 2 arguments, 1 results" in line, line
"""
    passes(run(script))
