"""The plugin pjrt on the CPU's PJRT plugin: networks train as on the CPU without a fallback, and invalid settings and
forks are errors that name their cause."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import driver_scripts
import pytest

USE = "import torch, torch_backend; torch_backend.use('pjrt')"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return driver_scripts.pjrt_settings(tmp_path_factory.mktemp("pjrt"))


@pytest.fixture
def run(settings, tmp_path, run_file):
    """Runs a script on the device; returns the finished process."""
    return lambda script, **more: run_file(script, {**os.environ, **settings, **more}, tmp_path)


# How the memory is used: as the CPU's plugin permits, and as that of platforms with a memory of their own. MIXED below
# is the fast test of the latter.
@pytest.fixture(params=["addressed", pytest.param("opaque", marks=pytest.mark.slow)])
def memory(request):
    return request.param


@pytest.fixture
def run_in(run, memory):
    """As run, in both kinds of memory."""
    return lambda script, **more: run(script, HAL_PJRT_MEMORY=memory, TORCH_BACKEND_DEFER="0", **more)


def passes(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_network_trains_as_on_the_cpu_without_a_fallback(run_in):
    passes(run_in(driver_scripts.train_as_on_the_cpu("pjrt")))


def test_devices_and_streams_exchange_data(run_in):
    script = driver_scripts.cross_devices("pjrt").replace("test double", "PJRT")
    passes(run_in(script))


def test_the_platform_determines_the_number_of_devices(run):
    script = f"{USE}; print(torch.accelerator.device_count())"
    assert passes(run(script, HAL_PJRT_DEVICES=None, HAL_PJRT_OPTIONS="cpu_device_count=3")).strip() == "3"


def test_another_library_is_not_a_pjrt_plugin(run):
    library = subprocess.run([sys.executable, "-c", "import _ctypes; print(_ctypes.__file__)"], capture_output=True, text=True, check=True).stdout.strip()
    done = run(USE, HAL_PJRT_PLUGIN=library)
    assert done.returncode and f"HAL_PJRT_PLUGIN={library} is not a PJRT plugin: it lacks the function GetPjrtApi" in done.stderr


def test_a_plugin_for_another_processor_is_named(run, settings, tmp_path):
    library = subprocess.run([sys.executable, "-c", "import _ctypes; print(_ctypes.__file__)"], capture_output=True, text=True, check=True).stdout.strip()
    content = bytearray(Path(library).read_bytes())
    content[18:20] = (243).to_bytes(2, "little")  # RISC-V
    other = tmp_path / "plugin.so"
    other.write_bytes(content)
    done = run(USE, HAL_PJRT_PLUGIN=str(other))
    assert done.returncode and f"HAL_PJRT_PLUGIN={other} is for another processor (machine 243 of ELF)" in done.stderr, done.stderr


@pytest.mark.parametrize("more, message", [
    ({"PJRT_FAULTY_VERSION": "none"}, "returned no table of functions"),
    ({"PJRT_FAULTY_VERSION": "0.69"}, "has version 0.69 of the PJRT C API, expected 0.70 or a later 0.x"),
    ({"PJRT_FAULTY_VERSION": "1.0"}, "has version 1.0 of the PJRT C API, expected 0.70 or a later 0.x"),
    ({"PJRT_FAULTY_MISSING": "Client_Compile"}, "lacks the function Client_Compile"),
])  # fmt: skip
def test_a_platform_of_another_version_is_refused(run, faulty, more, message):
    done = run(USE, **faulty, **more)
    assert done.returncode and message in done.stderr, done.stderr


# Functions that a platform may lack.
OPTIONAL = ("Client_PlatformName", "Client_PlatformVersion", "Device_GetDescription", "DeviceDescription_Kind", "Event_IsReady", "Executable_Destroy",
            "Executable_Serialize", "Executable_DeserializeAndLoad", "LoadedExecutable_GetExecutable", "Buffer_UnsafePointer")  # fmt: skip


def test_a_platform_may_lack_functions(run, faulty, tmp_path):
    script = f"""
{USE}
from torch_backend import lazy
x = torch.arange(6.0).reshape(2, 3)
with lazy.record():
    y = x.to("pjrt") @ x.t().to("pjrt")
    lazy.mark_step()
    z = y.tanh()
assert torch.equal(y.cpu(), x @ x.t()) and torch.allclose(z.cpu(), (x @ x.t()).tanh())
assert torch.pjrt.current_stream().query()
assert sum("compiler 'pjrt'" in line for line in map(str, lazy.compilations())) == 2
"""
    passes(run(script, PJRT_FAULTY_MISSING=",".join(OPTIONAL), **{**faulty, "HAL_CACHE_DIR": str(tmp_path)}, HAL_PJRT_MEMORY="opaque"))
    done = run(script, PJRT_FAULTY_MISSING=",".join(OPTIONAL), **faulty, HAL_PJRT_MEMORY="addressed")
    assert done.returncode and "does not compute in memory of the host" in done.stderr, done.stderr


# Packages of the platforms, as pip installs them.
def test_the_plugin_of_an_installed_package_is_found(run, settings, tmp_path):
    def install(folder, file):
        path = tmp_path / folder / file
        path.parent.mkdir(parents=True)
        path.symlink_to(settings["HAL_PJRT_PLUGIN"])

    install("one", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so")
    install("two", "jax_plugins/xla_rocm7/xla_rocm_plugin.so")
    def path(*folders):
        return os.pathsep.join([*(str(tmp_path / folder) for folder in folders), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])

    def use(*folders):  # sets the variable here, because interpreters that have imported torch are chosen by it
        return f"import os; os.environ['PYTHONPATH'] = {path(*folders)!r}; {USE}"

    for folders, name in ((["one"], None), (["one"], "cpu"), (["one", "two"], "rocm")):
        passes(run(f"{use(*folders)}; assert (torch.ones(2, device='pjrt') + 1).tolist() == [2, 2]", HAL_PJRT_PLUGIN=name))
    done = run(use("one", "two"), HAL_PJRT_PLUGIN=None)
    assert done.returncode and "packages of several platforms are installed: cpu, rocm; set it to one of them" in done.stderr, done.stderr


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
    [("HAL_PJRT_PLUGIN", "", "HAL_PJRT_PLUGIN is not set, and no package of cpu, tpu, cuda, rocm, oneapi, xpu, tt, neuron is installed"),
     ("HAL_PJRT_PLUGIN", "libother.so", "HAL_PJRT_PLUGIN is not an absolute path: libother.so, and not a known platform: cpu, tpu"),
     ("HAL_PJRT_PLUGIN", "tt", "HAL_PJRT_PLUGIN is tt, and no package of it is installed"),
     ("HAL_PJRT_PLUGIN", "/missing/plugin.so", "/missing/plugin.so: cannot open shared object file"),
     ("HAL_PJRT_DEVICES", "some", "invalid HAL_PJRT_DEVICES='some': expected 1 to 64"),
     ("HAL_PJRT_OPTIONS", "cpu_device_count", "invalid HAL_PJRT_OPTIONS at 'cpu_device_count': expected at most 32 pairs name=value")],
    [("HAL_PJRT_OPTIONS", "no_such_option=1", "no_such_option")],
], ids=["settings", "options of the platform"])  # fmt: skip
def test_an_invalid_setting_is_named(run, cases):
    passes(run(INVALID.format(cases=cases), TORCH_BACKEND=None))


# What is known only when the platform starts. The devices are the fast case.
@pytest.mark.parametrize("setting, value, message", [
    ("HAL_PJRT_DEVICES", "64", "fewer than the 64 that were counted or that HAL_PJRT_DEVICES requests"),
    pytest.param("HAL_PJRT_PROGRAMS", "many", "invalid HAL_PJRT_PROGRAMS='many': expected 0 to 2147483647", marks=pytest.mark.slow),
    pytest.param("HAL_PJRT_OPTIMIZE", "some", "invalid HAL_PJRT_OPTIMIZE='some': expected 'whole' or 'rising'", marks=pytest.mark.slow),
    pytest.param("HAL_PJRT_SMALL", "few", "invalid HAL_PJRT_SMALL='few': expected a number of multiplications, 0 or more", marks=pytest.mark.slow),
    pytest.param("HAL_PJRT_HOT", "0", "invalid HAL_PJRT_HOT='0': expected 1 to 1073741823", marks=pytest.mark.slow),
    pytest.param("HAL_PJRT_MEMORY", "some", "invalid HAL_PJRT_MEMORY='some': expected 'auto', 'addressed' or 'opaque'", marks=pytest.mark.slow),
    # the 40 bytes that the message has end in a character, and the second is not UTF-8
    ("HAL_PJRT_PROGRAMS", os.fsdecode(b"1\xff2") + "\N{LATIN SMALL LETTER A WITH DIAERESIS}" * 20, "RuntimeError: pjrt, init: pjrt: invalid HAL_PJRT_PROGRAMS='1?2"),
])  # fmt: skip
def test_an_invalid_setting_is_an_error_of_the_first_use(run, setting, value, message):
    done = run(f"{USE}; torch.ones(1, device='pjrt')", **{setting: value})
    assert done.returncode and message in done.stderr, done.stderr


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


def test_networks_train_in_lazy_mode_with_the_losses_of_fake_and_one_program_for_each_step(run_in):
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
    passes(run_in(script, TORCH_BACKEND="pjrt,fake"))


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
    file.unlink()
    os.mkfifo(file)  # opening it would wait for a writer
    assert counts() == (1, 0)


# pjrt_operators.py compares operators as programs with the portable kernels on the same device.
@pytest.mark.slow  # half a minute
def test_operators_as_programs_have_the_results_of_the_kernels(settings, memory, tmp_path):
    script = driver_scripts.TESTS / "device/pjrt_operators.py"
    environment = {**os.environ, **settings, "HAL_PJRT_DEVICES": "1", "HAL_PJRT_MEMORY": memory, "HAL_CACHE_DIR": "", "TORCH_BACKEND_DEFER": "0"}
    done = subprocess.run([sys.executable, "-P", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["cases"] > 250 and not outcome["wrong"] and not outcome["separate"], outcome


def test_each_device_runs_programs(run_in):
    script = f"""
{USE}
from torch_backend import lazy
a = torch.arange(12.0).reshape(3, 4)
for device in ("pjrt:0", "pjrt:1"):
    lazy.reset_metrics()
    x = a.to(device)
    with lazy.record(device):
        y = (x @ x.t() + 1).relu()
    assert torch.equal(y.cpu(), (a @ a.t() + 1).relu())
    assert lazy.metrics()["programs"] == 1, (device, lazy.metrics(), lazy.compilations())
"""
    passes(run_in(script))


def test_an_operator_that_only_releases_memory_is_not_in_a_program(run_in):
    script = f"""
{USE}
import warnings
from torch_backend import lazy
warnings.simplefilter("ignore")  # var of no elements
with lazy.record():
    x = torch.arange(6.0, device="pjrt") + 1
    empty = torch.empty(5, 3, 0, device="pjrt").var(1)  # computes nothing, and has temporary memory
    y = x * 3
assert empty.shape == (5, 0) and y.tolist() == [3, 6, 9, 12, 15, 18]
"""
    passes(run_in(script))


# Values for which XLA differs: powers of integers with large exponents, digamma at both zeros, and products of truth
# values and numbers that are not finite.
def test_programs_compute_values_that_xla_computes_otherwise(run_in):
    script = f"""
{USE}
from torch_backend import lazy

def work(device):
    out = []
    for dtype in (torch.uint8, torch.int16, torch.int64):
        most = torch.iinfo(dtype).max
        base = torch.arange(-8 if dtype.is_signed else 0, 9, dtype=dtype).to(device)[:, None]
        power = torch.tensor([0, 1, 5, 63, 64, 65, 100, 127, most - 1, most], dtype=dtype).to(device)
        out += [base ** power, base ** 100]
    sign = torch.tensor([-1, 1, 2, -3]).to(device)[:, None]
    out.append(sign ** torch.tensor([-1, -2, -64, -65]).to(device))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        out.append(torch.digamma(torch.tensor([-0.0, 0.0], dtype=dtype).to(device)))
        special = torch.tensor([float("inf"), -float("inf"), float("nan"), 2.0], dtype=dtype).to(device)
        none = special != special.abs().clamp(2, 3)  # false for the last one only
        out += [special * (special > 5), special * (special > 5).to(dtype), (special > 5).to(dtype) * special, none * float("inf"), none / 0]
    return [torch.nan_to_num(one.double(), 1e5, 2e5, -2e5) if one.is_floating_point() else one for one in out]

expected = work("cpu")
with lazy.record():
    actual = work("pjrt")
for one, other in zip(actual, expected):
    assert torch.equal(one.cpu(), other), (one, other)
assert lazy.metrics()["programs"] > 0
"""
    passes(run_in(script))


LIMITED = pytest.mark.fresh_interpreter("its output is a pipe: the script limits the size of files")


@pytest.mark.parametrize("kind, reason", [("file", "cannot open {}: Not a directory"), ("open", "others can write to {}: Permission denied"),
                                         pytest.param("full", "cannot write to {}: ", marks=LIMITED)])  # fmt: skip
def test_a_cache_that_cannot_be_written_is_reported_once(run, tmp_path, kind, reason):
    folder = tmp_path / "pjrt"
    if kind == "file":
        folder.write_text("")
    else:
        folder.mkdir(mode=0o700)
        folder.chmod(0o777 if kind == "open" else 0o700)
    script = f"""
{USE}
import resource
from torch_backend import lazy
x = torch.ones(2, device="pjrt")
if {kind == "full"}:
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for number in range(1, 3):
    with lazy.record():
        y = x + number if number == 1 else x * x
    y.tolist()
"""
    done = run(script, HAL_CACHE_DIR=str(tmp_path))
    assert passes(done) == "" and done.stderr.count("compiled programs are not kept for later processes") == 1, done.stderr
    assert f"{reason.format(folder)}" in done.stderr and "or name another in HAL_CACHE_DIR" in done.stderr, done.stderr
    assert kind != "full" or not list(folder.iterdir())


def test_a_folder_for_programs_that_does_not_exist_is_reported_once(run, tmp_path):
    script = f"""
{USE}
from torch_backend import lazy
for _ in range(2):
    with lazy.record():
        x = torch.ones(2, device="pjrt") + 1
    x.tolist()
"""
    done = run(script, HAL_PJRT_DUMP=str(tmp_path / "missing"))
    assert passes(done) == "" and done.stderr.count("programs cannot be written to HAL_PJRT_DUMP") == 1, done.stderr
    assert "missing': No such file or directory; set it to a folder that exists" in done.stderr


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


# ---- memory that programs do not compute in -------------------------------------------------------------------------

# Programs, kernels of the host, copies and fills use the same tensors in turn, whole and in part.
MIXED = f"""
{USE}
from torch_backend import lazy
assert not torch.pjrt.get_device_properties(0).flags & 1  # the host may not access the memory
torch.manual_seed(0)

def work(device, step):
    x = torch.arange(24.0).reshape(4, 6).to(device)
    large = (torch.arange(1 << 19) % 7).float().to(device)  # 2 MiB, with an exact sum
    other = torch.ones(6, device=device)
    out = []
    x[1:3, ::2] *= 2  # a part of the memory
    y = x.t() @ x
    step()
    y[0] += 1  # a part of a result
    x.view(torch.int32)[0].bitwise_or_(1)  # another dtype of the same memory
    step()
    out += [y.clone(), x.clone(), (x > 5).nonzero()]  # the last one is a kernel of the host
    x[2] = other
    large[10:20] = large[30:40] * 3
    step()
    large.add_(1)
    out += [x.sum(0), large[:64].clone(), large.sum()]
    x.copy_(torch.full((4, 6), 7.0))  # from the host, over results
    x[3].fill_(2)
    step()
    out += [x * 2, y.cumsum(0), x[::2]]
    (y * 2).sum()  # nothing uses it
    step()
    return [t.cpu() for t in out]

expected = work("cpu", lambda: None)
for actual in (work("pjrt", lambda: None), work("pjrt:1", lambda: None)):
    assert all(map(torch.equal, actual, expected))
with lazy.record("pjrt:0"):
    for _ in range(3):
        assert all(map(torch.equal, work("pjrt:0", lambda: lazy.mark_step("pjrt:0")), expected))
a = torch.randn(300, 300)
first, second = a.to("pjrt:0"), a.to("pjrt:1")
with lazy.record("pjrt:0"):
    first = first * 2
    lazy.mark_step("pjrt:0")
    second.copy_(first)  # from a result of a program
    assert torch.equal(second.cpu(), a * 2)
del first, second
assert torch.pjrt.memory_allocated(0) == 0, torch.pjrt.memory_allocated(0)
"""


def test_programs_kernels_and_copies_use_opaque_memory_in_turn(run):
    passes(run(MIXED, HAL_PJRT_MEMORY="opaque", TORCH_BACKEND_DEFER="0"))  # eager kernels, then programs
    passes(run(MIXED, HAL_PJRT_MEMORY="opaque"))  # programs only


OPAQUE_TRAIN = TRAIN + """
torch_backend.use("pjrt")
expected = steps(*kinds()["mlp"], "cpu", 6, lambda: None)
before = len(lazy.compilations())
with lazy.record("pjrt:0"):
    losses = steps(*kinds()["mlp"], "pjrt:0", 6, lambda: lazy.mark_step("pjrt:0"))
torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
steps = [line for line in map(str, lazy.compilations()[before:]) if "a program of" in line]
assert len(steps) <= 3 and not any("step 3" in line for line in steps), steps
"""


def test_a_network_trains_in_opaque_memory_with_one_program_for_each_step(run):
    passes(run(OPAQUE_TRAIN, HAL_PJRT_MEMORY="opaque"))


# ---- failures of the platform ---------------------------------------------------------------------------------------

# Each call of a function of the platform fails once. The result is an error that names the work, or right; later runs
# are right. The results of a poisoned run fail programs that use them.
FAILURES = f"""
{USE}
import ctypes, os
from torch_backend import lazy
faulty = ctypes.CDLL(os.environ["HAL_PJRT_PLUGIN"])
faulty.pjrt_faulty_fail.restype = ctypes.c_long

def fail(function, number):
    return faulty.pjrt_faulty_fail(function.encode(), ctypes.c_long(number))

def work(device, step, rows):
    x = torch.arange(6.0 * rows).reshape(rows, 6).to(device)
    y = x.t() @ x
    step()
    y[0] += 1
    x[1:3, ::2] *= 2
    step()
    found = (x > 5).nonzero()  # by a kernel of the host
    y.add_(x.sum())
    step()
    return [t.cpu() for t in (x, y, found)]

def right(rows):
    with lazy.record("pjrt:0"):
        actual = work("pjrt:0", lambda: lazy.mark_step("pjrt:0"), rows)
    return all(map(torch.equal, actual, work("cpu", lambda: None, rows)))

assert right(4)
for function, message in (("poison", "poisoned argument"), ("LoadedExecutable_Execute", "injected failure"),
                          ("Client_BufferFromHostBuffer", "injected failure"), ("Buffer_ToHostBuffer", "injected failure"),
                          ("Client_Compile", "injected failure")):
    for number in range(1, 40):
        rows = 4 + number if function == "Client_Compile" else 4  # another shape is compiled
        fail(function, number)
        try:
            assert right(rows), (function, number)
            failed = False
        except RuntimeError as error:
            failed = True
            assert message in str(error) and "out of memory" not in str(error), error
            assert any(name in str(error) for name in ("mm to mm", "add.Tensor", "gt.Tensor", "nonzero", "memory_copy")), error
        reached = fail("", 0) <= 0
        assert reached or not failed, (function, number)
        torch.pjrt.synchronize()
        assert right(rows), (function, number)
        if not reached:
            break
    print(function, number - 1)

with lazy.record("pjrt:0"):
    y = torch.arange(6.0, device="pjrt") * 2
    lazy.mark_step("pjrt:0")
if not torch.pjrt.get_device_properties(0).flags & 1:  # opaque memory: a part is read by way of the mirror
    torch.pjrt.synchronize()
    fail("Buffer_ToHostBuffer", 1)
    for expected in ("injected failure", None):
        try:
            assert y[2:4].tolist() == [4, 6] and expected is None
        except RuntimeError as error:
            assert expected and expected in str(error), error
"""


@pytest.fixture
def faulty(settings):
    """Settings of a plugin that fails as the script requests, and of no stored programs."""
    if not driver_scripts.PJRT_FAULTY.exists():
        pytest.skip(f"{driver_scripts.PJRT_FAULTY} is not built; run `make test-c`, or name it in PJRT_FAULTY")
    return {"PJRT_FAULTY_PLUGIN": settings["HAL_PJRT_PLUGIN"], "HAL_PJRT_PLUGIN": str(driver_scripts.PJRT_FAULTY), "HAL_CACHE_DIR": ""}


# Runs in opaque memory are queued without waiting for the previous ones, whose failure is known later.
ASYNCHRONOUS = f"""
{USE}
import ctypes, os
from torch_backend import lazy
faulty = ctypes.CDLL(os.environ["HAL_PJRT_PLUGIN"])

def work(poisoned):
    x = torch.ones(600, 600, device="pjrt:0")
    torch.pjrt.synchronize()
    if poisoned:
        faulty.pjrt_faulty_fail(b"poison", ctypes.c_long(1))
    for step in (lambda x: x @ x, torch.cos, lambda x: x.sort().values) + (torch.sin,) * 20:
        x = step(x)
        lazy.mark_step("pjrt:0")
    torch.pjrt.synchronize()
    return x.cpu()

with lazy.record("pjrt:0"):
    expected = work(False)
    try:
        work(True)
        raise SystemExit("no error")
    except RuntimeError as error:
        assert "program of 1 operators, mm to mm failed: poisoned argument" in str(error), error
    assert torch.equal(work(False), expected)
"""


def test_a_failure_in_opaque_memory_is_that_of_the_first_program_that_failed(run, faulty):
    passes(run(ASYNCHRONOUS, HAL_PJRT_MEMORY="opaque", HAL_PJRT_SMALL="0", TORCH_BACKEND_DEFER="0", **faulty))


@pytest.mark.slow
def test_at_least_400_operator_entries_are_computed_by_programs(settings):
    script = Path(__file__).resolve().parents[2] / "opinfo/programs.py"
    done = subprocess.run([sys.executable, script, "--samples", "1", "--slots", "2", "--least", "400"], env={**os.environ, **settings},
                          capture_output=True, text=True, timeout=3600)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["addressed", "opaque"])
def test_failures_of_the_platform_are_errors_and_later_runs_are_right(run, faulty, kind):
    printed = passes(run(FAILURES, HAL_PJRT_MEMORY=kind, TORCH_BACKEND_DEFER="0", **faulty))
    calls = {name: int(count) for name, count in map(str.split, printed.splitlines())}
    assert len(calls) == 5 and all(calls.values()), calls  # each function failed


# ---- programs that are compiled again --------------------------------------------------------------------------------

# A program at low optimization. The fourth run begins a second compilation, which the ninth and later runs use.
RISING = f"""
{USE}
import ctypes, os
from torch_backend import lazy
faulty = ctypes.CDLL(os.environ["HAL_PJRT_PLUGIN"])
torch.manual_seed(0)
a = torch.randn(64, 64)
x = a.to("pjrt")

def run(rounds, count=64):
    with lazy.record():
        for round in range(rounds):
            y = (x[:count] @ x * (round / 64)).tanh().sum(1)
            torch.testing.assert_close(y.cpu(), (a[:count] @ a * (round / 64)).tanh().sum(1), rtol=1e-5, atol=1e-4)
"""
AGAIN = re.compile(r"pjrt: (compiled|loaded) a program of \d+ operators, .* again in")
LOW = re.compile(r"pjrt: (compiled|loaded) a program of \d+ operators, .*, at low optimization")


def rising(run, script, **more):
    """Runs a script whose hot programs are compiled again; returns the words of both kinds of compilations."""
    done = run(RISING + script, HAL_PJRT_OPTIMIZE="rising", HAL_LOG="info", **{"HAL_PJRT_HOT": "4", **more})
    passes(done)
    return LOW.findall(done.stderr), AGAIN.findall(done.stderr), done


def test_a_hot_program_is_compiled_again_and_both_are_stored(run, memory, tmp_path):
    script = """
from torch_backend.xla.debug import metrics
run(3)
assert lazy.metrics()["again"] == 0 and "SecondCompile" not in metrics.counter_names()
run(9)
assert lazy.metrics()["again"] == 1 and metrics.counter_value("SecondCompile") == 1
lazy.reset_metrics()
assert lazy.metrics()["again"] == 0
"""
    for word in ("compiled", "loaded"):
        low, again, _ = rising(run, script, HAL_CACHE_DIR=str(tmp_path / "cache"), HAL_PJRT_MEMORY=memory)
        assert (low, again) == ([word], [word])
    assert len(list((tmp_path / "cache/pjrt").glob("*.program"))) == 2
    low, again, done = rising(run, "run(3); print(*lazy.compilations())", HAL_CACHE_DIR="")
    assert (low, again) == (["compiled"], []) and "at low optimization for 8 runs" in done.stdout, done.stdout


OLD_PLUGIN = driver_scripts.TESTS.parents[1] / "build/pjrt-old/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"


@pytest.mark.slow
def test_an_older_platform_has_low_optimization_and_a_client_of_one_thread(run):
    if not OLD_PLUGIN.exists():
        pytest.skip(f"{OLD_PLUGIN} does not exist; `make test-full` installs it")
    low, again, done = rising(run, "run(12); print(*lazy.compilations())", HAL_PJRT_PLUGIN=str(OLD_PLUGIN), HAL_CACHE_DIR="")
    assert (low, again) == (["compiled"], ["compiled"]) and "in one thread, at low optimization for 8 runs" in done.stdout, done.stdout


def test_a_program_that_cannot_be_compiled_again_remains_at_low_optimization(run, faulty):
    script = """
run(1)
faulty.pjrt_faulty_fail(b"Client_Compile", ctypes.c_long(1))
run(20)
"""
    low, again, done = rising(run, script, **faulty)
    assert (low, again) == (["compiled"], []) and "cannot be compiled again, and remains at low optimization: injected failure" in done.stderr, done.stderr


# The process ends in the first of five second compilations.
ENDS = """
for count in range(1, 6):
    run(3, count)
faulty.pjrt_faulty_delay(ctypes.c_long(2000))
for count in range(1, 6):
    run(1, count)
import time
begin = time.monotonic()
torch.pjrt.synchronize()
assert time.monotonic() - begin < 1  # no run waits for it
print(time.time())
"""


def test_a_process_that_ends_waits_for_one_compilation_at_most(run, faulty):
    low, again, done = rising(run, ENDS, **faulty)
    assert len(low) == 5 and not again, (low, again)
    assert time.time() - float(done.stdout) < 6  # all of them take ten seconds


# ---- short programs --------------------------------------------------------------------------------------------------

# Programs that take less than some microseconds run in the calling thread if their stream is idle. Here they alternate
# with longer ones, kernels of the host, copies and events, on memory that is freed and used again.
SHORT = f"""
{USE}
import random
from torch_backend import lazy
random.seed(0)
torch.manual_seed(0)

def work(device, step):
    state = [torch.arange(64.0, device=device), torch.ones(64, 64, device=device)]
    random.seed(1)
    for turn in range(300):
        kind = random.randrange(8)
        if kind < 3:
            state[0] = (state[0] * random.choice((0.5, 0.25)) + turn) % 97
        elif kind == 3:
            state[1] = (state[1] @ state[1].t()).remainder_(5)  # exact
        elif kind == 4:
            state[0] = torch.cat([state[0][random.choice((3, 8, 16)):], torch.full((80,), float(turn), device=device)])[:64].clone()
        elif kind == 5:
            state[1][turn % 64].copy_(state[0].nonzero().flatten()[:1].float().sum())  # a kernel of the host
        elif kind == 6:
            state[0].view(torch.int32)[:4].bitwise_and_(-2)
        else:
            state[1][:, 0].add_(state[0].remainder(7).floor())
        if random.randrange(2):
            step()
    return [one.cpu() for one in state]

expected = work("cpu", lambda: None)
with lazy.record("pjrt:0"):
    actual = work("pjrt:0", lambda: lazy.mark_step("pjrt:0"))
assert all(map(torch.equal, actual, expected)), [(one - other).abs().max() for one, other in zip(actual, expected)]
"""


def test_short_programs_keep_the_order_of_their_stream(run_in):
    passes(run_in(SHORT))


# ---- programs that run in one thread ---------------------------------------------------------------------------------

# Small programs have a client of their own, with one thread. Programs of both clients use each other's results.
SINGLE = f"""
{USE}
import os
from torch_backend import lazy

def threads():  # of the platform, for parts of operators
    return sum("XLAEigen" in open(f"/proc/self/task/{{thread}}/comm").read() for thread in os.listdir("/proc/self/task"))

def work(device, mark):
    torch.manual_seed(0)
    small, large = torch.randn(64, 64).to(device), torch.randn(512, 512).to(device)
    for _ in range(3):
        small = (small @ small.t() / 64).softmax(1) - small
        mark()
        large[:64, :64] += small
        large = (large @ large.t() / 512).tanh()
        mark()
        small = small + large[:64, 64:128]
        mark()
    return small.cpu(), large.cpu()

torch.ones(1, device="pjrt:0")
before = threads(), os.sched_getaffinity(0)
assert before[0], "the platform's threads have other names"
with lazy.record("pjrt:0"):
    x = torch.ones(8, 8, device="pjrt:0")
    assert (x @ x).sum().item() == 512
    print("threads", threads() - before[0])
    actual = work("pjrt:0", lambda: lazy.mark_step("pjrt:0"))
assert all(os.sched_getaffinity(int(thread)) == before[1] for thread in os.listdir("/proc/self/task"))
for one, other in zip(actual, work("cpu", lambda: None)):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
for line in map(str, lazy.compilations()):
    if "compiler 'pjrt'" in line:
        print("single" if ", in one thread" in line else "all")
"""


def test_a_program_without_large_operators_runs_in_one_thread(run_in):
    printed = passes(run_in(SINGLE, HAL_PJRT_SMALL="16000000")).split()
    assert printed[:2] == ["threads", "1"] and {"single", "all"} == set(printed[2:]), printed
    printed = passes(run_in(SINGLE, HAL_PJRT_SMALL="0")).split()
    assert printed[:2] == ["threads", "0"] and {"all"} == set(printed[2:]), printed
    printed = passes(run_in(SINGLE, HAL_PJRT_SMALL="200000000")).split()
    assert printed[:2] == ["threads", "1"] and {"single"} == set(printed[2:]), printed


# ---- eager programs -------------------------------------------------------------------------------------------------

STARTED = f"""
{USE}
from torch_backend import lazy
lazy.start()
x = torch.arange(6.0, device="pjrt")
for _ in range(3):
    x = (x * 2 - 1).clamp(max=40)
    assert x.sum().item() == x.cpu().sum().item()
with lazy.record():  # only flushes
    y = x + 1
lines = [line for line in map(str, lazy.compilations()) if "compiler 'pjrt'" in line]
assert 1 <= len(lines) <= 4, lines
y + 2  # a program without a result
lazy.mark_step()
lazy.stop()
assert not lazy.is_recording()
lazy.start()
z = y * 3  # deferred when the process ends
"""


def test_a_program_is_deferred_from_the_start(run):
    done = run(STARTED)
    passes(done)
    assert not done.stderr, done.stderr


# Devices that compute only by programs: eager code becomes programs without a call.
DEFERRED = f"""
{USE}
from torch_backend import lazy
a = torch.arange(12.0).reshape(3, 4)
x = a.to("pjrt")
assert lazy.is_recording(0) and lazy.is_recording(1)
y = (x @ x.t() + 1).relu()
assert lazy.metrics()["pending"] > 0
assert torch.equal(y.cpu(), (a @ a.t() + 1).relu())
counts = lazy.metrics()
assert counts["programs"] == 1 and counts["queued"] <= 3, counts  # the program, and copies
with lazy.record(piece=1):
    assert torch.equal((y.sum() + y.cumsum(0)).cpu(), (a @ a.t() + 1).relu().sum() + (a @ a.t() + 1).relu().cumsum(0))
assert lazy.is_recording()
lazy.start(limit=100)
(y + 1).cpu()
lazy.stop()
assert not lazy.is_recording(0) and not lazy.is_recording(1)
before = lazy.metrics()["recorded"]
y + 1
assert lazy.metrics()["recorded"] == before
"""


def test_eager_programs_run_on_devices_that_compute_only_by_programs(run):
    passes(run(DEFERRED, HAL_PJRT_MEMORY="opaque"))
    script = f"{USE}; from torch_backend import lazy; torch.ones(2, device='pjrt'); assert lazy.is_recording() is {{wanted}}"
    passes(run(script.format(wanted=False), HAL_PJRT_MEMORY="opaque", TORCH_BACKEND_DEFER="0"))
    passes(run(script.format(wanted=False), HAL_PJRT_MEMORY="addressed"))
    passes(run(script.format(wanted=True), HAL_PJRT_MEMORY="addressed", TORCH_BACKEND_DEFER="1"))


CHURN = f"""
{USE}
from torch_backend import lazy
with lazy.record():
    for count in range(1, 8):
        assert (torch.ones(count, device="pjrt") + 1).tolist() == [2] * count
compiled = [line for line in map(str, lazy.compilations()) if "StableHLO" in line]
assert len(compiled) == 3, lazy.compilations()
"""


def test_more_programs_than_the_limit_are_not_compiled(run):
    done = run(CHURN, HAL_PJRT_PROGRAMS="3")
    passes(done)
    assert done.stderr.count("3 programs were compiled, the limit HAL_PJRT_PROGRAMS; other work runs on the portable kernels") == 1, done.stderr


STEADY = TRAIN + """
import os
torch_backend.use("pjrt")

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

network, optimizer, x, target = kinds()["mlp"]
network = network().to("pjrt")
optimizer, x, target = optimizer(network.parameters()), x.to("pjrt"), target.to("pjrt")
with lazy.record():
    for step in range(3300):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(x), target).backward()
        optimizer.step()
        lazy.mark_step()
        if step == 300:
            torch.accelerator.synchronize()
            before = resident()
torch.accelerator.synchronize()
assert resident() - before < 4 << 20, (before, resident())
"""


@pytest.mark.slow
def test_the_resident_memory_of_a_loop_does_not_grow(run_in):
    passes(run_in(STEADY))


# ---- process groups -------------------------------------------------------------------------------------------------

RANK = f"""
{USE}
import copy, sys
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_backend import lazy
rank, size = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group(init_method=f"file://{{sys.argv[3]}}", rank=rank, world_size=size)
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU(), torch.nn.Linear(8, 4), torch.nn.Linear(4, 4))
network[3].requires_grad_(False)
x = torch.randn(4 * size, 16)
exact = copy.deepcopy(network).double()
exact(x.double()).square().mean().backward()
if sys.argv[4] == "lazy":
    lazy.start()
model = DistributedDataParallel(network.to("pjrt"), find_unused_parameters=True)
model(x[4 * rank:][:4].to("pjrt")).square().mean().backward()
gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])
all_of = [torch.empty_like(gradients) for _ in range(size)]
dist.all_gather(all_of, gradients)
assert all(torch.equal(one, gradients) for one in all_of)
expected = torch.cat([p.grad.flatten() for p in exact.parameters() if p.requires_grad]).float()
torch.testing.assert_close(gradients.cpu(), expected, rtol=1e-5, atol=1e-6)
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_gradients_of_data_parallel_ranks_are_equal_bit_for_bit(settings, memory, tmp_path, ranks, mode):
    environment = {**os.environ, **settings, "HAL_PJRT_DEVICES": "1", "HAL_PJRT_MEMORY": memory, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_BACKEND_DEFER": "0"}
    command = [sys.executable, "-P", "-c", RANK]
    started = [
        subprocess.Popen([*command, str(rank), str(ranks), str(tmp_path / "rendezvous"), mode], env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        written = [process.communicate(timeout=240)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * ranks, "\n".join(written)
