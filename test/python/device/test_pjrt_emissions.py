"""Each operator entry with a portable kernel is compiled by the plugin pjrt, or has a reason why not."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def write_table(tmp_path, change=lambda text: text):
    """Writes the table of changed entries; returns the process."""
    folder = tmp_path / "operators"
    shutil.copytree(ROOT / "codegen/operators", folder)
    file = folder / "copy.yaml"
    file.write_text(change(file.read_text()))
    command = [sys.executable, ROOT / "plugins/pjrt/tools/emissions.py", "--operators", folder, tmp_path]
    return subprocess.run(command, capture_output=True, text=True)


def test_each_function_of_an_operator_is_in_the_table(tmp_path):
    """A function that no entry names would never run."""
    assert write_table(tmp_path).returncode == 0
    table = (tmp_path / "pjrt_operators.inc").read_text()
    sources = "".join(file.read_text() for file in (ROOT / "plugins/pjrt").glob("emit_*.c"))
    defined = set(re.findall(r"^(?:int|void) (emit_takes_\w+|emit_op_\w+)\(", sources, re.M))
    assert len(defined) > 100 and set(re.findall(r"emit_takes_\w+|emit_op_\w+", table)) == defined
    names = re.findall(r'^PJRT_OPERATOR\("([^"]+)"', table, re.M)
    assert len(names) > 300 and names == sorted(names)


@pytest.mark.parametrize("program, sentence", [
    ("", "has a portable kernel, but no program of the plugin pjrt: add `program: {emit: name}`"),
    ("  program: {takes: sort}\n", "needs the key 'emit'"),
    ("  program: {}\n", "needs one of the keys 'emit' and 'none'"),
    ('  program: {emit: copy, none: "slow"}\n', "needs one of the keys 'emit' and 'none'"),
    ("  program: {emits: copy}\n", "unknown key"),
])  # fmt: skip
def test_an_entry_without_emission_is_an_error_with_its_place(tmp_path, program, sentence):
    done = write_table(tmp_path, lambda text: text.replace("  program: {emit: copy}\n", program, 1))
    assert done.returncode == 1 and sentence in done.stderr and re.search(r"copy\.yaml:\d+", done.stderr), done.stderr


def test_roundings_of_the_operator_database_have_a_bound(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(str(ROOT / "test/opinfo"))
    import programs
    from expected import Outcome

    def outcome(*differences, entry="logcumsumexp"):
        messages = [f"result 0: Tensor-likes are not close! Greatest absolute difference: {one} at index (0,)" for one in differences]
        records = [{"status": "pass", "message": ""}] + [{"status": "wrong", "message": message} for message in messages]
        return Outcome(entry, "float32", "lazy", "wrong", (0, 0), messages[0], records)

    assert programs.is_rounding(outcome("0.0009765625")) and programs.is_rounding(outcome("0.001", "1e-05"))
    for wrong in (outcome("0.003"), outcome("0.001", "0.5"), outcome("nan"), outcome("inf"), outcome("0.001", entry="cumsum")):
        assert not programs.is_rounding(wrong)
