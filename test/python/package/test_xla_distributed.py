"""torch_backend.xla.distributed: loaders, threads and processes that train together produce the CPU's numbers, and
their failures are reported."""

import textwrap

import pytest

PROLOGUE = """
import threading
import torch
from torch import nn
import torch_backend.xla.core.xla_model as xm
import torch_backend.xla.distributed.data_parallel as dp
import torch_backend.xla.distributed.parallel_loader as pl
import torch_backend.xla.distributed.xla_multiprocessing as xmp
import torch_backend.xla.utils.utils as xu

def raises(kind, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert text in str(error), f"{error!r} does not contain {text!r}"
    else:
        raise SystemExit(f"{text}: it was accepted")
"""


@pytest.fixture
def run(run_python):
    def run(script, **settings):
        return run_python(PROLOGUE + textwrap.dedent(script), **{"TORCH_BACKEND": "fake", "HAL_FAKE_DEVICES": 2, **settings})

    return run


def test_samples_go_round_the_devices_in_order_and_an_open_round_is_dropped(run):
    run("""
        loader = pl.ParallelLoader([torch.full((2,), float(i)) for i in range(7)], ["lazy:0", "lazy:1"])
        first, second = loader.per_device_loader("lazy:0"), loader.per_device_loader("lazy:1")
        assert len(first) == 3 and loader.per_device_samples() == 3
        ones = [(str(x.device), x.cpu()[0].item()) for x in first]
        others = [(str(x.device), x.cpu()[0].item()) for x in second]
        assert ones == [("lazy:0", 0), ("lazy:0", 2), ("lazy:0", 4)] and others == [("lazy:1", 1), ("lazy:1", 3), ("lazy:1", 5)]
        assert next(first, None) is None
        loader.close()
        raises(ValueError, "is not among", loader.per_device_loader, "lazy:5")
        raises(ValueError, "at least one device", pl.ParallelLoader, [], [])
        raises(ValueError, "at least 1", pl.ParallelLoader, [], ["lazy:0"], batches_per_execution=0)
    """)


def test_nested_samples_and_wrappers_are_copied_and_the_rest_is_left(run):
    run("""
        class Wrapped(xu.DataWrapper):
            def __init__(self, x): self.x = x
            def get_tensors(self): return [self.x]
            def from_tensors(self, tensors): return Wrapped(tensors[0])

        sample = {"a": [torch.ones(2), "text"], "b": Wrapped(torch.zeros(1)), "c": 5}
        (got,) = pl.MpDeviceLoader([sample], "lazy:1")
        assert str(got["a"][0].device) == "lazy:1" and got["a"][1] == "text" and str(got["b"].x.device) == "lazy:1" and got["c"] == 5
        assert sample["a"][0].device.type == "cpu"
    """)


def test_small_batches_are_dropped_when_sizes_are_fixed(run):
    run("""
        loader = pl.MpDeviceLoader([torch.ones(4, 2), torch.ones(4, 2), torch.ones(3, 2)], "lazy:0", fixed_batch_size=True)
        assert [x.shape[0] for x in loader] == [4, 4] and len(loader) == 3
        assert [x.shape[0] for x in pl.MpDeviceLoader([torch.ones(4), torch.ones(3)], "lazy:0")] == [4, 3]
    """)


def test_each_sample_marks_a_step_or_every_few_do(run):
    run("""
        from torch_backend import lazy
        for count, expected in ((1, 7), (3, 3)):
            before = lazy.metrics()["steps"]
            assert sum(1 for _ in pl.MpDeviceLoader([torch.ones(1)] * 6, "lazy:0", batches_per_execution=count)) == 6
            assert lazy.metrics()["steps"] - before in (expected, expected + 1), (count, lazy.metrics()["steps"] - before)
    """)


def test_an_exception_of_the_loader_reaches_who_reads_and_threads_end(run):
    run("""
        def broken():
            yield torch.ones(1)
            raise KeyError("sample 1")

        class Broken:
            def __iter__(self): return broken()
            def __len__(self): return 2

        seen = []
        def read():
            for x in pl.MpDeviceLoader(Broken(), "lazy:0"):
                seen.append(x)
        raises(KeyError, "sample 1", read)
        assert len(seen) == 1
        for epoch in range(5):   # left in the middle
            for x in pl.MpDeviceLoader(xu.SampleGenerator(torch.ones(1000), 100), "lazy:0"):
                break
        assert threading.active_count() == 1, threading.enumerate()
    """)


TRAIN = """
def batches(count):
    torch.manual_seed(3)
    return [(torch.randn(4, 6), torch.randn(4, 2)) for _ in range(count)]

def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))

def cpu_weights(count):   # two batches a step, the mean of their gradients
    model, data = network(), batches(count)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for i in range(0, count - 1, 2):
        optimizer.zero_grad()
        sum(nn.functional.mse_loss(model(x), y) / 2 for x, y in data[i : i + 2]).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]
"""


def test_threads_train_copies_in_step_and_agree_with_the_cpu(run):
    run(TRAIN + textwrap.dedent("""
        def loop(model, loader, device, context):
            optimizer = context.getattr_or("optimizer", lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
            for number, (x, y) in loader:
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                xm.optimizer_step(optimizer)
            return str(device), xm.get_ordinal(), xm.xrt_world_size(), number, xm.rendezvous("end", str(xm.get_ordinal()).encode())

        parallel = dp.DataParallel(network())
        results = parallel(loop, batches(9))
        assert results == [("lazy:0", 0, 2, 3, [b"0", b"1"]), ("lazy:1", 1, 2, 3, [b"0", b"1"])], results
        assert parallel.devices == ["lazy:0", "lazy:1"]
        for model in parallel.models:
            for one, expected in zip(model.parameters(), cpu_weights(9)):
                torch.testing.assert_close(one.cpu(), expected, rtol=1e-4, atol=1e-5)
        for one, other in zip(*(model.parameters() for model in parallel.models)):
            assert torch.equal(one.cpu(), other.cpu())   # the same bits
        assert xm.xrt_world_size() == 1
        (cpu,) = dp.DataParallel(network(), device_ids=[])(lambda model, loader, device, context: (device.type, len(list(loader))), [1, 2, 3])
        assert cpu == ("cpu", 3)
    """))


def test_a_thread_that_fails_lets_the_others_go(run):
    run("""
        def loop(model, loader, device, context):
            for number, x in loader:
                if number == 1 and xm.get_ordinal() == 1:
                    raise LookupError("replica 1")
                xm.all_reduce(xm.REDUCE_SUM, [x])
        raises(LookupError, "replica 1", dp.DataParallel(nn.Linear(1, 1)), loop, [torch.ones(1)] * 10)
        assert threading.active_count() == 1
    """)
    done = run("""
        def loop(model, loader, device, context):
            raise LookupError("replica")
        dp.DataParallel(nn.Linear(1, 1))(loop, [torch.ones(1)] * 10)
    """, XLA_PARALLEL_EXIT=1, check=False)
    assert done.returncode == 17 and "LookupError" in done.stderr


def test_threads_exchange_values_of_all_kinds(run):
    run("""
        def loop(model, loader, device, context):
            me = xm.get_ordinal()
            x = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device) * (me + 1)
            assert xm.all_reduce(xm.REDUCE_SUM, x).cpu().tolist() == [3, 6, 9, 12] and xm.all_reduce("mul", x).cpu().tolist() == [2, 8, 18, 32]
            assert xm.all_reduce("min", x, scale=2.0).cpu().tolist() == [2, 4, 6, 8] and xm.all_reduce("max", x).cpu().tolist() == [2, 4, 6, 8]
            assert xm.all_reduce("and", x > 2).cpu().tolist() == [False, False, True, True] and xm.all_reduce("or", x > 2).cpu().tolist() == [False, True, True, True]
            assert xm.all_gather(x[:1]).cpu().tolist() == [1, 2] and xm.all_gather(x[None], dim=1).shape == (1, 8)
            assert xm.all_to_all(x, 0, 0, 2).cpu().tolist() == ([1, 2, 2, 4] if me == 0 else [3, 4, 6, 8])
            assert xm.reduce_scatter("sum", x, 1.0, 0, 2).cpu().tolist() == ([3, 6] if me == 0 else [9, 12])
            assert xm.collective_permute(x, [(0, 1), (1, 0)]).cpu()[0] == 2 - me
            xm.collective_broadcast([x], root_ordinal=1)
            assert x.cpu().tolist() == [2, 4, 6, 8]
            assert xm.all_reduce("sum", x, groups=[[0], [1]]).cpu().tolist() == [2, 4, 6, 8]
            assert xm.mesh_reduce("sum", me + 1, sum) == 3 and xm.do_on_ordinals(lambda: "here", ordinals=(1,)) == ("here" if me else None)
            raises(RuntimeError, "this replica is at", xm.rendezvous, f"tag {me}")
            return True
        assert dp.DataParallel(nn.Linear(1, 1))(loop, []) == [True, True]
    """)


def test_threads_of_a_program_become_replicas_and_stop_being_any(run):
    """Also if one fails before the other begins, or takes fewer steps."""
    run("""
        devices, results = xm.get_xla_supported_devices(), {}

        def sum_of_ones():
            return xm.all_reduce("sum", torch.tensor([1.0], device=xm.xla_device())).item()

        def work(device, steps):
            try:
                xm.set_replication(device, devices)
                assert xm.xrt_world_size() == 2 and xm.xla_device() == torch.device(device)
                results[device] = [sum_of_ones() for _ in range(steps)]
                if steps == 0:
                    raise LookupError
            except (LookupError, RuntimeError) as error:
                results[device] = type(error)
            finally:
                if steps != 1:  # the end of the thread will do
                    xm.set_replication(device, [])
                    assert xm.xrt_world_size() == 1

        for steps in [(2, 2), (1, 0), (0, 1), (2, 1), (1, 2), (3, 3)] * 5:
            threads = [threading.Thread(target=work, args=pair) for pair in zip(devices, steps)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            expected = [LookupError if mine == 0 else RuntimeError if mine > other else [2.0] * mine for mine, other in (steps, steps[::-1])]
            assert results == dict(zip(devices, expected)), (steps, results)
        for first, second in (devices, devices[::-1]):  # one after the other: the later one observes that the other has left
            for device, steps in ((first, 0), (second, 1)):
                thread = threading.Thread(target=work, args=(device, steps))
                thread.start()
                thread.join()
            assert results == {first: LookupError, second: RuntimeError}
        raises(ValueError, "is not among", xm.set_replication, "lazy:7", devices)
    """)


def test_processes_train_together_and_agree_with_the_cpu(run):
    run(TRAIN + textwrap.dedent("""
        def work(index, text, path):
            assert xm.xrt_world_size() == 2 and xm.get_ordinal() == index and xm.xla_device() == torch.device("lazy", index) and text == "given"
            model = network().to(xm.xla_device())
            if index == 1:
                with torch.no_grad():
                    for p in model.parameters(): p.zero_()
            xm.broadcast_master_param(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            for x, y in pl.MpDeviceLoader(batches(8)[index::2], xm.xla_device()):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                xm.optimizer_step(optimizer)
            for one, expected in zip(model.parameters(), cpu_weights(8)):
                torch.testing.assert_close(one.cpu(), expected, rtol=1e-4, atol=1e-5)
            assert xm.mesh_reduce("sum", index + 1, sum) == 3 and xm.rendezvous("end", bytes([index])) == [b"\\0", b"\\1"]
            assert xm.all_gather(torch.tensor([index], device="lazy")).cpu().tolist() == [0, 1]
            assert xm.all_reduce("sum", torch.tensor([1.0], device="lazy"), groups=[[0], [1]]).item() == 1
            assert xm.all_reduce("or", torch.tensor([index == 0], device="lazy")).item() is True
            xm.save(model.state_dict(), path)
            if index == 0:
                assert all(p.device.type == "cpu" for p in torch.load(path).values())

        if __name__ == "__main__":
            import tempfile, os
            with tempfile.TemporaryDirectory() as folder:
                xmp.spawn(work, args=("given", os.path.join(folder, "weights.pt")))
            assert "TORCH_BACKEND" in os.environ and "MASTER_PORT" not in os.environ
    """))


def test_spawn_in_one_process_other_numbers_and_failures(run):
    run("""
        def fails(index):
            if index == 1:
                raise LookupError("process 1")

        called = []
        def here(index, value):
            called.append((index, value))

        if __name__ == "__main__":
            assert xmp.spawn(here, args=(4,), nprocs=1) is None and called == [(0, 4)]
            raises(ValueError, "Unsupported nprocs (3)", xmp.spawn, here, (4,), nprocs=3)
            raises(torch.multiprocessing.ProcessRaisedException, "LookupError: process 1", xmp.spawn, fails)
            wrapped = xmp.MpModelWrapper(nn.Linear(2, 2))
            assert wrapped.to(xm.xla_device()).weight.device.type == "lazy" and xmp.MpSerialExecutor().run(lambda: 5) == 5
    """)


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_wrapped_models_and_serial_executors_go_to_processes_as_arguments(run, start):
    done = run("""
        def work(index, model, executor):
            assert model.to(xm.xla_device()).weight.device == torch.device("lazy", index)
            executor.run(lambda: print(f"process {index} is done", flush=True))

        if __name__ == "__main__":
            xmp.spawn(work, (xmp.MpModelWrapper(nn.Linear(2, 2)), xmp.MpSerialExecutor()), start_method=START)
    """.replace("START", repr(start)))
    assert "process 0 is done" in done.stdout and "process 1 is done" in done.stdout
