"""Pictures and statistics: lazy.plot, lazy.stats, the command `plot`, and the timeline of collectives."""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from torch_backend import cli, fallback, lazy
from torch_backend.distributed import _timeline, plot

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"
graphviz = pytest.mark.skipif(not shutil.which("dot"), reason="needs Graphviz (system-packages.txt, purpose docs)")


@pytest.fixture(autouse=True)
def fresh_metrics():
    lazy.reset_metrics()
    fallback.reset()  # earlier tests of the process used the CPU


def operators(text):
    """Returns the operators of a graph, in its order."""
    return re.findall(r'label="([\w.]+), \w+', text)


def matrices(device):
    return torch.ones(8, 8, device=device), torch.ones(8, 8, device=device)


def defer(a, b):
    x = (a @ b).relu()
    y = (a - b).exp()
    return (x * y).sum()


@graphviz
def test_deferred_work_is_written_as_a_picture(device, tmp_path):
    a, b = matrices(device)
    with lazy.record():
        defer(a, b)
        assert lazy.plot(tmp_path / "work.dot", device) == [tmp_path / "work.dot"]
        assert lazy.plot(tmp_path / "work.svg") == [tmp_path / "work.svg"]
    assert operators((tmp_path / "work.dot").read_text()) == ["mm", "clamp_min", "sub.Tensor", "exp", "mul.Tensor", "sum.dim_IntList"]
    assert "mul.Tensor" in "".join(ElementTree.parse(tmp_path / "work.svg").getroot().itertext())


def test_the_picture_of_the_guide_is_that_of_its_program(device, tmp_path):
    a, b = matrices(device)
    with lazy.record():
        defer(a, b)
        lazy.plot(tmp_path / "work.dot")
    assert operators((ROOT / "docs/pictures/deferred-work.dot").read_text()) == operators((tmp_path / "work.dot").read_text())
    graph = torch.accelerator.Graph()
    graph.enable_debug_mode()
    x, weight = torch.ones(4, 8, device=device), torch.ones(8, 2, device=device)
    with torch.get_device_module(device).graph(graph):
        torch.relu(x @ weight).sum()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert operators((ROOT / "docs/pictures/captured-graph.dot").read_text()) == operators((tmp_path / "graph.dot").read_text())


def test_plotting_without_work_or_in_an_unknown_format_is_an_error(device, tmp_path):
    with pytest.raises(ValueError, match="no work is deferred; call plot"):
        lazy.plot(tmp_path / "work.svg")
    a, b = matrices(device)
    with lazy.record():
        defer(a, b)
        with pytest.raises(ValueError, match=r"invalid suffix '\.gif': expected '\.dot', '\.svg'"):
            lazy.plot(tmp_path / "work.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_graphviz_is_an_error_that_names_the_cure(device, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    a, b = matrices(device)
    with lazy.record():
        defer(a, b)
        with pytest.raises(RuntimeError, match=r"the program 'dot' is missing; install Graphviz .* or write a '\.dot' file"):
            lazy.plot(tmp_path / "work.svg")


@graphviz
def test_the_command_plots_each_graph_of_a_file(tmp_path, capsys):
    one = 'digraph program {\n  n0 [label="add"];\n}\n'
    (tmp_path / "one.dot").write_text(one)
    (tmp_path / "two.dot").write_text(one + "\n" + one.replace("add", "mul"))
    assert cli.main(["plot", str(tmp_path / "one.dot"), str(tmp_path / "one.svg")]) == 0
    assert cli.main(["plot", str(tmp_path / "two.dot"), str(tmp_path / "two.svg")]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in ("one.svg", "two-1.svg", "two-2.svg")]
    assert "mul" in (tmp_path / "two-2.svg").read_text() and "mul" not in (tmp_path / "two-1.svg").read_text()


@pytest.mark.parametrize("source, message", [("missing.dot", "No such file"), ("bad.dot", "dot failed with exit code"), ("", "no file 'rank_<rank>'"), ("text.dot", "there is no graph in the text")])
@graphviz
def test_the_command_prints_an_error(source, message, tmp_path, capsys):
    (tmp_path / "bad.dot").write_text("digraph program { -> }")
    (tmp_path / "text.dot").write_text("nothing")
    assert cli.main(["plot", str(tmp_path / source), str(tmp_path / "out.svg")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("torch-backend plot: ") and message in error, error


# ---- statistics ----


def test_statistics_contain_all_reports(device):
    a, b = matrices(device)
    with lazy.record(lines=True):
        defer(a, b)
        one = lazy.stats()
        lazy.mark_step()
    assert one.counters["pending"] >= one.counters["recorded"] == sum(one.operators.values()) == 6 and "mul.Tensor" in one.deferred
    one = lazy.stats()
    assert one.counters == lazy.metrics() and one.operators == lazy.operators() and one.measurements == lazy.measurements()
    assert one.compilations == lazy.compilations() and one.deferred == "" and one.problems == []
    text = str(one)
    assert text.startswith("lazy mode: 1 steps, ") and "no problem was found" in text and "queue_time" in text and "mul.Tensor" in text
    assert all(str(compilation) in text for compilation in one.compilations[-5:])


def test_statistics_name_the_problems_of_a_program(device):
    x = torch.ones(100, device=device)
    with lazy.record(limit=8):
        for step in range(12):
            y = x + 1
            for _ in range(step):  # another group in each step
                y = y * 2
            y.sum().item()
            lazy.mark_step()
        for _ in range(10):
            x = x + 1
        torch.linalg.inv(torch.eye(3, device=device))
    problems = "\n".join(lazy.stats().problems)
    assert "12 values were read in 12 steps" in problems or re.search(r"1[2-9] values were read in 12 steps", problems), problems
    assert re.search(r"\d+ groups were compiled in 12 steps: .*the last one: step", problems), problems
    assert re.search(r"the limit of deferred operators was reached \d+ times: call mark_step", problems), problems
    assert "operators fell back to the CPU" in problems and "linalg_inv_ex" in problems, problems
    assert all(f"problem: {line}" in str(lazy.stats()) for line in lazy.stats().problems)


# ---- collectives ----


def entry(number, created, started, completed, state, **others):
    return {"profiling_name": "shm:all_reduce", "input_sizes": [[4]], "input_dtypes": ["float32"], "process_group": ("0", "default_pg"),
            "collective_seq_id": number, "p2p_seq_id": 0, "is_p2p": False, "state": state, "time_created_ns": created,
            "time_discovered_started_ns": started, "time_discovered_completed_ns": completed, **others}  # fmt: skip


def test_the_timeline_has_a_row_for_each_rank_and_a_bar_for_each_phase():
    logs = {rank: {"entries": [entry(1, 1000, 2000 + 1000 * rank, 5000, "completed")]} for rank in range(2)}
    logs[1]["entries"].append(entry(2, 6000, None, None, "scheduled"))
    logs[0]["entries"].append(entry(2, 6000, 9000, 11000, "completed", profiling_name="gloo:<send>", is_p2p=True, p2p_seq_id=7))
    root = ElementTree.fromstring(_timeline.timeline(logs))
    labels = [text.text for text in root.iter(f"{SVG}text")]
    assert "rank 0" in labels and "rank 1" in labels and "0.011 ms" in labels
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    titles = [bar.find(f"{SVG}title").text for bar in bars]
    assert titles.count("all_reduce(float32[4]); group '0', number 1; 0.004 ms from the call") == 4
    assert any("number 2; not completed" in title for title in titles) and any("<send>" in title and "number 7" in title for title in titles)
    # The first collective of rank 0: 1 us from the call to the start, 3 us to the end, of 11 us in 900 pixels: 10 us of
    # the logs, and a tenth because a collective has no end.
    light, dark = bars[:2]
    assert (float(light.get("x")), float(light.get("width")), float(dark.get("width"))) == (70, 81.8, 245.5)
    assert "all_reduce" in labels


def test_a_timeline_of_nothing_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="the logs have no collective; TORCH_FR_BUFFER_SIZE=0"):
        _timeline.timeline({0: {"entries": []}})
    with pytest.raises(ValueError, match=r"invalid suffix '\.png': expected '\.svg'"):
        plot(tmp_path, tmp_path / "out.png")
    with pytest.raises(FileNotFoundError, match="no file 'rank_<rank>'"):
        plot(tmp_path, tmp_path / "out.svg")
