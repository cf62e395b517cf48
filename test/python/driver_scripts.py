"""Scripts that tests of plugins of vendors' drivers run in separate processes, with the name of the device type in
them; tests of other files; and the operator database."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import warm_interpreter

import torch_backend

TESTS = Path(__file__).resolve().parent
CUDA_LIBRARIES = Path(os.environ.get("CUDA_MOCK", TESTS.parents[1] / "build/release/test/doubles/cuda_mock"))
PJRT_FAULTY = Path(os.environ.get("PJRT_FAULTY", TESTS.parents[1] / "build/release/test/doubles/pjrt_faulty/libpjrt_faulty.so"))
NPU_DRIVER = Path(os.environ.get("ZE_CPU_DRIVER", TESTS.parents[1] / "build/release/test/doubles/ze_cpu_driver/libze_cpu_driver.so"))


def kernels(tmp_path_factory, plugin):
    """Returns the folder of a plugin's compiled kernels, shared by all files that one worker runs, one after the other.
    """
    folder = tmp_path_factory.getbasetemp() / f"kernels of {plugin}"
    folder.mkdir(exist_ok=True)
    return folder


# Where these libraries of the mock driver are, from its folder on, by the setting that names them.
CUDA_FILES = {"HAL_CUDA_NVRTC": "libnvrtc.so.13", "HAL_CUDA_CUBLASLT": "libraries/libcublasLt.so.13", "HAL_CUDA_CUDNN": "libraries/libcudnn.so.9"}


def cuda_libraries(libraries):
    """Settings with which the plugin opens the mock driver and compiler, and the mock cuBLASLt and cuDNN or none of them.

    A torch that was built with CUDA loads NVIDIA's libraries, which the dynamic linker then returns for their names. So they are
    named by their paths."""
    path = f"{CUDA_LIBRARIES}:{CUDA_LIBRARIES}/libraries" if libraries else str(CUDA_LIBRARIES)
    if torch.version.cuda is None:
        return {"LD_LIBRARY_PATH": path}
    files = {setting: str(CUDA_LIBRARIES / name) if libraries or "/" not in name else "none" for setting, name in CUDA_FILES.items()}
    return {"LD_LIBRARY_PATH": path, **files}


def cuda_settings(folder, libraries=False):
    """Settings of processes on the mock CUDA driver, with compiled kernels in that folder, and with cuBLASLt and cuDNN
    if requested; skips if they are not built."""
    if not (CUDA_LIBRARIES / "libcuda.so.1").exists():
        pytest.skip(f"{CUDA_LIBRARIES}/libcuda.so.1 is not built; run `make test-c`, or name its folder in CUDA_MOCK")
    return {"TORCH_BACKEND": "cuda", "CUDA_MOCK_DEVICES": "2", "HAL_CACHE_DIR": str(folder), **cuda_libraries(libraries)}


def cuda_fixture(libraries=False, **more):
    """A fixture `settings` of processes on the mock CUDA driver that share compiled kernels."""

    @pytest.fixture(scope="module")
    def settings(tmp_path_factory):
        return {**cuda_settings(kernels(tmp_path_factory, "cuda"), libraries), **more}

    return settings


def npu_settings(folder):
    """Settings of processes on the CPU driver with the system's Level Zero loader; skips if loader, driver or compilers
    are missing."""
    if not NPU_DRIVER.exists():
        pytest.skip(f"{NPU_DRIVER} is not built; run `make test-c`, or name the driver in ZE_CPU_DRIVER")
    settings = {"TORCH_BACKEND": "npu", "ZE_ENABLE_ALT_DRIVERS": str(NPU_DRIVER), "ZE_CPU_DEVICES": "2", "HAL_CACHE_DIR": str(folder),
                "POCL_CACHE_DIR": str(folder / "pocl")}  # fmt: skip
    script = "import torch, torch_backend; torch_backend.use('npu'); print(torch.ones(3, device='npu').sum().item())"
    done = subprocess.run([sys.executable, "-P", "-c", script], env={**os.environ, **settings}, capture_output=True, text=True, timeout=120)
    if "libze_loader" in done.stderr:
        pytest.skip(f"the Level Zero loader is not installed (Debian: libze1): {done.stderr.strip()[-300:]}")
    assert done.stdout.strip() == "3.0", done.stderr
    return settings


def require_device(plugin, device_type, settings):
    """Skips the test if the plugin has no device with these settings."""
    script = f"import torch, torch_backend; torch_backend.use('{plugin}'); print(torch.{device_type}.device_count())"
    done = subprocess.run([sys.executable, "-P", "-c", script], env={**os.environ, **settings}, capture_output=True, text=True, timeout=120)
    if done.returncode or done.stdout.strip() == "0":
        pytest.skip(f"no device of {plugin} here: {done.stderr.strip()[-300:]}")


def opencl_settings(folder, **more):
    """Settings of processes that share compiled kernels on any OpenCL device; skips if there is none."""
    settings = {"TORCH_BACKEND": "opencl", "HAL_CACHE_DIR": str(folder), "POCL_CACHE_DIR": str(folder / "pocl"), **more}
    require_device("opencl", "ocl", settings)
    return settings


def opencl_kernels(tmp_path_factory, **more):
    """Settings of processes on any OpenCL device that share what the driver compiled, in the folder of a worker.

    The HAL stores no binaries: to export one, PoCL compiles each kernel once more, for work groups of any size. That
    takes as long as the compilation for the size that is launched. A test of binaries names a folder in HAL_CACHE_DIR."""
    return {**opencl_settings(kernels(tmp_path_factory, "opencl"), **more), "HAL_CACHE_DIR": ""}


def vulkan_settings(folder, **more):
    """The same for any Vulkan device."""
    settings = {"TORCH_BACKEND": "vulkan", "HAL_CACHE_DIR": str(folder), **more}
    require_device("vulkan", "vk", settings)
    return settings


CLSPV = TESTS.parents[1] / "plugins/vulkan/clspv_compiler.py"


def vulkan_pack(path, kernels):
    """Compiles kernels with these names into a pack; skips without a compiler. Kernels on which clspv fails are missing."""
    if importlib.util.find_spec("pyclspv") is None:
        pytest.skip("no pyclspv here (requirements/packs.txt)")
    package = Path(torch_backend.__file__).parent
    command = [package / "bin/hal-pack", "--dialect", "spirv-vulkan", "--fp64", "yes", "--quiet", "--output", path, "--kernels", ",".join(kernels),
               "--compiler", f"{sys.executable} -P {CLSPV}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert path.is_file(), done.stdout + done.stderr


def package_with_pack(folder, kernels):
    """Copies the installed package, as `make wheel PACKS=1` builds it: with a pack of these kernels for Vulkan. Returns the
    settings of processes that import the copy; they must be fresh interpreters."""
    package, installed = folder / "torch_backend", Path(torch_backend.__file__).parent
    for record in installed.parent.glob("torch_backend-*.dist-info"):
        shutil.copytree(record, folder / record.name)
    shutil.copytree(installed, package, ignore=shutil.ignore_patterns("__pycache__", "*.pack"))
    vulkan_pack(package / "plugins/libhal_vulkan.pack", kernels)
    return {"PYTHONPATH": str(folder)}


PJRT_PLUGIN = Path(os.environ.get("HAL_PJRT_PLUGIN", TESTS.parents[1] / "build/pjrt/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"))


def pjrt_settings(folder, **more):
    """Settings of processes on the CPU's PJRT plugin; skips if it is not installed, but not in CI."""
    if not PJRT_PLUGIN.exists() and "CI" not in os.environ:
        pytest.skip(f"{PJRT_PLUGIN} does not exist; `make test` installs it, or name a PJRT plugin in HAL_PJRT_PLUGIN")
    return {"TORCH_BACKEND": "pjrt", "HAL_PJRT_PLUGIN": str(PJRT_PLUGIN), "HAL_PJRT_DEVICES": "2", "TF_CPP_MIN_LOG_LEVEL": "3",
            "HAL_CACHE_DIR": str(folder), **more}  # fmt: skip


# Creates tensors on the device with the strides of those on the CPU (.to() only keeps the strides of dense ones), and
# checks which implementation ran.
BY_LIBRARY = """
import torch, torch_backend
from torch_backend import ops

d = "nvgpu"

def alike(t):
    if not t.numel():
        return t.to(d)
    last = sum((n - 1) * s for n, s in zip(t.size(), t.stride()))
    base = torch.as_strided(t, (last + 1,), (1,), t.storage_offset())
    return torch.as_strided(base.to(d), t.size(), t.stride())

def ran(names, by_library):
    rows = [row for row in ops.report() if row.op in names]
    assert rows and not any(row.fallback for row in rows), rows
    assert by_library is None or all(row.plugin == (row.native if by_library else 0) for row in rows), rows
"""


def run_tests(plugin, settings, folder, path, *options, timeout=1800):
    """Runs tests of another file on a plugin's device, without a fallback for a kernel that was refused; returns the
    output of pytest."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / path), *options]
    environment = {**os.environ, **settings, "TORCH_BACKEND_TEST_PLUGIN": plugin}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, cwd=folder)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert "computed by the fallback" not in done.stdout + done.stderr
    return done.stdout


def run_database(plugin, settings, folder):
    """Runs the operator database in float32 with gradients; returns the entries that do not have the CPU's results."""
    path = folder / "outcomes.json"
    command = [sys.executable, "-P", str(TESTS.parent / "opinfo/run.py"), "--plugin", plugin, "--full", "--dtype", "float32", "--mode", "async",
               "--timeout", "400", "--json", str(path)]  # fmt: skip
    subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=7200, cwd=folder)
    outcomes = json.loads(path.read_text())
    assert len(outcomes) > 600
    return {outcome["entry"] for outcome in outcomes if outcome["kind"] not in ("pass", "unsampled")}


def run_command(settings, folder, *words):
    """Runs the command line, without the settings of these tests, which it does not know; returns its output."""
    command = [sys.executable, "-P", "-m", "torch_backend", *words]
    known = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_BACKEND_TEST_")}
    done = warm_interpreter.run(command, env={**known, **settings}, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


TRAIN = """
import torch, torch_backend
from torch_backend import fallback

def train(device, steps=5):
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)).to(device)
    x, target = torch.randn(32, 20).to(device), torch.randint(0, 4, (32,)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()
"""


def train_as_on_the_cpu(kind, known=frozenset()):
    """Trains on the second device; no more operators fall back than expected."""
    return (f"{TRAIN}\ntorch.testing.assert_close(train('{kind}:1'), train('cpu'), rtol=1e-4, atol=1e-5)\n"
            f"assert {{row.op for row in fallback.report()}} <= {set(known)}, fallback.report()")  # fmt: skip


def count_compiled(kind):
    """Prints how many kernels one training step has compiled, found on disk, and failed to compile."""
    return (f"{TRAIN}\ntrain('{kind}', 1)\nfrom torch_backend import _C\nstats = _C.kernel_stats(0)\n"
            "print(stats['compiled'], stats['loaded'], stats['refused'])")  # fmt: skip


def cross_devices(kind):
    """Copies between host, two devices and two streams."""
    return f"""
import torch, torch_backend
x = torch.arange(100000.0)
a = x.to("{kind}:0", non_blocking=True)
b = (a + 1).to("{kind}:1", non_blocking=True)
assert torch.equal(b.cpu(), x + 1)
assert torch.{kind}.device_count() == 2 and "test double" in torch.{kind}.get_device_name(0)
stream, event = torch.Stream("{kind}:1"), torch.Event("{kind}:1", enable_timing=True)
with stream:
    c = b * 2
    event.record(stream)
torch.accelerator.current_stream("{kind}:1").wait_event(event)
assert torch.equal((c + 1).cpu(), x * 2 + 3)
"""


def share_a_process(kind):
    """Computes on two devices of the plugin and the first one of another, and copies among them."""
    return f"""
import torch, torch_backend
x = torch.arange(1000.0)
a = x.to("{kind}:0") * 2
b = a.to("{kind}:2")  # the first device of the other plugin
assert torch.equal((b + 1).to("{kind}:1").cpu(), x * 2 + 1)
assert torch.{kind}.device_count() == 4
"""


def sum_logarithms(kind):
    """Cumulative logarithms of sums have the precision of float32 compared with double precision, for rows of any
    length."""
    return f"""
import torch, torch_backend
from torch_backend import fallback
torch.manual_seed(0)
for shape, dim in (((100003,), 0), ((5, 3000), 1), ((3000, 5), 0), ((64, 64), 1)):
    x = torch.randn(shape) * 4
    torch.testing.assert_close(x.to("{kind}").logcumsumexp(dim).cpu().double(), x.double().logcumsumexp(dim), rtol=1.2e-7, atol=2e-8)
infinity, nan = float("inf"), float("nan")
for row in ((-infinity, -1, -infinity, 2, infinity, 1), (-infinity, -infinity, nan, 2, infinity), (infinity, -infinity, 3)):
    x = torch.tensor(row)
    torch.testing.assert_close(x.to("{kind}").logcumsumexp(0).cpu(), x.logcumsumexp(0), equal_nan=True)
assert not fallback.report(), fallback.report()
"""


def activate_by_itself(kind, plugin):
    """The plugin is active without a setting, and known by name, device type and file; no other plugin can be selected
    then."""
    return f"""
import os
os.environ.pop("TORCH_BACKEND")
import torch, torch_backend
assert torch.accelerator.current_accelerator().type == "{kind}"
for name in ("{plugin}", "{kind}", torch_backend.plugins()[0].path):
    torch_backend.use(name)
for name in ("fake", "{plugin},fake"):
    try:
        torch_backend.use(name)
    except RuntimeError as error:
        assert "already active" in str(error)
    else:
        raise AssertionError(name)
"""


def lose(kind, library, function):
    """Makes the mock driver's device lost, by a function of the library; Python must raise an error."""
    return f"""
import ctypes, os, torch, torch_backend
x = torch.ones(10, device="{kind}") + 1
torch.accelerator.synchronize()
ctypes.CDLL({library}).{function}(b"lost=0")
try:
    (x + 1).cpu()
except RuntimeError as error:
    assert "lost" in str(error).lower(), error
else:
    raise AssertionError("no error was raised")
"""
