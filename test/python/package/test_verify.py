"""`torch-backend verify`: the installed conformance suite, on correct plugins, incorrect ones, and files that are not
plugins."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch_backend

FOLDER = Path(torch_backend.__file__).parent


def verify(*arguments, **environment):
    """Runs the command and returns the completed process."""
    return subprocess.run([sys.executable, "-P", "-m", "torch_backend", "verify", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment}, timeout=300, check=False)  # fmt: skip


def test_the_fake_plugin_passes_and_the_report_has_every_sentence_of_the_contract(tmp_path):
    report, results = tmp_path / "report.html", tmp_path / "results.xml"
    done = verify(FOLDER / "plugins" / "libhal_fake.so", "--report", report, "--junit", results)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = verify("--rules").stdout.splitlines()
    assert len(rules) > 250
    text = report.read_text()
    assert all(f"<td>{rule.split(':')[0]}</td>" in text for rule in rules)
    assert '<testsuite name="hal-cts"' in results.read_text()


def test_the_program_runs_without_python_torch_and_settings(tmp_path):
    program = shutil.copy(FOLDER / "bin" / "hal-cts", tmp_path)
    done = subprocess.run([program, "--plugin", FOLDER / "plugins" / "libhal_fake.so", "--suite", "copy"], env={}, cwd=tmp_path, capture_output=True,
                          text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("content", [b"", b"no plugin at all\n", b"\x7fELF" + bytes(200), None])
def test_a_file_that_is_not_a_plugin_is_one_finding_and_there_is_a_report(tmp_path, content):
    plugin, report = tmp_path / "libhal_bad.so", tmp_path / "report.html"
    if content is not None:
        plugin.write_bytes(content)
    done = verify(plugin, "--report", report)
    assert done.returncode == 1
    assert done.stdout.count("FAIL ") == 1 and "load.loads" in done.stdout and str(plugin) in done.stdout
    assert "<h1>" in report.read_text()


def test_verdict_and_findings_come_first_and_skips_only_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("HAL_FAKE_DEVICES", "1")  # a case between devices is skipped
    good = FOLDER / "plugins" / "libhal_fake.so"
    done = verify(good, "--suite", "event")
    assert done.returncode == 0 and done.stdout.splitlines()[0] == "libhal_fake.so conforms", done.stdout + done.stderr
    assert "skip " not in done.stdout and " passed, 0 failed" in done.stdout.splitlines()[1] and not done.stderr
    first, *others = verify(good, "--suite", "event", "--verbose").stdout.splitlines()
    assert first == "libhal_fake.so conforms" and any(line.startswith("skip ") for line in others)
    assert len([line for line in others if line.split()[:1] == ["pass"]]) > 5
    (tmp_path / "libhal_none.so").write_bytes(b"none")
    lines = verify(tmp_path / "libhal_none.so").stdout.splitlines()
    assert lines[0] == "libhal_none.so does not conform: 1 finding" and lines[1].split() == ["FAIL", "load.loads"]


def test_invalid_usage_is_reported(tmp_path):
    assert verify().returncode == 2
    assert verify(FOLDER / "plugins" / "libhal_fake.so", "--suite", "nothing").returncode == 2
    unwritable = verify(FOLDER / "plugins" / "libhal_fake.so", "--case", "load.loads", "--report", tmp_path / "no" / "folder.html")
    assert unwritable.returncode == 2 and "folder.html" in unwritable.stderr


def test_lists_of_expected_failures_only_shrink(tmp_path):
    listed = tmp_path / "xfail"
    listed.write_text("load.loads it cannot\n")
    done = verify(FOLDER / "plugins" / "libhal_fake.so", "--case", "load.loads", "--xfail", listed)
    assert done.returncode == 1 and "remove the line" in done.stdout
    listed.write_text("load.nothing it cannot\n")
    done = verify(FOLDER / "plugins" / "libhal_fake.so", "--xfail", listed)
    assert done.returncode == 2 and "load.nothing" in done.stderr


def test_a_plugin_is_named_by_path_or_name(tmp_path):
    shutil.copy(FOLDER / "plugins" / "libhal_fake.so", tmp_path / "libhal_mine.so")
    (tmp_path / "libhal_mine.so").chmod(0o755)
    for plugin, environment in (("fake", {}), ("mine", {"HAL_PLUGIN_PATH": str(tmp_path)}), (os.path.relpath(tmp_path / "libhal_mine.so"), {})):
        done = verify(plugin, "--suite", "load", **environment)
        assert done.returncode == 0, done.stdout + done.stderr
    done = verify("none", HAL_PLUGIN_PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"unknown plugin 'none': expected a path, or a name with a libhal_none.so in {tmp_path}, " in done.stderr
