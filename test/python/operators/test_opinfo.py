"""PyTorch's operator database on the fake device: each entry has the CPU's result, and the suite itself detects errors.

The fast part runs here; `make test-full` runs all dtypes and modes. See test/opinfo.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OPINFO = Path(__file__).resolve().parents[2] / "opinfo"
sys.path.insert(0, str(OPINFO))
try:
    import expected
finally:
    sys.path.remove(str(OPINFO))

PRELUDE = f"import sys; sys.path.insert(0, {str(OPINFO)!r})\n"


def test_every_entry_has_the_cpus_result(tmp_path):
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_BACKEND", "PYTORCH_ALLOC"))}
    command = [sys.executable, str(OPINFO / "run.py"), "--json", str(tmp_path / "outcomes.json")]
    done = subprocess.run(command, cwd=tmp_path, env={**settings, "TORCH_BACKEND": "fake"}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    outcomes = json.loads((tmp_path / "outcomes.json").read_text())
    # of torch 2.13's 677 entries for float32, 672 can be sampled
    assert sum(one["kind"] == "pass" for one in outcomes) >= 660


# ---- the lists ----
def read_lists():
    return json.loads((OPINFO / "expected.json").read_text()), json.loads((OPINFO / "native.json").read_text())


def test_every_expected_failure_has_a_reason_and_is_counted():
    lists = expected.Expected()
    assert lists.data["counts"] == lists.counts()
    for line in lists.data["failures"]:
        assert line["reason"] and line["kind"] in expected.SEVERITY and line["dtypes"] and line["modes"]


def test_failures_only_get_fewer_and_natives_only_more():
    def committed(name):
        command = ["git", "-C", str(OPINFO), "show", f"HEAD:./{name}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("git is not there")
        if done.returncode:
            pytest.skip(f"no committed {name} to compare with")
        return json.loads(done.stdout)

    (now, native_now), before, native_before = read_lists(), committed("expected.json"), committed("native.json")
    for kind, count in before["counts"].items():
        assert now["counts"][kind] <= count, f"{kind}: {now['counts'][kind]} lines, {count} are committed"
    for dtype, steps in native_before.items():
        for step, entries in steps.items():
            assert len(native_now[dtype][step]) >= len(entries), f"native {dtype} {step}"


@pytest.fixture
def lists(tmp_path):
    line = {"entry": "listed", "dtypes": ["float32"], "modes": ["async"], "at": "backward 1", "kind": "wrong", "reason": "known"}
    data = {"failures": [line], "random": {}, "uninitialised": {}, "host": {}}
    (tmp_path / "expected.json").write_text(json.dumps(data))
    (tmp_path / "native.json").write_text(json.dumps({"float32": {"forward": ["native"], "backward": []}}))
    return expected.Expected(tmp_path / "expected.json", tmp_path / "native.json")


def step(status, sample=0, step="forward", mode="async", **more):
    return {"mode": mode, "sample": sample, "step": step, "status": status, "message": "", **more}


CASES = {
    "a pass": ("other", [step("pass")], "", "as expected"),
    "a wrong value": ("other", [step("wrong")], "", "worse"),
    "an error": ("other", [step("pass"), step("error", 1)], "", "worse"),
    "a crash": ("other", [step("pass"), step("started", 1)], "it died of SIGSEGV", "worse"),
    "a crash before the first step": ("other", [], "it died of SIGSEGV", "worse"),
    "a crash after the last step": ("other", [step("pass")], "it died of SIGSEGV", "worse"),
    "no sample": ("other", [{"mode": "async", "status": "unsampled", "message": ""}], "", "as expected"),
    "the listed failure": ("listed", [step("wrong", 1, "backward")], "", "as expected"),
    "an earlier failure": ("listed", [step("wrong", 1, "forward")], "", "worse"),
    "a worse failure": ("listed", [step("started", 1, "backward")], "it died", "worse"),
    "a later failure": ("listed", [step("wrong", 2, "forward")], "", "better"),
    "a lesser failure": ("listed", [step("error", 1, "backward")], "", "better"),
    "an unexpected pass": ("listed", [step("pass")], "", "better"),
}


@pytest.mark.parametrize("entry, records, death, verdict", CASES.values(), ids=CASES.keys())
def test_the_judgement_of(lists, entry, records, death, verdict):
    said, sentence = lists.judge(expected.outcome(entry, "float32", "async", records, death), (2, 1))
    assert said == verdict
    assert (sentence == "") == (verdict == "as expected")
    if verdict == "better":
        assert "line" in sentence and "--tighten" in sentence


def test_a_run_that_is_too_short_to_fail_is_no_unexpected_pass(lists):
    assert lists.judge(expected.outcome("listed", "float32", "async", [step("pass")], ""), (0, 0)) == ("as expected", "")


def test_a_claimed_native_that_falls_back_is_worse_and_a_new_one_is_named(lists):
    lost = expected.outcome("native", "float32", "strict", [step("fallback", mode="strict")], "")
    new = expected.outcome("other", "float32", "strict", [step("pass", mode="strict")], "")
    kept = expected.outcome("native", "float32", "strict", [step("pass", mode="strict"), step("fallback", 0, "backward", "strict")], "")
    assert [verdict for verdict, _ in lists.judge_native(lost)] == ["worse"]
    assert [verdict for verdict, _ in lists.judge_native(new)] == ["better", "better"]
    assert list(lists.judge_native(kept)) == []
    counted = expected.outcome("native", "float32", "async", [step("pass", fallbacks=["aten::add.out"])], "")
    assert [verdict for verdict, _ in lists.judge_native(counted)] == ["worse"]


def test_tightening_takes_out_what_passes_and_adds_no_failure(lists):
    outcomes = [expected.outcome("listed", "float32", "async", [step("pass")], ""),
                expected.outcome("other", "float32", "async", [step("wrong")], ""),
                expected.outcome("other", "float32", "strict", [step("pass", mode="strict")], "")]  # fmt: skip
    lists.tighten(outcomes)
    written = expected.Expected(lists.failures_path, lists.native_path)
    assert written.data["failures"] == [] and written.data["counts"]["failures"] == 0
    assert written.native["float32"] == {"forward": ["native", "other"], "backward": ["other"]}


# ---- isolation ----
def test_a_crash_a_hang_and_an_exit_cost_one_job_each(run_python):
    done = run_python(
        PRELUDE
        + """
import os, signal, time
from runner import run_jobs

def work(job, emit):
    emit("began")
    if job == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if job == "hang":
        time.sleep(600)
    if job == "exit":
        os._exit(7)
    if job == "raise":
        raise RuntimeError
    emit("ended")
    return job != "broken"

batches = [["a", "crash", "b", "hang", "c"], ["exit", "broken", "d", "raise", "e"], ["f"]]
for job, records, death in sorted(run_jobs(batches, work, slots=2, timeout=2)):
    lines = death.splitlines()
    print(job, len(records), *lines[:1], *lines[1:][-1:])
"""
    )
    assert done.stdout.splitlines() == [
        "a 2", "b 2", "broken 2", "c 2", "crash 1 it died of SIGSEGV", "d 2", "e 2", "exit 1 it left with exit code 7", "f 2",
        "hang 1 it ran for more than 2 s", "raise 1 it left with exit code 1: RuntimeError"]  # fmt: skip


# ---- the comparison ----
# The entry computes this on the device and x.sin() on the CPU; then the statuses of its steps.
FAULTS = {
    "nothing": ("x.sin()", "pass pass"),
    "a value": ("x.sin() + 1e-3", "wrong"),
    "a value that is not a number": ("x.sin() / 0 * 0", "wrong"),
    "a dtype": ("x.sin().double()", "wrong"),
    "a shape": ("x.sin()[None]", "wrong"),
    "a device": ("x.sin().cpu()", "wrong"),
    "a gradient": ("x.sin() + (x - x.detach())", "pass wrong"),
    "no gradient": ("x.detach().sin()", "wrong"),
    "an operand": ("x.sin() + 0 * x.data.zero_()", "wrong"),
    "an error": ("x.no_such_thing()", "error"),
    "the number of results": ("(x.sin(), x.sin())", "wrong"),
    "a forbidden fallback": ("on_the_host(x)", "fallback"),
    "another distribution": ("torch.rand_like(x) * 1.5 + 0 * x", "wrong"),
    "the same distribution": ("torch.rand_like(x) + 0 * x", "pass pass"),
}
COMPARISON = """
import torch
from entry import check

@torch.library.custom_op("torch_backend_test::on_the_host", mutates_args=(), device_types="cpu")
def on_the_host(x: torch.Tensor) -> torch.Tensor:
    return x.sin()

class Entry:
    name, variant_test_name, supports_autograd = "entry", "", True

    def __init__(self, on_cpu, on_device):
        self.on_cpu, self.on_device = on_cpu, on_device

    def sample_inputs(self, device, dtype, requires_grad):
        yield type("Sample", (), dict(input=torch.randn(500).requires_grad_(requires_grad), args=(), kwargs=dict()))

    def supported_backward_dtypes(self, device):
        return [torch.float32]

    def __call__(self, x):
        return self.on_cpu(x) if x.device.type == "cpu" else self.on_device(x)

def statuses(fault, on_device):
    records = []
    is_random = "distribution" in fault
    modes = ["strict" if "fallback" in fault else "async"]
    entry = Entry((lambda x: torch.rand_like(x) + 0 * x) if is_random else torch.sin, on_device)
    names = ["entry"] if is_random else []
    plan = dict(modes=modes, samples=1, backward=True, delay=0, random=names, uninitialised=[], host=[], plugin="fake")
    check(entry, torch.float32, plan, records.append)
    return " ".join(record["status"] for record in records if record["status"] != "started")
"""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """The outcome that the suite reports for each fault."""
    lines = [f"print(statuses({fault!r}, lambda x: {code}))" for fault, (code, _) in FAULTS.items()]
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_BACKEND"))}
    script = PRELUDE + COMPARISON + "\n".join(lines)
    folder = tmp_path_factory.mktemp("comparison")
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(zip(FAULTS, done.stdout.splitlines()))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_notices(comparison, fault):
    assert comparison[fault] == FAULTS[fault][1]
