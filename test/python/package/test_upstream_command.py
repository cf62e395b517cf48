"""`torch-backend upstream`: tests in PyTorch's style on the device and on the CPU; failures, crashes, tests that do not
end, expected failures, and the comparison with an earlier run."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import types

import pytest
import torch
from torch_backend import cli

_FILE = """
import os, signal, time
import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCUDA, ops
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.testing._internal.opinfo.core import OpInfo

OPERATORS = [OpInfo(name, op=getattr(torch, name), dtypes=(torch.float32,)) for name in ("sin", "cos")]


class TestMine(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_add(self, device, dtype):
        x = torch.ones(3, device=device, dtype=dtype)
        assert x.device.type == torch.device(device).type
        self.assertEqual((x + x).cpu(), torch.full((3,), 2, dtype=dtype))

    def test_differs(self, device):
        self.assertEqual(torch.device(device).type, "cpu")

    def test_is_expected(self, device):
        self.assertEqual(torch.device(device).type, "cpu")

    def test_is_wrong_everywhere(self, device):
        self.assertEqual(torch.ones(1, device=device), torch.zeros(1, device=device))

    def test_skips(self, device):
        self.skipTest("not today")

    @onlyCUDA
    def test_restricted(self, device):
        pass

    def test_crashes(self, device):
        if torch.device(device).type != "cpu":
            os.kill(os.getpid(), signal.SIGSEGV)

    def test_does_not_end(self, device):
        if torch.device(device).type != "cpu":
            if "STARTED" in os.environ:
                open(os.environ["STARTED"], "w").write(f"{os.getpid()}.")
            time.sleep(600)

    @ops(OPERATORS)
    def test_operator(self, device, dtype, op):
        self.assertEqual(op(torch.zeros(2, device=device)).cpu(), op(torch.zeros(2)))


class TestWithoutDevice(TestCase):
    def test_is_not_the_devices(self):
        raise AssertionError("this class is not instantiated for devices")


instantiate_device_type_tests(TestMine, globals())

if __name__ == "__main__":
    run_tests()
"""


def upstream(*arguments):
    """Runs the command in this process, which starts those of the tests. Returns the exit code and what it printed."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = cli.main(["upstream", "--plugin", "fake", *map(str, arguments)])
    return types.SimpleNamespace(returncode=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tests")
    (made / "test_mine.py").write_text(_FILE)
    (made / "test_other.py").write_text("def test_without_devices():\n    raise AssertionError\n")
    (made / "conftest.py").write_text("raise AssertionError('PyTorch\\'s conftest.py is not read')\n")
    return made


@pytest.fixture(scope="module")
def whole(folder):
    """A run of all tests, with an expected failure."""
    expected, results = folder / "xfail.txt", folder / "old.json"
    expected.write_text("# a comment\ntest_mine.TestMineFAKE.test_is_expected* the device is not the CPU\n")
    done = upstream("--tests", folder, "--torch", ".".join(torch.__version__.split(".")[:2]), "--limit", 15, "--xfail", expected, "--json", results)
    return done, json.loads(results.read_text())


def outcomes(document):
    return {name.removeprefix("test_mine.TestMineFAKE."): test["outcome"] for name, test in document["tests"].items()}


def test_each_test_has_an_outcome_and_a_crash_or_a_hang_is_one_failure(whole):
    done, document = whole
    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes(document) == {
        "test_add_fake_float32": "passed", "test_add_fake_int64": "passed", "test_operator_sin_fake_float32": "passed",
        "test_operator_cos_fake_float32": "passed", "test_differs_fake": "failed", "test_crashes_fake": "failed", "test_does_not_end_fake": "failed",
        "test_is_expected_fake": "expected", "test_is_wrong_everywhere_fake": "on the CPU, too", "test_skips_fake": "skipped",
        "test_restricted_fake": "skipped",
    }  # fmt: skip
    head, *lines = done.stdout.splitlines()
    assert head.split()[:2] == ["file", "passed"] and lines[0].split() == ["test_mine", "4", "3", "1", "1", "2", "50.0%"], done.stdout
    assert "CRASHED test_mine.TestMineFAKE.test_crashes_fake: signal SIGSEGV" in lines
    assert "HUNG test_mine.TestMineFAKE.test_does_not_end_fake: no end within 15 s" in lines
    assert [line.split(":")[0] for line in lines if line.startswith("FAILED")] == ["FAILED test_mine.TestMineFAKE.test_differs_fake"]
    assert document["torch"] == torch.__version__ and document["device"] == "fake"


def test_a_later_run_is_compared_and_only_what_is_worse_fails(folder, whole):
    old, changed = folder / "old.json", folder / "changed.json"
    # Without the tests that crash or do not end: a known failure is not worse.
    done = upstream("--tests", folder, "test_mine.py", "-k", "differs", "--diff", old)
    assert done.returncode == 0 and "nothing is worse, 0 better, 0 changed otherwise, 10 not in this run" in done.stdout, done.stdout + done.stderr
    document = json.loads(old.read_text())
    tests = {name.rsplit(".", 1)[1]: test for name, test in document["tests"].items()}
    tests["test_differs_fake"]["outcome"], tests["test_add_fake_int64"]["outcome"] = "passed", "failed"
    changed.write_text(json.dumps(document))
    done = upstream("--tests", folder, "test_mine.py", "-k", "differs or int64", "--diff", changed)
    assert done.returncode == 1 and "1 worse, 1 better, 0 changed otherwise" in done.stdout, done.stdout + done.stderr
    assert "  worse  test_mine.TestMineFAKE.test_differs_fake: passed -> failed: " in done.stdout
    assert "  better test_mine.TestMineFAKE.test_add_fake_int64: failed -> passed" in done.stdout


def test_restricted_tests_a_configuration_and_an_unused_expectation(folder):
    """`--all` runs what PyTorch restricts to CUDA; `--config` is PyTorch's own configuration. An expectation that no
    failure matches fails the run."""
    settings, expected = folder / "settings.py", folder / "unused.txt"
    names = ["add", "differs", "is_expected", "is_wrong_everywhere", "skips", "crashes", "does_not_end"]
    settings.write_text(f"op_allowlist = ['sin']\ntest_exclusions = {{'TestMine': {[f'test_{name}' for name in names]}}}\n")
    expected.write_text("test_mine.TestMineFAKE.test_operator* it has no sine\n")
    done = upstream("--tests", folder, "test_mine.py", "--all", "--config", settings, "--xfail", expected, "--json", folder / "new.json")
    assert done.returncode == 1 and "UNUSED test_mine.TestMineFAKE.test_operator*" in done.stdout, done.stdout + done.stderr
    assert outcomes(json.loads((folder / "new.json").read_text())) == {"test_restricted_fake": "passed", "test_operator_sin_fake_float32": "passed"}


@pytest.mark.parametrize("arguments, error", [
    (["--tests", "none"], "--tests none is not a folder"), ([], "name files"), (["none.py"], "none.py does not exist"),
    (["--tests", "{folder}", "--torch", "1.2"], "the tests are those of torch 1.2"), (["--tests", "{folder}", "--jobs", "0"], "--jobs at least 1"),
    (["--tests", "{folder}", "--plugin", "none"], "none"), (["--tests", "{folder}", "--config", "none.py"], "--config none.py does not exist"),
    (["--tests", "{folder}", "--openreg"], "no file test_*.py with tests of openreg"),
    (["--tests", "{folder}", "test_mine.py", "--openreg", "--all"], "--openreg runs all tests of its files"),
    (["--tests", "{folder}", "--limit", "nan"], "--limit is a positive number of seconds"),
    (["--tests", "{folder}", "--diff", "{folder}/deep.json"], "deep.json cannot be read: maximum recursion depth"),
    (["--tests", "{folder}", "--diff", "{folder}/errors.json"], 'errors.json is damaged: "errors" is not a table'),
    (["--tests", "{folder}", "--diff", "{folder}/empty.txt"], "cannot be read"), (["--tests", "{folder}", "--xfail", "{folder}/bad.txt"], "bad.txt:1"),
])  # fmt: skip
def test_invalid_usage_is_one_error(folder, arguments, error):
    (folder / "bad.txt").write_text("test_without_a_reason\n")
    (folder / "empty.txt").write_text("")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "errors.json").write_text('{"program": "torch-backend upstream", "layout": 1, "tests": {}, "errors": null}')
    done = upstream(*(argument.format(folder=folder) for argument in arguments))
    assert (done.returncode, done.stdout) == (2, "") and error in done.stderr, done.stderr


def test_an_error_of_the_options_keeps_the_log(tmp_path):
    (tmp_path / "log").write_text("of an earlier run")
    done = upstream("--log", tmp_path / "log", tmp_path / "test_none.py")
    assert done.returncode == 2 and (tmp_path / "log").read_text() == "of an earlier run"


def test_a_file_that_cannot_be_loaded_and_an_invalid_configuration_are_errors(folder, tmp_path):
    (tmp_path / "test_broken.py").write_text("import torch_module_that_does_not_exist\n")
    done = upstream(tmp_path / "test_broken.py")
    assert done.returncode == 1 and "ERROR test_broken.py" in done.stdout and "torch_module_that_does_not_exist" in done.stdout, done.stdout
    (tmp_path / "settings.py").write_text("op_allow_list = []\n")
    done = upstream("--tests", folder, "test_mine.py", "--config", tmp_path / "settings.py")
    assert done.returncode == 1 and "defines none of op_overrides, op_allowlist, test_exclusions" in done.stdout, done.stdout + done.stderr


_OPENREG = """
import torch
import torch._dynamo.testing
import torch_openreg
from torch.testing._internal.common_utils import TestCase

import openreg_helper


class TestOpenreg(TestCase):
    def test_device_and_module(self):
        self.assertEqual(torch.ones(1, device="openreg").device.type, "openreg")
        self.assertEqual(torch.openreg.current_device(), 0)
        self.assertEqual(openreg_helper.TYPE, "openreg")

    def test_compiler(self):
        counter = torch._dynamo.testing.CompileCounterWithBackend("openreg")
        function = torch.compile(lambda x: x.sin() + 1, backend=counter, fullgraph=True)
        x = torch.arange(4.0)
        self.assertEqual(function(x.to("openreg")).cpu(), x.sin() + 1)
        self.assertEqual(counter.frame_count, 1)

    def test_fails(self):
        self.assertEqual(torch.device("openreg:0").type, "cpu")
"""


@pytest.mark.slow  # it starts inductor
def test_tests_of_openreg_run_with_the_name_of_the_device(tmp_path):
    (tmp_path / "test_example.py").write_text(_OPENREG)
    (tmp_path / "openreg_helper.py").write_text("TYPE = 'openreg'\n")
    (tmp_path / "test_other.py").write_text("def test_of_something_else():\n    raise AssertionError\n")
    done = upstream("--openreg", "--tests", tmp_path, "--json", tmp_path / "results.json")
    assert done.returncode == 1, done.stdout + done.stderr
    found = {name.rsplit(".", 1)[1]: test["outcome"] for name, test in json.loads((tmp_path / "results.json").read_text())["tests"].items()}
    assert found == {"test_device_and_module": "passed", "test_compiler": "passed", "test_fails": "failed"}
    assert "FAILED test_example.TestOpenreg.test_fails: AssertionError" in done.stdout and "'fake'" in done.stdout, done.stdout
    assert (tmp_path / "test_example.py").read_text() == _OPENREG, "the files of the user do not change"


def waited(condition, seconds=60):
    """Returns the first true result of `condition` within `seconds`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_no_process_outlives_a_run_that_is_ended(folder, tmp_path, number):
    started = tmp_path / "started"
    command = [sys.executable, "-P", "-m", "torch_backend", "upstream", "--plugin", "fake", "--tests", folder, "test_mine.py", "-k", "does_not_end"]
    # A shell ignores SIGINT in what it runs in the background, and so do the programs that this starts.
    run = subprocess.Popen(command, env={**os.environ, "STARTED": str(started)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    pid = int(waited(lambda: started.exists() and started.read_text().endswith(".") and started.read_text()[:-1]))
    run.send_signal(number)
    assert run.wait(20) != 0
    waited(lambda: not os.path.exists(f"/proc/{pid}") or "Z" in open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0], 10)
