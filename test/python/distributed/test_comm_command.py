"""`torch-backend comm`: what it measures, computes and counts."""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import launch
import namespaces
import pytest
import warm_interpreter
from torch_backend import cli

FOLDER = Path(__file__).parent
DOCUMENTS = FOLDER.parents[2] / "docs"
GUIDES = "".join((DOCUMENTS / name).read_text() for name in ("scaling.md", "collectives-library.md"))
COMMANDS = re.findall(r"<!-- test: comm -->\n```bash\ntorch-backend comm (.*)\n```", GUIDES)


def comm(*arguments, folder=None, **settings):
    environment = {"TORCH_BACKEND": "fake", **os.environ, **settings}
    environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    command = [sys.executable, "-P", "-m", "torch_backend", "comm", *map(str, arguments)]
    return warm_interpreter.run(command, env=environment, cwd=folder, timeout=240)


@pytest.fixture(scope="module")
def measurement():
    no_port = {"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1"}  # another program could take a port before rank 0 does
    done = comm("bench", "--op", "all_reduce", "all_to_all", "--bytes", "1K", "64K", "1M", "--seconds", "0.05", "--json", **no_port)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_bench_measures_every_row_and_compares_results(measurement):
    rows = measurement["rows"]
    assert [(row["operator"], row["bytes"]) for row in rows] == [(op, size) for op in ("all_reduce", "all_to_all") for size in (1 << 10, 1 << 16, 1 << 20)]
    for row in rows:
        assert row["wrong"] == 0 and row["ranks"] == 2 and row["repetitions"] >= 3 and 0 < row["seconds"] < 1
        assert row["algorithm_bandwidth"] == pytest.approx(row["bytes"] / row["seconds"])


def test_bench_divides_ranks_among_hosts():
    if why := namespaces.missing():
        pytest.skip(why)
    done = comm("bench", "--op", "all_reduce", "--bytes", "1K", "1M", "--ranks", "4", "--hosts", "2", "--seconds", "0.05", "--json", HAL_LOG="info")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["ranks"], row["hosts"], row["bytes"], row["wrong"]) for row in rows] == [(4, 2, 1 << 10, 0), (4, 2, 1 << 20, 0)]


# Imported by each rank at its start. The ranks of LATE_RANKS stay in `hang` once they measure.
HANG = """
import os, signal, sys, time
if os.environ.get("RANK", "none") in os.environ["LATE_RANKS"]:
    def hang(*_):
        progress = sys.argv[sys.argv.index("--progress") + 1]
        if os.path.exists(progress) and "repetition" in open(progress).read():
            time.sleep(1000)
    signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
"""


@pytest.mark.slow
@pytest.mark.parametrize("late, words", [
    ("1", r"rank 0 ended with 1: .*waiting for rank 1, whose last call is all_reduce"),
    ("01", r"no rank has made progress for \d+ s: rank 0: all_reduce of 1024 bytes, repetition \d+\n.*in hang\n.*rank 1: all_reduce of 1024 bytes.*in hang\n"),
])  # fmt: skip
def test_bench_names_ranks_that_do_not_end(late, words, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HANG)
    done = comm("bench", "--bytes", "1K", "--seconds", "100", "--timeout", "2", LATE_RANKS=late, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == 1 and re.search(words, done.stderr, re.DOTALL), done.stderr


@pytest.mark.slow
def test_the_model_is_near_the_times_of_two_to_eight_ranks():
    """Some share a processor. Other programs on the machine disturb the comparison, so it has three attempts."""
    for attempt in range(3):
        done = comm("simulate", "--bytes", "1M", "--check", "--json")
        checked = json.loads(done.stdout)["checked"]
        assert [row["ranks"] for row in checked] == [2, 2, 3, 3, 4, 4, 6, 6, 8, 8]
        if done.returncode == 0:
            return
    raise AssertionError(checked)


def test_simulate_computes_more_ranks_from_a_measurement(measurement, tmp_path):
    (tmp_path / "measured.json").write_text(json.dumps(measurement))
    done = comm("simulate", "--measurement", tmp_path / "measured.json", "--bytes", "1M", "--plot", tmp_path / "curve.png", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    times = [row["seconds"] for row in document["rows"]]
    assert [row["ranks"] for row in document["rows"]] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    measured = {row["bytes"]: row["seconds"] for row in measurement["rows"] if row["operator"] == "all_reduce"}
    # The model has no message that is faster than the smallest one, which may be measured slower on a busy machine.
    assert times[0] == pytest.approx(max(measured[1 << 20], measured[min(measured)]), rel=0.02) and times == sorted(times)
    assert [row["algorithm"].split(",")[0] for row in document["rows"]] == ["shared memory"] * 3 + ["hierarchical"] * 7
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"


def test_dry_run_counts_what_the_real_run_does():
    real = json.loads(launch.run("sharded.py", 2).splitlines()[-1])
    done = comm("dry-run", "--world-size", "2", "--json", FOLDER / "sharded.py", "0", "2", "unused")
    assert done.returncode == 0, done.stderr
    first, _, rest = done.stdout.partition("\n")
    report = json.loads(rest)
    assert json.loads(first)["counts"] == real["counts"]
    assert json.loads(first)["peak"] == pytest.approx(real["peak"], rel=0.05)
    rows = {row["operator"]: row for row in report["collectives"] if row["ranks"] == 2}
    assert rows["all_gather"]["calls"] == real["counts"]["_allgather_base_"] and rows["reduce_scatter"]["calls"] == real["counts"]["_reduce_scatter_base_"]
    layer = (256 * 256 + 256) * 4
    assert rows["reduce_scatter"]["bytes"] == 2 * 4 * layer  # steps, layers
    assert rows["all_gather"]["bytes"] == real["counts"]["_allgather_base_"] * layer


def test_dry_run_of_a_thousand_ranks_takes_seconds(tmp_path):
    done = comm("dry-run", "--world-size", "1024", "--rank", "1023", "--json", FOLDER / "three_ways.py")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["seconds"] < 30 and report["peak_memory"] > 0
    assert {(row["operator"], row["ranks"]) for row in report["collectives"]} >= {
        ("all_gather", 32), ("reduce_scatter", 32), ("all_reduce", 8), ("send", 4), ("recv", 4)
    }  # fmt: skip


@pytest.mark.parametrize("arguments, words", [
    (("simulate", "--measurement", "/nowhere.json"), "nowhere.json"),
    (("bench", "--dtype", "float31", "--bytes", "1K"), "no data type 'float31'"),
    (("bench", "--bytes", "1K", "--hosts", "3"), "2 ranks cannot be on 3 hosts"),
    (("dry-run", "--world-size", "4", "--rank", "4", "/nowhere.py"), "rank 4 is not one of 4 ranks"),
])  # fmt: skip
def test_an_invalid_request_is_one_message(arguments, words, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", sys.argv[:])
    assert cli.main(["comm", *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("change, words", [
    (lambda file: file.update(program="hal-cts"), "is not a result of `torch-backend comm bench --json"),
    (lambda file: file.update(layout=2), "has layout 2"),
    (lambda file: file.update(cores=0), "is damaged"),
    (lambda file: file.update(rows={}), "is damaged"),
    (lambda file: file["rows"].append(None), "is damaged"),
    (lambda file: file["rows"][0].update(seconds=float("nan")), "is damaged"),
    (lambda file: file["rows"][0].update(seconds=0), "is damaged"),
    (lambda file: file["rows"][0].update(bytes="1K"), "is damaged"),
    (lambda file: file["rows"][0].pop("ranks"), "is damaged"),
    (lambda file: file.update(rows=file["rows"][:1]), "fewer than two sizes"),
    (lambda file: file.update(rows=[{**row, "operator": "all_to_all"} for row in file["rows"]]), "fewer than two sizes"),
])  # fmt: skip
def test_an_invalid_measurement_is_one_message(change, words, capsys, tmp_path):
    rows = [{"operator": "all_reduce", "ranks": 2, "bytes": 1 << shift, "seconds": 1e-5 * shift} for shift in (10, 16, 20)]
    document = {"program": "torch-backend comm bench", "layout": 1, "cores": 2, "rows": rows}
    file = tmp_path / "measured.json"
    simulate = ["comm", "simulate", "--measurement", str(file), "--bytes", "1M", "--json"]
    file.write_text(json.dumps(document))
    assert cli.main(simulate) == 0
    change(document)
    file.write_text(json.dumps(document))
    capsys.readouterr()
    assert cli.main(simulate) == 1
    output = capsys.readouterr()
    assert output.out == "" and words in output.err and output.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("bench", "--bytes", "big"), ("bench", "--ranks", "0"), ("dry-run", "program.py"), ("simulate", "--network-latency", "-1")])
def test_invalid_usage_is_an_error(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["comm", *arguments])
    assert "usage:" in capsys.readouterr().err


def test_the_guide_has_commands():
    assert len(COMMANDS) == 4


def check_command(number, tmp_path, *more):
    (tmp_path / "train.py").write_text(re.findall(r"<!-- test: torchrun -->\n```python\n(.*?)```", (DOCUMENTS / "distributed.md").read_text(), re.S)[1])
    part, *arguments = shlex.split(COMMANDS[number])
    quick = [] if part == "dry-run" else ["--seconds", "0.05"]
    done = comm(part, *quick, *more, *arguments, folder=tmp_path)
    assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_command_of_the_guide(number, tmp_path):
    """The simulation of 2 ranks measures 2; that of more ranks measures more ranks than processors, too."""
    check_command(number, tmp_path, *(["--ranks", "2"] if COMMANDS[number].startswith("simulate") else []))


@pytest.mark.slow
def test_the_simulation_of_the_guide_measures_more_ranks_than_processors(tmp_path):
    (number,) = [number for number, command in enumerate(COMMANDS) if command.startswith("simulate")]
    check_command(number, tmp_path)
