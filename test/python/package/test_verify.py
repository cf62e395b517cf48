"""`torch-backend verify`: the installed conformance suite, on correct plugins, incorrect ones, and files that are not
plugins."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import warm_interpreter
import torch_backend

FOLDER = Path(torch_backend.__file__).parent


def verify(*arguments, **environment):
    """Runs the command and returns the completed process."""
    command = [sys.executable, "-P", "-m", "torch_backend", "verify", *arguments]
    return warm_interpreter.run(command, env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment}, timeout=300)


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


def test_a_run_is_compared_with_an_earlier_one(tmp_path):
    """Between one and two fake devices, the case of events between devices is skipped or passes."""
    fake, old, new = FOLDER / "plugins" / "libhal_fake.so", tmp_path / "old.json", tmp_path / "new.json"
    assert verify(fake, "--suite", "event", "--json", old, HAL_FAKE_DEVICES="2").returncode == 0
    cases = json.loads(old.read_text())["cases"]
    assert len(cases) > 10 and {case["verdict"] for case in cases.values()} >= {"pass"}
    same = verify(fake, "--suite", "event", "--diff", old, HAL_FAKE_DEVICES="2")
    assert same.returncode == 0 and "nothing is worse, 0 better, 0 changed otherwise" in same.stdout.splitlines()[-1], same.stdout + same.stderr
    fewer = verify(fake, "--suite", "event", f"--diff={old}", "--json", new, HAL_FAKE_DEVICES="1")
    lost = [line.split()[1:] for line in fewer.stdout.splitlines() if line.startswith("  worse")]
    assert fewer.returncode == 1 and lost and all(line[1:4] == ["pass", "->", "skip:"] for line in lost), fewer.stdout + fewer.stderr
    again = verify(fake, "--suite", "event", "--diff", new, HAL_FAKE_DEVICES="2")
    assert again.returncode == 0 and f"nothing is worse, {len(lost)} better" in again.stdout, again.stdout + again.stderr
    # Cases that only one of the runs selects are not compared.
    assert verify(fake, "--case", "load.loads", "--diff", new).returncode == 0


def test_a_new_finding_is_worse_and_a_known_one_is_not(tmp_path):
    bad, good, bad_json = tmp_path / "libhal_bad.so", tmp_path / "good.json", tmp_path / "bad.json"
    bad.write_bytes(b"no plugin")
    assert verify(FOLDER / "plugins" / "libhal_fake.so", "--case", "load.loads", "--json", good).returncode == 0
    done = verify(bad, "--case", "load.loads", "--diff", good, "--json", bad_json)
    assert done.returncode == 1 and "worse  load.loads: pass -> FAIL: " in done.stdout, done.stdout + done.stderr
    assert verify(bad, "--case", "load.loads").returncode == 1
    assert verify(bad, "--case", "load.loads", "--diff", bad_json).returncode == 0


@pytest.mark.parametrize("content, error", [
    (None, "cannot be read"), (b"\xff\xfe", "cannot be read"), (b"{", "cannot be read"), (b"[]", "is not a result"), (b"{}", "is not a result"),
    (b'{"program": "hal-cts", "layout": 99}', "layout 99"), (b'{"program": "hal-cts", "layout": 1, "cases": [1], "levels": []}', "is damaged"),
    (b'{"program": "hal-cts", "layout": 1, "cases": {"a": {}}, "levels": []}', "is damaged"),
    (b'{"program": "hal-cts", "layout": 1, "cases": {}, "levels": [1]}', "is damaged"),
    (b'{"program": "hal-cts", "layout": 1, "cases": {}, "levels": [{"name": [], "state": "reached"}]}', "is damaged"),
    (b'{"program": "hal-cts", "layout": 1, "cases": {}, "levels": [], "selected": null}', '"selected" is not a table of texts'),
    (b'{"program": "hal-cts", "layout": 1, "cases": {}, "levels": [], "plugin": {"name": 5}}', '"plugin" is not a table of texts'),
    (b"[" * 100_000, "cannot be read: maximum recursion depth"), (b"9" * 5000, "cannot be read: Exceeds the limit"),
])  # fmt: skip
def test_a_file_that_is_no_earlier_run_is_refused_before_the_suite_runs(tmp_path, content, error):
    old = tmp_path / "old.json"
    if content is not None:
        old.write_bytes(content)
    done = verify(FOLDER / "plugins" / "libhal_fake.so", "--case", "load.loads", "--diff", old)
    assert (done.returncode, done.stdout) == (2, "") and str(old) in done.stderr and error in done.stderr and len(done.stderr.splitlines()) == 1
    assert verify(FOLDER / "plugins" / "libhal_fake.so", "--diff").returncode == 2
