"""`torch-backend memory view`: what the page shows is computed from the snapshot, and other files are errors."""

import copy
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.cuda import _memory_viz
from torch_backend import cli
from torch_backend.cli import _memory_summary, _snapshot
from torch_backend.cli import memory as command

SITE = {"name": "step", "filename": "train.py", "line": 7}


def event(action, addr, size, time, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, **more}


def block(address, size, state="inactive", requested=0, frames=()):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": list(frames)}


def segment(address, blocks, device=0, pool=(0, 0)):
    return {"device": device, "address": address, "total_size": sum(item["size"] for item in blocks), "stream": 0, "segment_pool_id": pool, "blocks": blocks}


# Device 0: a block of 300 bytes was allocated before the recording, 200 bytes come and go, and 100 bytes stay.
# Device 1: a private pool with a block that waits for a stream, and an out-of-memory error.
SNAPSHOT = {
    "segments": [
        segment(0x1000, [block(0x1000, 512, "active_allocated", 300), block(0x1200, 512, "active_allocated", 100, [SITE]), block(0x1400, 1024)]),
        segment(0x9000, [block(0x9000, 512, "active_pending_free", 400), block(0x9200, 512)], device=1, pool=(2, 1)),
    ],
    "device_traces": [
        [
            event("segment_alloc", 0x5000, 4096, 1000),
            event("alloc", 0x5000, 200, 1010, frames=[SITE]),
            event("alloc", 0x1200, 100, 1020, frames=[SITE]),
            event("free_requested", 0x5000, 200, 1030),
            event("free_completed", 0x5000, 200, 1040),
            event("segment_free", 0x5000, 4096, 1050),
            event("snapshot", 0, 1024, 1060),
        ],
        [event("free_requested", 0x9000, 400, 50), {"action": "oom", "size": 7000, "device_free": 10, "time_us": 60, "stream": 0}],
    ],
}


@pytest.fixture
def snapshot():
    return copy.deepcopy(SNAPSHOT)


def embedded(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_numbers_of_a_snapshot_written_by_hand(snapshot):
    result = _memory_summary.summary(_snapshot.check(snapshot))
    first, second = result["devices"]
    assert first["totals"] == {"reserved": 2048, "active": 1024, "pending": 0, "inactive": 1024, "requested": 400, "segments": 1, "blocks": 3}
    assert second["totals"] == {"reserved": 1024, "active": 0, "pending": 512, "inactive": 512, "requested": 400, "segments": 1, "blocks": 2}
    line = first["timeline"]
    assert line["points"] == [[0, 0, 300, 2048], [1, 0, 300, 6144], [2, 10, 500, 6144], [3, 20, 600, 6144], [4, 30, 400, 6144], [6, 50, 400, 2048], [7, 60, 400, 2048]]
    assert {key: line["peak"][key] for key in ("position", "time", "bytes", "count")} == {"position": 3, "time": 20, "bytes": 600, "count": 3}
    assert [(row["size"], row["start"], row["end"]) for row in line["largest"]] == [(300, None, None), (200, 2, 4), (100, 3, None)]
    assert [row["size"] for row in line["peak"]["blocks"]] == [300, 200, 100] and line["unknown_ends"] == 0 and line["ooms"] == []
    live = first["live"]
    assert (live["count"], live["bytes"]) == (2, 400) and [row["address"] for row in live["blocks"]] == ["0x1000", "0x1200"]
    assert [result["stacks"][row["stack"]] for row in live["blocks"]] == [[], ["train.py:7:step"]]
    assert second["timeline"]["points"] == [[0, 0, 400, 1024], [1, 0, 0, 1024], [2, 10, 0, 1024]]
    assert [(oom["position"], oom["size"], oom["free"]) for oom in second["timeline"]["ooms"]] == [(2, 7000, 10)]
    [row] = second["segments"]
    assert row["pool"] == "2.1" and [(item["offset"], item["state"]) for item in row["blocks"]] == [(0, "pending"), (512, "inactive")]


def test_pinned_memory_is_listed_after_the_devices(snapshot):
    snapshot["host_segments"] = [segment(0xA000, [block(0xA000, 4096, "active_allocated", 4000, [SITE])], device=-1)]
    snapshot["host_traces"] = [event("segment_alloc", 0xA000, 4096, 1000), event("alloc", 0xA000, 4000, 1010, frames=[SITE]),
                               {"action": "oom", "size": 1 << 40, "device_free": 0, "time_us": 1020, "stream": 0}]  # fmt: skip
    result = _memory_summary.summary(_snapshot.check(snapshot))
    assert [each["device"] for each in result["devices"]] == [0, 1, "pinned host memory"]
    pinned = result["devices"][2]
    assert pinned["totals"] == {"reserved": 4096, "active": 4096, "pending": 0, "inactive": 0, "requested": 4000, "segments": 1, "blocks": 1}
    assert pinned["timeline"]["points"] == [[0, 0, 0, 0], [1, 0, 0, 4096], [2, 10, 4000, 4096], [3, 20, 4000, 4096]]
    assert [(oom["size"], oom["position"]) for oom in pinned["timeline"]["ooms"]] == [(1 << 40, 3)]
    only = {"segments": [], "device_traces": [[]], "host_segments": snapshot["host_segments"], "host_traces": []}
    assert [each["device"] for each in _memory_summary.summary(_snapshot.check(only))["devices"]] == ["pinned host memory"]
    none = {"segments": [], "device_traces": [[]], "host_segments": [], "host_traces": []}
    assert [each["device"] for each in _memory_summary.summary(_snapshot.check(none))["devices"]] == [0]


def test_many_blocks_of_one_size_are_listed_by_their_duration():
    trace = []
    for address in range(100):
        trace += [event("alloc", address, 8, 0), event("free_requested", address, 8, 0)]
    trace[40:40] = [event("alloc", 1000, 8, 0)]
    trace += [event("free_requested", 1000, 8, 0)]
    line = _memory_summary.summary({"segments": [], "device_traces": [trace]})["devices"][0]["timeline"]
    assert [row["address"] for row in line["largest"]] == ["0x3e8", *(f"{address:#x}" for address in range(_memory_summary.LARGEST - 1))]
    assert (line["largest"][0]["start"], line["largest"][0]["end"]) == (41, 202)
    assert (line["peak"]["position"], line["peak"]["bytes"], line["peak"]["count"]) == (42, 16, 2)


def test_events_that_were_not_recorded(snapshot):
    del snapshot["segments"][1], snapshot["device_traces"][1]
    trace = snapshot["device_traces"][0]
    # without requests, the completions release; without an allocation, the block was there before
    trace[:] = [trace[4], event("alloc", 0x7000, 50, 1041), event("alloc", 0x7000, 60, 1042), event("segment_alloc", 0x8000, 1 << 20, 1043)]
    line = _memory_summary.summary(_snapshot.check(snapshot))["devices"][0]["timeline"]
    assert [point[2] for point in line["points"]] == [600, 400, 450, 460, 400]
    assert line["unknown_ends"] == 2 and [point[3] for point in line["points"]] == [None] * 5  # its segments are not in the snapshot
    empty = _memory_summary.summary(_snapshot.check({"segments": [], "device_traces": []}))["devices"]
    assert [device["timeline"]["points"] for device in empty] == [[[0, 0, 0, 0]]]


def test_the_page_is_one_file_without_network_and_escapes_names(snapshot, tmp_path, capsys):
    name = "</script><script>alert('&')</script>@DATA@\u2028<!--"
    snapshot["segments"][0]["blocks"][1]["frames"][0]["name"] = name
    file = tmp_path / "a.pickle"
    file.write_bytes(pickle.dumps(snapshot))
    assert cli.main(["memory", "view", str(file)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.html'}\n" and sorted(os.listdir(tmp_path)) == ["a.html", "a.pickle"]
    text = (tmp_path / "a.html").read_text()
    assert text.count("<script") == text.count("</script") == 2 and "<!--" not in text
    assert not re.search(r"\w+://|\bsrc=|\bhref=|@import|url\(", text) and "default-src 'none'" in text
    data = embedded(text)
    assert data == {"file": "a.pickle", **json.loads(json.dumps(_memory_summary.summary(snapshot)))}
    assert [f"train.py:7:{name}"] in data["stacks"]


class Call:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def without(key, *path):
    changed = copy.deepcopy(SNAPSHOT)
    at = changed
    for step in path:
        at = at[step]
    del at[key]
    return changed


def having(key, value, *path):
    changed = copy.deepcopy(SNAPSHOT)
    at = changed
    for step in path:
        at = at[step]
    at[key] = value
    return changed


BLOCK = ("segments", 0, "blocks", 1)
GOOD = pickle.dumps(SNAPSHOT)


@pytest.mark.parametrize("content, problem", [
    (b"", "the file is empty"),
    (GOOD[:-1], "truncated"),
    (GOOD[: len(GOOD) // 2], "truncated"),
    (b"PK\x03\x04 torch.save", "no pickle, or a corrupt one"),
    (b"\x80\x04.", "corrupt"),
    ({"segments": [Call()], "device_traces": []}, f"the global '{os.mkdir.__module__}.mkdir', which is forbidden"),
    (torch.Size([1]), "the global 'torch.Size', which is forbidden"),
    ([], "an object of type 'list': expected the dict of a snapshot"),
    (without("device_traces"), "key 'device_traces' of the snapshot is missing"),
    (without("size", *BLOCK), "key 'size' of segments[0]['blocks'][1] is missing"),
    (without("line", *BLOCK, "frames", 0), "key 'line' of segments[0]['blocks'][1]['frames'][0] is missing"),
    (without("addr", "device_traces", 0, 2), "key 'addr' of device_traces[0][2] is missing"),
    (having("size", -1, *BLOCK), "invalid segments[0]['blocks'][1]['size'] -1: expected an integer from 0"),
    (having("size", True, "device_traces", 0, 2), "invalid device_traces[0][2]['size'] True"),
    (having("state", "free", *BLOCK), "invalid segments[0]['blocks'][1]['state'] 'free'"),
    (having("total_size", 1000, "segments", 0), "the blocks of segments[0] have 2048 bytes, but the segment has 1000"),
    (having("segment_pool_id", (1,), "segments", 0), "invalid segments[0]['segment_pool_id'] (1,): expected two integers"),
    (having("frames", [{}], "device_traces", 0, 2), "key 'name' of device_traces[0][2]['frames'][0] is missing"),
    (having("name", b"x", *BLOCK, "frames", 0), "of type 'bytes': expected 'str'"),
    (having(0, None, "segments"), "invalid segments[0] of type 'NoneType': expected 'dict'"),
    (having("host_segments", []), "key 'host_traces' of the snapshot is missing"),
    ({**SNAPSHOT, "host_segments": [], "host_traces": [[]]}, "invalid host_traces[0] of type 'list': expected 'dict'"),
    ({**SNAPSHOT, "host_segments": [{"device": -1}], "host_traces": []}, "key 'address' of host_segments[0] is missing"),
    (having("size", 10**5000, *BLOCK), "invalid segments[0]['blocks'][1]['size'] of type 'int': expected an integer from 0"),
    (having("line", -(10**5000), *BLOCK, "frames", 0), "['frames'][0]['line'] of type 'int': expected an integer from 0"),
    (having("segment_pool_id", (10**5000, 0), "segments", 0), "invalid segments[0]['segment_pool_id'] of type 'int'"),
    (GOOD[:2] + b"]}\x8c\x06device" + b")" + b"\x85" * 100_000 + b"sa}\x8c\x08segments" + b"K\x01s.", "invalid 'segments' of type 'int'"),
    (GOOD[:2] + b"}\x8c\x08segments]}\x8c\x06device)" + b"\x85" * 100_000 + b"sas.", "invalid segments[0]['device'] of type 'tuple'"),
    (GOOD[:2] + b"})" + b"\x85" * 5_000_000 + b"K\x01s.", "a corrupt one (reading it ended with exit code"),  # the key's hash overflows the stack
    (GOOD[:2] + b"}r\xff\xff\xff\x7f.", "a corrupt one (it needs more memory than a snapshot of its size)"),  # entry 2^31 of the memo
    (GOOD[:2] + b"\x8e" + (1 << 40).to_bytes(8, "little"), "a corrupt one (it needs more memory"),
    (b"Fxx\n.", "a corrupt one (could not convert string to float: 'xx ')"),
    (b"L" + b"9" * 5000 + b"L\n.", "a corrupt one (Exceeds the limit"),
    (having("address", 0x11FF, *BLOCK), "invalid segments[0]['blocks'][1]['address'] 0x11ff of a block of 512 bytes: expected one from 0x1200"),
    (having("address", 0x2000, *BLOCK), "invalid segments[0]['blocks'][1]['address'] 0x2000"),
    (having("segments", 1), "invalid 'segments' of type 'int': expected 'list'"),
], ids=range(36))  # fmt: skip
def test_other_files_are_one_error_and_no_page(tmp_path, monkeypatch, capsys, content, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.pickle").write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    assert cli.main(["memory", "view", "bad.pickle"]) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and problem in error
    assert error.startswith("torch-backend memory view: bad.pickle: not a snapshot of the allocator: ") and "_dump_snapshot" in error
    assert os.listdir(tmp_path) == ["bad.pickle"]


def test_a_snapshot_that_ends_anywhere_is_an_error(tmp_path):
    path = tmp_path / "cut.pickle"
    for length in range(len(GOOD)):
        path.write_bytes(GOOD[:length])
        with path.open("rb") as file, pytest.raises(ValueError, match="truncated|empty|corrupt"):
            _snapshot.load(file)


@pytest.mark.parametrize("action", ["view", "replay"])
@pytest.mark.parametrize(("path", "problem"), [
    ("", ". cannot be read: Is a directory"), (".", ". cannot be read: Is a directory"), ("none", "none cannot be read: No such file"),
    ("x" * 300, "x cannot be read: File name too long"), ("a\0b", "embedded null byte"), ("/proc/self/mem", "/proc/self/mem: not a snapshot of the allocator: "),
    ("/dev/zero", "/dev/zero: not a snapshot of the allocator: it is no pickle"),
])  # fmt: skip
def test_a_path_that_is_no_snapshot_is_one_error_with_the_cure(tmp_path, monkeypatch, capsys, action, path, problem):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["memory", action, path]) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and problem in error and "write the file with torch.<name>.memory._dump_snapshot" in error
    assert not os.listdir(tmp_path)


def test_a_page_is_replaced_as_a_whole_or_not_at_all(snapshot, tmp_path, monkeypatch, capsys):
    file, page = tmp_path / "a.pickle", tmp_path / "page.html"
    file.write_bytes(pickle.dumps(snapshot))
    page.write_text("before")
    for arguments, problem in [([str(file), "--output", str(file)], "would replace the snapshot"), ([str(tmp_path / "none")], "No such file"),
                               ([str(file), "--output", str(tmp_path / "none/page.html")],
                                f"{tmp_path}/none/page.html cannot be written: No such file or directory; create the folder {tmp_path}/none"),
                               ([str(file), "--output", str(tmp_path)], f"{tmp_path} cannot be written: Is a directory; choose another --output"),
                               ([str(file), "--output", str(page / "x.html")], f"{page}/x.html cannot be written: Not a directory; choose")]:  # fmt: skip
        assert cli.main(["memory", "view", *arguments]) == 1
        printed = capsys.readouterr().err
        assert problem in printed and len(printed.splitlines()) == 1 and ".tmp" not in printed

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(command.os, "replace", full)
        assert cli.main(["memory", "view", str(file), "--output", str(page)]) == 1 and "No space left" in capsys.readouterr().err
    assert page.read_text() == "before" and file.read_bytes() == GOOD and sorted(os.listdir(tmp_path)) == ["a.pickle", "page.html"]
    assert cli.main(["memory", "view", str(file), "--output", str(page)]) == 0 and embedded(page.read_text())["file"] == "a.pickle"


def test_the_command_of_the_documents(snapshot, tmp_path, monkeypatch, capsys):
    text = (Path(__file__).resolve().parents[3] / "docs/memory.md").read_text()
    name, *arguments = re.search(r"<!-- test: memory view -->\n```\n(.*)\n```", text)[1].split()
    monkeypatch.chdir(tmp_path)
    Path("snapshot.pickle").write_bytes(pickle.dumps(snapshot))
    assert name == "torch-backend" and cli.main(arguments) == 0 and capsys.readouterr().out == "snapshot.html\n"
    assert f"the {_memory_summary.LARGEST} largest blocks" in text and f"The {_memory_summary.LISTED} largest" in text


def test_it_needs_no_torch(snapshot, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('no torch here')")
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(snapshot))
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    program = [sys.executable, "-P", "-m", "torch_backend", "memory", "view", "a.pickle"]
    done = subprocess.run(program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a.html\n", "") and embedded((tmp_path / "a.html").read_text())["devices"]


def test_a_recorded_snapshot_has_the_numbers_of_the_device_and_of_torchs_viewer(device, module, tmp_path):
    def allocate_here():
        return torch.empty(3 << 20, dtype=torch.uint8, device=device)

    pool = module.MemPool()
    module.memory._record_memory_history(stacks="python", clear_history=True)
    try:
        kept = allocate_here()
        with module.use_mem_pool(pool):
            small = torch.empty(100, dtype=torch.uint8, device=device)
        gone = [allocate_here(), allocate_here()]
        del gone
        module.synchronize()
        module.memory._dump_snapshot(str(tmp_path / "s.pickle"))
        allocated, reserved = module.memory_allocated(), module.memory_reserved()
    finally:
        module.memory._record_memory_history(enabled=None)
    snapshot = _snapshot.read(tmp_path / "s.pickle")
    result = _memory_summary.summary(snapshot)
    first = result["devices"][0]
    totals, line = first["totals"], first["timeline"]
    assert (totals["active"], totals["reserved"]) == (allocated, reserved)
    text = _memory_viz.segsum({**snapshot, "segments": [each for each in snapshot["segments"] if each["device"] == 0]})
    for name, key in (("segments", "segments"), ("total_reserved", "reserved"), ("total_allocated", "requested")):
        value = totals[key] if key == "segments" else _memory_viz.Bytes(totals[key])
        assert f"{name}: {value}\n" in text
    assert line["points"][-1][2:] == [totals["requested"], reserved] and line["unknown_ends"] == 0
    assert line["peak"]["bytes"] >= totals["requested"] + 2 * (3 << 20)
    [row] = [row for row in first["live"]["blocks"] if int(row["address"], 16) == kept.data_ptr()]
    assert row["size"] == 3 << 20 and result["stacks"][row["stack"]][0].endswith(":allocate_here")
    assert {f"{pool.id[0]}.{pool.id[1]}"} == {each["pool"] for each in first["segments"] if 0 <= small.data_ptr() - int(each["address"], 16) < each["size"]}


SCRIPT = """<script>
const texts = [], press = (key) => get("timeline").dispatchEvent(new KeyboardEvent("keydown", {key, cancelable: true}));
texts.push(get("readout").textContent);
for (const key of ["Home", "ArrowRight", "End", "p"]) { press(key); texts.push(get("readout").textContent); }
get("segments").firstChild.open = true;
get("when").value = "peak";
get("when").dispatchEvent(new Event("change"));
texts.push(get("blocks").tBodies[0].innerText);
get("device").value = "1";
get("device").dispatchEvent(new Event("change"));
texts.push(get("segments").innerText, String(get("chooser").hidden));
const pixels = get("timeline").getContext("2d").getImageData(0, 0, 300, 300).data;
texts.push(String(pixels.some((value) => value)));
document.body.replaceChildren();
document.body.append("RESULT" + JSON.stringify(texts) + "END");
</script>"""


@pytest.mark.slow
def test_the_page_in_a_browser(snapshot, tmp_path):
    if not shutil.which("chromium"):
        pytest.skip("needs chromium (system-packages.txt, purpose browser)")
    page = tmp_path / "page.html"
    page.write_text(command.page({"file": "a.pickle", **_memory_summary.summary(snapshot)}) + SCRIPT)
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom"]
    done = subprocess.run(["chromium", *options, page.as_uri()], capture_output=True, text=True, timeout=300)
    found = re.search(r"RESULT(\[.*\])END", done.stdout, re.S)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    peak, home, right, end, again, blocks, segments, hidden, drawn = json.loads(found[1])
    assert peak == again and peak.startswith("Event 3 of 7, 0.020 ms: 600 bytes allocated, 6.0 KiB reserved. Largest block 0x1000: 300 bytes")
    assert home.startswith("Event 0 of 7, 0.000 ms: 300 bytes") and right.startswith("Event 1 of 7") and end.startswith("Event 7 of 7")
    assert [re.findall(rf"^{size} bytes\b", blocks, re.M) != [] for size in (300, 200, 100)] == [True] * 3
    assert "pool 2.1" in segments and "512 bytes pending free" in segments and (hidden, drawn) == ("false", "true")
