"""Each operator entry with a portable kernel is compiled by the plugin pjrt, or has a reason why not."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "plugins/pjrt/tools")]
import emissions  # noqa: E402  found by the line above


def test_each_operator_with_a_kernel_is_compiled_or_has_a_reason():
    assert list(emissions.problems(ROOT / "codegen")) == []


def test_a_new_operator_without_emission_is_reported_with_what_to_do():
    (problem,) = emissions.problems(ROOT / "codegen", ["new_operator.out"])
    assert problem.startswith("the operator 'new_operator.out' has a portable kernel, but no program of the plugin pjrt: add a row")


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
