"""Shared fixtures: the fake device with two devices, or another plugin's that TORCH_BACKEND_TEST_PLUGIN names, and a
function that runs a script in a separate process."""

import os
import random
import shutil
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import pytest

# which a shell has for builds; scripts of tests import only torch
os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
os.environ.setdefault("HAL_FAKE_DEVICES", "2")  # before the plugin is opened: device ranges are fixed then

import torch
import warm_interpreter

import torch_backend

torch_backend.use(os.environ.get("TORCH_BACKEND_TEST_PLUGIN", "fake"))

SETTINGS = ("TORCH_BACKEND", "TORCH_BACKEND_NAME", "TORCH_DEVICE_BACKEND_AUTOLOAD", "HAL_PLUGIN_PATH", "HAL_LAYERS", "HAL_LOG", "HAL_DISABLE_OPS",
            "HAL_FAKE_DEVICES", "HAL_FAKE_MEMORY", "PYTORCH_ALLOC_CONF")  # fmt: skip


SEED = "TORCH_BACKEND_TEST_SEED"


def pytest_configure(config):
    if os.environ.setdefault(SEED, "0") == "random":
        os.environ[SEED] = str(random.SystemRandom().randrange(1 << 32))  # the workers of the process inherit it
    config.addinivalue_line("markers", "fresh_interpreter(reason): scripts need an interpreter that has not imported torch")
    config.addinivalue_line("markers", "host_memory(reason): needs device memory that the host can access; skipped with HAL_FAKE_PROTECT=1")


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") or os.environ[SEED] != "0":
        terminalreporter.write_line(f"random numbers: {SEED}={os.environ[SEED]}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A test generates the same random numbers in each run, independent of earlier tests. With
    TORCH_BACKEND_TEST_SEED=random the seed differs, and a failed run reports it."""
    seed = zlib.crc32(item.nodeid.encode()) + int(os.environ[SEED])
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    torch.get_device_module(torch_backend.device_name()).manual_seed_all(seed)


def pytest_collection_modifyitems(items):
    """Parallel workers must collect in the same order and end at the same time: the slow files, those of package/, come
    first. With HAL_FAKE_PROTECT=1 all tests run except those that are marked with a reason."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: the name differs between processes; set ids of the parameters")
    items.sort(key=lambda item: item.path.parent.name != "package")
    if os.environ.get("HAL_FAKE_PROTECT") != "1":
        return
    for item in items:
        for marker in item.iter_markers("host_memory"):
            item.add_marker(pytest.mark.skip(reason=f"the host cannot access the memory: {marker.args[0]}"))


@pytest.fixture
def device():
    """The device type's name."""
    return torch_backend.device_name()


@pytest.fixture
def module():
    """The device module, torch.fake."""
    return torch.get_device_module(torch_backend.device_name())


@pytest.fixture
def run_python(tmp_path, request):
    """Runs a script in an interpreter of its own with only the given settings; returns the finished process. The
    interpreter may have imported torch (warm_interpreter.py), unless the test or its file has the mark
    `fresh_interpreter`."""
    is_fresh = request.node.get_closest_marker("fresh_interpreter") is not None

    def run(script, *, timeout=120, check=True, arguments=(), **settings):
        environment = {key: value for key, value in os.environ.items() if key not in SETTINGS}
        environment.update({key: str(value) for key, value in settings.items()})
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(script))
        command = [sys.executable, *arguments, str(path)]
        if is_fresh:
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=timeout)
        else:
            done = warm_interpreter.run(command, cwd=tmp_path, env=environment, timeout=timeout)
        if check:
            assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


PLUGIN_SOURCES = Path(__file__).parents[1] / "hal" / "plugins"


@pytest.fixture(scope="session")
def build_plugin(tmp_path_factory):
    """Builds one of the C tests' plugins with the installed SDK and no CMake; returns its path."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    package = Path(torch_backend.__file__).parent
    folder = tmp_path_factory.mktemp("plugins")
    folder.chmod(0o755)

    def build(name, *sources, **definitions):
        plugin = folder / f"libhal_{name}.so"
        if not plugin.exists():
            sdk = package / "cmake"
            files = [PLUGIN_SOURCES / source for source in sources] or sorted({PLUGIN_SOURCES / f"{name}.c", *PLUGIN_SOURCES.glob(f"{name}_*.c")})
            # raw.c has its own entry function, like another version of the SDK, or none; maker.c uses that of another
            # plugin
            entry = [] if {"raw.c", "maker.c"} & {file.name for file in files} else [sdk / "entry.c", "-Wl,-u,hal_plugin_entry"]
            command = [compiler, "-std=c11", "-O1", "-fPIC", "-fvisibility=hidden", "-shared", f"-I{package / 'include'}", f"-I{sdk}",
                       *(f"-D{key}={value}" for key, value in definitions.items()), *files, *entry,
                       package / "lib" / "libhal_plugin.a", "-Wl,-z,now,-z,nodelete",
                       f"-Wl,--version-script={sdk / 'plugin.map'}", "-lm", "-lpthread", "-o", plugin]  # fmt: skip
            subprocess.run(command, check=True)
        return plugin

    return build


@pytest.fixture(autouse=True)
def same_state_after_each_test():
    """A test must leave the current device, the current streams and the fallback's mode unchanged."""
    module = torch.get_device_module(torch_backend.device_name())
    yield
    module.synchronize()
    assert module.current_device() == 0
    assert all(module.current_stream(index) == module.default_stream(index) for index in range(module.device_count()))
    assert not torch_backend.fallback.is_strict()
