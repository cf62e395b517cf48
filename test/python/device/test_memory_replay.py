"""`torch-backend memory replay`: steps of a trace, the simulation of PyTorch's policy, and the allocator itself."""

import json
import pickle

import pytest
from torch_backend.cli import _replay, main
from torch_backend.cli._caching_policy import MIB, TorchPolicy

OWN, EXPANDABLE = _replay.POLICIES[1:]


def event(action, addr, size, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "pool_id": (0, 0), **more}


def test_the_simulation_has_the_sizes_of_pytorchs_documentation():
    policy = TorchPolicy()
    sizes = []
    for key, size in enumerate((1, 512, MIB, MIB + 1, 9 * MIB, 10 * MIB, 11 * MIB + 1)):
        before = policy.reserved
        policy.allocate(key, size, 0, None)
        sizes.append((policy.reserved - before) // MIB)
    # 2 MiB for the first three; 20 MiB for the next two; then segments of their own, rounded to 2 MiB
    assert sizes == [2, 0, 0, 20, 0, 10, 12]


def test_the_simulation_joins_free_neighbors_and_takes_the_best_fit():
    policy = TorchPolicy()
    for key in range(4):
        policy.allocate(key, 5 * MIB, 0, None)  # one segment of 20 MiB
    policy.free(1)
    policy.free(2)
    policy.allocate("joined", 9 * MIB + 512, 0, None)
    assert policy.reserved == 20 * MIB
    policy.free(3)
    policy.allocate("other stream", 2 * MIB, 1, None)
    assert policy.reserved == 40 * MIB, "a block belongs to its stream"
    policy.allocate("best", 5 * MIB, 0, None)
    assert policy.reserved == 40 * MIB
    for key in (0, "joined", "best"):
        policy.free(key)
    policy.empty_cache()
    assert policy.reserved == 20 * MIB
    policy.allocate("private", 100, 0, 7)
    policy.free("private")
    policy.empty_cache()
    assert policy.reserved == 22 * MIB, "a private pool keeps its segments"


def test_blocks_from_before_the_trace_are_allocated_first():
    trace = [event("free_completed", 100, 50), event("alloc", 200, 60), event("alloc", 300, 0), event("segment_free", 1, 9),
             event("segment_free", 2, 9), event("alloc", 200, 70), event("free_requested", 200, 70)]  # fmt: skip
    segments = [{"device": 0, "address": 400, "total_size": 512, "stream": 3,
                 "blocks": [{"address": 400, "size": 512, "requested_size": 80, "state": "active_allocated"}]}]  # fmt: skip
    steps = _replay.operations(trace, segments)
    kinds = [(step.kind, step.size, step.stream) for step in steps]
    assert kinds == [("allocate", 50, 0), ("allocate", 80, 3), ("free", 0, 0), ("allocate", 60, 0), ("empty", 0, 0), ("free", 0, 0),
                     ("allocate", 70, 0)], kinds  # fmt: skip
    assert _replay.requested(steps) == 150


def test_streams_pools_and_the_cache_are_replayed():
    steps = [_replay.Operation("allocate", 1, 3 * MIB, 5), _replay.Operation("allocate", 2, 3 * MIB, 6), _replay.Operation("allocate", 3, 100, 5, 0),
             _replay.Operation("free", 1), _replay.Operation("free", 2), _replay.Operation("free", 3), _replay.Operation("empty"),
             _replay.Operation("allocate", 4, 30 * MIB, 5)]  # fmt: skip
    results = _replay.replay(steps)
    assert [result.peak // MIB for result in results.values()] == [42, 42, 32]


def test_a_recorded_program_has_the_peak_of_its_run(run_python, tmp_path, capsys):
    """The device's own counter is the reference."""
    file = tmp_path / "snapshot.pickle"
    done = run_python(f"""
        import torch
        from torch import nn

        torch.fake.memory._record_memory_history(context=None)
        model = nn.Sequential(nn.Linear(40, 700), nn.ReLU(), nn.Linear(700, 500), nn.Linear(500, 3)).to("fake")
        optimizer = torch.optim.Adam(model.parameters())
        side = torch.fake.Stream()
        for rows in (100, 900, 300, 1500, 20):
            optimizer.zero_grad()
            model(torch.randn(rows, 40).to("fake")).square().sum().backward()
            optimizer.step()
            with torch.fake.stream(side):
                torch.ones(rows * 1000, device="fake")
        torch.fake.synchronize()
        torch.fake.memory._dump_snapshot({str(file)!r})
        print(torch.fake.max_memory_reserved())
    """, TORCH_BACKEND="fake", HAL_FAKE_ASYNC="0")  # fmt: skip
    assert main(["memory", "replay", "--json", str(file)]) == 0
    result = json.loads(capsys.readouterr().out)["0"]["results"]
    assert result[OWN]["peak"] == int(done.stdout)
    assert result[EXPANDABLE]["peak"] <= result[OWN]["peak"] <= result[_replay.POLICIES[0]]["peak"] * 1.01
    assert main(["memory", "replay", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[2:]] == list(_replay.POLICIES)


@pytest.mark.parametrize(("content", "part"), [
    (b"", "the file is empty"),
    (b"\x80\x04nonsense", "not a snapshot"),
    (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "size": -1, "addr": 1}]]}), "invalid device_traces[0][0]['size'] -1"),
    (pickle.dumps({"segments": [], "device_traces": [[event("alloc", 1, 100, stream="x")]]}), "trace.pickle: not a trace of the allocator: invalid 'stream' 'x'"),
    (pickle.dumps({"segments": [], "device_traces": [[], [event("alloc", 1, 100, stream=10**5000)]]}),
     "invalid 'stream' of type 'int' or 'pool_id' (0, 0): expected an integer, and a tuple of integers, in event 0 of device 1; write the file with"),
    (pickle.dumps({"segments": [], "device_traces": [[event("alloc", 1, 100, pool_id=(1 << 64,))]]}), "'pool_id' (18446744073709551616,)"),
    (pickle.dumps({"segments": [], "device_traces": [[]]}), "no allocations were recorded"),
], ids=["empty", "no-pickle", "size", "stream", "long-stream", "pool", "no-events"])  # fmt: skip
def test_a_corrupt_trace_is_one_error(tmp_path, capsys, content, part):
    file = tmp_path / "trace.pickle"
    file.write_bytes(content)
    assert main(["memory", "replay", str(file)]) == 1
    output = capsys.readouterr()
    assert part in output.err and len(output.err.splitlines()) == 1 and not output.out


def test_a_missing_file_is_one_error(tmp_path, capsys):
    assert main(["memory", "replay", str(tmp_path / "none.pickle")]) == 1
    assert "none.pickle" in capsys.readouterr().err
