"""The tools of `make` show what runs, write noise to a log, and name the log when a command fails."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def progress(*arguments):
    return subprocess.run([sys.executable, str(ROOT / "third_party/progress.py"), *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_output_goes_to_the_log(tmp_path):
    log = tmp_path / "logs/build.log"
    done = progress("--log", log, "build", "bash", "-c", "echo noise; echo '[1/2] one'; echo '[2/2] two' >&2")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "build ...")
    assert "noise" not in done.stdout and "build: done in 0 s" in done.stdout
    assert log.read_text().splitlines() == ["noise", "[1/2] one", "[2/2] two"]


def test_a_failure_prints_the_end_of_the_log_and_names_it(tmp_path):
    log = tmp_path / "build.log"
    done = progress("--log", log, "build", "bash", "-c", "seq 100; echo 'error: {x}'; exit 3")
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert lines[1] == "62" and lines[-3:] == ["error: {x}", f"build: the whole output is in {log}", "build: failed after 0 s"]


def test_a_silent_command_is_reported_with_steps_and_time(tmp_path):
    done = progress("--log", tmp_path / "log", "build", "bash", "-c", "echo '[1/4] one'; sleep 5.5; echo '[3/4] {two}'")
    assert "build: [######..................] 1/4, 5 s" in done.stdout


def test_without_a_log_lines_are_printed():
    done = progress("tests", "bash", "-c", "echo result; exit 2")
    assert (done.returncode, "result" in done.stdout.splitlines()) == (2, True)


def test_a_missing_command_is_an_error(tmp_path):
    done = progress("--log", tmp_path / "log", "build", tmp_path / "none")
    assert done.returncode == 127 and f"cannot run '{tmp_path}/none': No such file or directory" in done.stdout


@pytest.mark.parametrize("code", [0, 100])
def test_system_packages_are_installed_with_a_log(tmp_path, code):
    tools = {"dpkg-query": "exit 1", "id": "echo 0", "apt-get": f'echo "apt-get $@"; [ "$1" = update ] || exit {code}'}
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "logs/system.log"
    environment = dict(os.environ, PATH=f"{tmp_path}:/usr/bin:/bin")
    done = subprocess.run(["sh", str(ROOT / "third_party/install-system-packages.sh"), str(log), "docs"], env=environment, capture_output=True, text=True, timeout=60)  # fmt: skip
    assert "doxygen" in log.read_text() and "apt-get install" in log.read_text() and "libcriterion-dev" not in log.read_text()
    assert done.returncode == (1 if code else 0)
    assert (f"the whole output is in {log}" in done.stderr) == bool(code)
    assert "system packages: done" in done.stdout or code


def test_a_command_that_runs_meanwhile_is_terminated_with_its_children(tmp_path):
    log, pids = tmp_path / "early.log", tmp_path / "pids"
    early = f"echo early; sleep 50 & echo $! $$ > {pids}; wait"
    done = progress("--meanwhile", early, "--meanwhile-log", log, "packages", "bash", "-c", f"until [ -s {pids} ]; do sleep 0.1; done; exit 3")
    assert done.returncode == 3 and "early" not in done.stdout and log.read_text() == "early\n"
    for pid in pids.read_text().split():
        status = pathlib.Path(f"/proc/{pid}/status")
        assert not status.exists() or "State:\tZ" in status.read_text(), f"process {pid} still runs"


def test_the_exit_code_of_a_command_that_runs_meanwhile_is_ignored(tmp_path):
    done = progress("--meanwhile", "exit 5", "packages", "sleep", "0.2")
    assert (done.returncode, "packages: done" in done.stdout) == (0, True)
