"""The plugin pjrt on the CPU's PJRT plugin: networks train as on the CPU without a fallback, and invalid settings and
forks are errors that name their cause."""

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


@pytest.mark.parametrize("settings_of_test, message", [
    ({"HAL_PJRT_PLUGIN": None}, "HAL_PJRT_PLUGIN is not set"),
    ({"HAL_PJRT_PLUGIN": "libother.so"}, "HAL_PJRT_PLUGIN is not an absolute path: libother.so"),
    ({"HAL_PJRT_PLUGIN": "/missing/plugin.so"}, "/missing/plugin.so: cannot open shared object file"),
    ({"HAL_PJRT_OPTIONS": "no_such_option=1"}, "no_such_option"),
    ({"HAL_PJRT_OPTIONS": "cpu_device_count"}, "invalid HAL_PJRT_OPTIONS at 'cpu_device_count': expected at most 32 pairs name=value"),
    ({"HAL_PJRT_DEVICES": "some"}, "invalid HAL_PJRT_DEVICES='some': expected 1 to 64"),
    ({"HAL_PJRT_DEVICES": "5", "HAL_PJRT_OPTIONS": "cpu_device_count=2"}, "invalid HAL_PJRT_DEVICES='5': expected 1 to 2"),
], ids=["no plugin", "relative", "missing", "unknown option", "no value", "no number", "too many"])  # fmt: skip
def test_an_invalid_setting_is_named(run, settings_of_test, message):
    done = run(USE, **settings_of_test)
    assert done.returncode and message in done.stderr, done.stderr


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

