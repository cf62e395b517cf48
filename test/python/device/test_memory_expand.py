"""Expandable segments and memory that the process registers: programs on the fake device, in both of its modes and with
protected memory."""

import os

import pytest
import torch

MODES = {"async": {"HAL_FAKE_ASYNC": "1"}, "inline": {"HAL_FAKE_ASYNC": "0"}, "protected": {"HAL_FAKE_PROTECT": "1"}}
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "TORCH_BACKEND": "fake"}

TRAINING = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    MiB = 1 << 20
    fake = torch.fake

    def model():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(64, 600), nn.GELU(), nn.Linear(600, 900), nn.ReLU(), nn.Linear(900, 10))

    def losses(device):
        net = model().to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        generator = torch.Generator().manual_seed(2)
        found = []
        for rows in (100, 700, 300, 900, 40, 1000, 600):  # sequences of varying lengths
            x = torch.randn(rows, 64, generator=generator).to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), torch.arange(rows, device=device) % 10)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    torch.testing.assert_close(torch.tensor(losses("fake")), torch.tensor(losses("cpu")), rtol=1e-4, atol=1e-5)
    stats = fake.memory_stats()
    segments = fake.memory_snapshot()
    assert segments and all(segment["is_expandable"] for segment in segments)
    assert sum(segment["total_size"] for segment in segments) == stats["reserved_bytes.all.current"]
    assert stats["inactive_split.all.current"] == 0 and stats["num_device_alloc"] > 0
"""

GRAPH = """
    import torch

    x = torch.zeros(2 << 20, device="fake")
    graph = torch.fake.Graph()
    with torch.fake.graph(graph):
        y = (x + 1) * 2
    other = [torch.ones(3 << 20, device="fake") for _ in range(3)]
    torch.fake.empty_cache()
    x.fill_(4)
    graph.replay()
    assert y.cpu().eq(10).all() and all(t.cpu().eq(1).all() for t in other)
    del graph, y
    torch.fake.empty_cache()
    assert all(t.cpu().eq(1).all() for t in other)
    del other, x
    torch.fake.empty_cache()
    assert torch.fake.memory_reserved() == 0, torch.fake.memory_reserved()
"""

OUT_OF_MEMORY = """
    import torch

    MiB = 1 << 20
    low, middle, high = (torch.ones(size * MiB, dtype=torch.uint8, device="fake") for size in (40, 20, 40))
    del low, high
    large = torch.full((70 * MiB,), 3, dtype=torch.uint8, device="fake")  # of 110 MiB, in two free pieces of 40
    assert middle.cpu().eq(1).all() and large.cpu().eq(3).all()
    try:
        torch.empty(60 * MiB, dtype=torch.uint8, device="fake")
    except torch.OutOfMemoryError as error:
        assert "out of memory" in str(error)
    else:
        raise AssertionError("there is no such memory")
    assert torch.fake.memory_stats()["num_alloc_retries"] == 2
    del large, middle
    torch.fake.empty_cache()
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="fake")  # more addresses than there are
    except torch.OutOfMemoryError:
        later = torch.ones(2 << 20, dtype=torch.uint8, device="fake")
    assert [segment["is_expandable"] for segment in torch.fake.memory_snapshot()] == [True]
"""

FORK = """
    import os
    import torch

    x = torch.ones(5 << 20, device="fake")
    child = os.fork()
    if child == 0:
        del x
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert x.cpu().eq(1).all()
    y = torch.zeros(20 << 20, device="fake")
    assert y.cpu().eq(0).all() and x.cpu().eq(1).all()
"""


PROGRAMS = {"training": (TRAINING, {}), "graph": (GRAPH, {}), "out-of-memory": (OUT_OF_MEMORY, {"HAL_FAKE_MEMORY": "110m"}), "fork": (FORK, {})}
CASES = [pytest.param(program, mode, marks=[pytest.mark.slow] * (mode != "async"), id=f"{program}-{mode}") for program in PROGRAMS for mode in MODES]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_programs_with_expandable_segments(run_python, name, mode):
    program, settings = PROGRAMS[name]
    run_python(program, **EXPANDABLE, **MODES[mode], **settings)


def test_lazy_mode_and_layers_with_expandable_segments(run_python):
    run_python("""
        import torch, torch_backend
        from torch_backend import lazy

        x = torch.arange(3 << 20, device="fake", dtype=torch.float32)
        with lazy.record():
            y = (x * 2 + 1).sum()
        assert y.cpu() == (torch.arange(3 << 20, dtype=torch.float32) * 2 + 1).sum()
    """, **EXPANDABLE, HAL_LAYERS="validate")  # fmt: skip


@pytest.mark.slow
def test_tensors_for_other_processes_are_copied_with_one_warning(run_python):
    done = run_python("""
        import warnings
        import torch, torch.multiprocessing as mp

        def child(queue, back):
            back.put(queue.get().sum().item())

        if __name__ == "__main__":
            x = torch.ones(1000, device="fake")
            context = mp.get_context("spawn")
            queue, back = context.Queue(), context.Queue()
            process = context.Process(target=child, args=(queue, back))
            process.start()
            with warnings.catch_warnings(record=True) as notes:
                warnings.simplefilter("always")
                queue.put(x)
                print(back.get(timeout=100))
            process.join()
            print(sum("expandable segments" in str(note.message) for note in notes))
    """, **EXPANDABLE)  # fmt: skip
    assert done.stdout.split() == ["1000.0", "1"], done.stdout


def test_without_virtual_memory_there_is_one_warning(run_python):
    done = run_python("""
        import torch, torch_backend
        device = torch_backend.device_name()
        x = torch.ones(1000, device=device)
        print(torch.get_device_module(device).memory_snapshot()[0]["is_expandable"], x.sum().item())
    """, **EXPANDABLE, HAL_FAKE_DEVICES="2", HAL_FAKE_SANITIZE="memory")  # fmt: skip
    assert done.stdout.split() == ["False", "1000.0"]
    assert done.stderr.count("expandable_segments:True is ignored") == 1, done.stderr


@pytest.mark.parametrize("slot", [pytest.param("virtual_reserve", marks=pytest.mark.slow), pytest.param("virtual_create", marks=pytest.mark.slow),
                                  "virtual_map", pytest.param("virtual_unmap", marks=pytest.mark.slow)])  # fmt: skip
def test_a_failure_of_a_plugin_function_is_one_error(run_python, slot):
    done = run_python("""
        import torch

        errors = []
        for step in range(4):
            try:
                x = torch.ones(4 << 20, device="fake")
                assert x.cpu().eq(1).all()
            except RuntimeError as error:
                errors.append(str(error))
            x = None
            try:
                torch.fake.empty_cache()
                torch.fake.synchronize()
            except RuntimeError as error:
                errors.append(str(error))
        print(len(errors), *errors)
        torch.fake.empty_cache()
        assert torch.fake.memory_reserved() == sum(segment["total_size"] for segment in torch.fake.memory_snapshot())
    """, **EXPANDABLE, HAL_LAYERS="fault", HAL_FAULT=f"{slot}:1:INTERNAL")  # fmt: skip
    count = done.stdout.split()[0]
    if slot == "virtual_reserve":  # the device uses ordinary segments then
        assert count == "0" and done.stderr.count("expandable_segments:True is ignored") == 1
    else:
        assert count == "1" and slot in done.stdout, done.stdout


# ---- memory of the process, peers ----


def test_registered_memory_is_pinned_until_it_is_unregistered(device, module):
    x = torch.arange(300_000, dtype=torch.float32)
    assert not x.is_pinned()
    module.memory.host_register(x)
    assert x.is_pinned() and x[1000:].is_pinned()
    y = torch.empty(300_000, device=device)
    y.copy_(x, non_blocking=True)
    back = torch.zeros(300_000)
    module.memory.host_register(back.data_ptr(), back.nbytes)
    back.copy_(y, non_blocking=True)
    module.synchronize()
    assert torch.equal(back, x)
    with pytest.raises(RuntimeError, match="page-locked already"):
        module.memory.host_register(x)
    module.memory.host_unregister(x)
    module.memory.host_unregister(back.data_ptr())
    assert not x.is_pinned() and not back.is_pinned()
    with pytest.raises(RuntimeError, match="host_register"):
        module.memory.host_unregister(x)


def test_bad_ranges_are_refused(device, module):
    with pytest.raises(ValueError, match="on the CPU"):
        module.memory.host_register(torch.ones(3, device=device))
    with pytest.raises(TypeError, match="size"):
        module.memory.host_register(4096)
    with pytest.raises(RuntimeError, match="invalid range"):
        module.memory.host_register(4096, 0)


def test_access_of_peers(device, module):
    assert module.can_device_access_peer(0, 1)
    module.enable_peer_access(0, 1)
    module.enable_peer_access(0, 1)
    with pytest.raises(RuntimeError, match="out of range"):
        module.enable_peer_access(0, 7)


assert os.environ.get("PYTORCH_ALLOC_CONF") is None, "the tests choose the setting"
