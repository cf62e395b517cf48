"""plugins/threads, the example with asynchronous streams: it follows the contract of plugin_ops.def under the validate
layer, and PyTorch trains on it with the CPU's numbers."""

import pytest
from test_coverage import THREADS


@pytest.fixture
def run(run_python, build_plugin):
    def run(script, **settings):
        return run_python(script, TORCH_BACKEND=build_plugin("threads", *THREADS), HAL_ALLOW_UNSAFE_PLUGINS="1", **settings)

    return run


def test_it_stays_readable():
    assert sum(len(path.read_text().splitlines()) for path in THREADS) < 650


def test_a_network_trains_as_on_the_cpu_and_the_validate_layer_has_no_remark(run):
    done = run(
        """
        import torch
        def train(place):
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).to(place)
            data, labels = torch.randn(12, 8).to(place), (torch.arange(12) % 3).to(place)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            losses = []
            for _ in range(8):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(data), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses
        torch.testing.assert_close(train("threads:1"), train("cpu"), rtol=1e-5, atol=1e-6)
        """,
        HAL_LAYERS="validate",
    )
    assert "validate: " not in done.stderr


def test_streams_run_asynchronously_and_events_order_them(run):
    done = run(
        """
        import torch, torch_backend
        n = 1 << 22
        a, b = torch.ones(n, device="threads"), torch.ones(n, device="threads")
        torch.threads.synchronize()
        start, end = (torch.threads.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(20):
            a = a + b
        end.record()
        assert not end.query()  # the host came here first
        side = torch.threads.Stream()
        side.wait_event(end)
        with torch.threads.stream(side):
            c = a + b
            a.record_stream(side)
        del a
        side.synchronize()
        assert end.query() and start.elapsed_time(end) > 0
        assert c.cpu().unique().tolist() == [22]
        x = torch.arange(6, dtype=torch.float32).to("threads:1")
        assert (x.to("threads:0") + 1).sum().item() == 21
        assert {row.op: row.plugin for row in torch_backend.ops.report()}["add.Tensor"] >= 21
        """,
        HAL_LAYERS="validate",
    )
    assert "validate: " not in done.stderr


def test_the_host_may_not_access_its_memory(run):
    done = run(
        """
        import ctypes, torch
        ctypes.string_at(torch.ones(3, device="threads").data_ptr(), 4)
        """,
        check=False,
    )
    assert done.returncode == -11


def test_a_failure_of_queued_work_is_reported_at_the_next_synchronization(run):
    run(
        """
        import ctypes, torch
        from torch_backend import _hal
        torch.ones(3, device="threads")
        hal, host = _hal.library(), (ctypes.c_char * 16)()
        copy = hal.hal_memory_copy
        copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t]
        assert copy(None, 4096, 0, host, -1, 16) == 0  # an unknown address: queued, and fails when it runs
        try:
            torch.threads.synchronize()
        except RuntimeError as error:
            assert "memory_copy" in str(error), error
        else:
            raise SystemExit("no failure")
        torch.threads.synchronize()
        assert (torch.ones(3, device="threads") + 1).sum().item() == 6
        """
    )
