"""The benchmarks start like in `make bench`, and their shared code evaluates results correctly."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_interpreter

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH / "shared"))
import sides  # noqa: E402  found by the line above


@pytest.mark.parametrize("script", sorted(BENCH.glob("*.py")), ids=lambda path: path.stem)
def test_each_script_starts(script, tmp_path):
    done = warm_interpreter.run([sys.executable, "-P", script, "--help"], env=os.environ, cwd=tmp_path, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("usage:"), done.stderr


def test_a_table_shows_each_verdict_and_a_missed_target_is_the_exit_code_with_check(capsys):
    table = sides.Table(6, 4, 7)
    table.head("what", "ms", "target")
    table.row("a", "1.5", 2, met=True)
    table.row("b", "9.5", "-", met=None)
    checked, unchecked = argparse.Namespace(check=True), argparse.Namespace(check=False)
    assert table.exit_code(checked) == 0
    table.row("c", "2.5", 2, met=False)
    assert (table.exit_code(checked), table.exit_code(unchecked)) == (1, 0)
    assert capsys.readouterr().out == "what    ms target  verdict\na      1.5      2  met\nb      9.5      -  -\nc      2.5      2  MISSED\n"


def test_the_sides_take_turns_and_each_gets_its_own_median():
    order = []

    def side(name, seconds):
        def run():
            order.append(name)
            return seconds.pop()

        return run

    assert sides.alternate(side("ours", [1, 9, 2]), side("peer", [5, 6, 40]), 3, pause=0) == (2, 6)
    assert order == ["ours", "peer"] * 3


def test_a_child_gets_its_settings_and_may_print_before_its_json(tmp_path):
    script = tmp_path / "script.py"
    script.write_text('import json, os, sys\nprint("warming up")\nprint(json.dumps([sys.argv[1:], os.environ["HAL_FAKE_ASYNC"]], indent=1))')
    assert sides.run_child(str(script), "--quick", HAL_FAKE_ASYNC="0") == [["--child", "--quick"], "0"]


def test_a_child_that_fails_is_no_measurement(tmp_path):
    script = tmp_path / "script.py"
    script.write_text('print("{}")\nraise SystemExit(2)')
    with pytest.raises(subprocess.CalledProcessError):
        sides.run_child(str(script))
