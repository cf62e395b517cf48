"""torch_backend.xla: torch_xla's functions on one device, their errors, and their reports. Each test runs in a separate
process, because the device type "lazy" cannot be unregistered."""

import pytest

PROLOGUE = """
import torch
import torch_backend
from torch import nn
import torch_backend.xla as torch_xla
import torch_backend.xla.core.xla_model as xm
import torch_backend.xla.debug.metrics as met
import torch_backend.xla.utils.serialization as xser

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
    import textwrap

    def run(script, **settings):
        return run_python(PROLOGUE + textwrap.dedent(script), **{"TORCH_BACKEND": "fake", **settings})

    return run


def test_devices_are_named_numbered_and_refused(run):
    run("""
        assert xm.get_xla_supported_devices() == ["lazy:0", "lazy:1"] and xm.get_xla_supported_devices("fake", 1) == ["lazy:0"]
        assert xm.get_xla_supported_devices("TPU") == [] and xm.xla_device() == torch.device("lazy:0")
        assert xm.xla_device(1) == torch.device("lazy:1") and torch.ones(1, device="lazy").device.index == 1
        assert xm.xla_real_devices() == ["FAKE:0", "FAKE:1"] and xm.xla_real_devices(["lazy:1", "FAKE:0", torch.device("lazy:0")]) == ["FAKE:1", "FAKE:0", "FAKE:0"]
        assert xm.xla_device_hw("lazy:1") == "FAKE" and xm.is_xla_tensor(torch.ones(1, device="lazy"))
        assert not xm.is_xla_tensor(torch.ones(1, device="fake")) and not xm.is_xla_tensor(torch.ones(1))
        raises(RuntimeError, "Invalid device format: gpu/0", xm.xla_real_devices, ["gpu/0"])
        raises(IndexError, "there are 2 devices", xm.xla_device, 2)
        raises(IndexError, "there are 2 devices", xm.xla_device, -1)
        raises(AssertionError, "No devices of TPU kind", xm.xla_device, devkind="TPU")
        assert torch_xla.device_count() == 2 and torch_xla.devices()[1] == torch.device("lazy:1") and torch_xla.real_devices() == ["FAKE:0", "FAKE:1"]
    """, HAL_FAKE_DEVICES=2)


def test_replication_devices_are_those_of_one_kind(run):
    run("""
        assert xm.xla_replication_devices(["lazy:1", "lazy:0"]) == ["FAKE:0", "FAKE:1"]
        raises(RuntimeError, "Cannot replicate if number of devices (1) is different from 2", xm.xla_replication_devices, ["lazy:0"])
        raises(RuntimeError, "Cannot replicate across different device types: devices=['lazy:0', 'TPU:1']/['FAKE:0', 'TPU:1']",
               xm.xla_replication_devices, ["lazy:0", "TPU:1"])
    """, HAL_FAKE_DEVICES=2)


def test_one_replica_is_the_master_of_one(run):
    seen = run("""
        assert xm.xrt_world_size() == 1 and xm.get_ordinal() == 0 and xm.get_local_ordinal() == 0 and xm.is_master_ordinal() and xm.is_master_ordinal(local=False)
        xm.master_print("printed", 1)
        x = torch.arange(4.0, device=xm.xla_device())
        y = xm.all_reduce(xm.REDUCE_SUM, x)
        assert y is not x and torch.equal(y.cpu(), x.cpu())
        both = [x, x + 1]
        assert xm.all_reduce(xm.REDUCE_SUM, both, scale=0.5) is both and both[0].cpu().tolist() == [0, 0.5, 1, 1.5]
        assert xm.all_gather(x).shape == (4,) and xm.rendezvous("tag", b"load") == [b"load"] and xm.mesh_reduce("tag", 5, sum) == 5
        assert xm.do_on_ordinals(lambda a: a + 1, (4,)) == 5 and xm.do_on_ordinals(lambda: 1, ordinals=(3,)) is None
        assert xm.collective_permute(x, [(0, 0)]).cpu().tolist() == x.cpu().tolist() and xm.collective_permute(x, []).cpu().sum() == 0
        raises(ValueError, "expected one of sum, mul", xm.all_reduce, "mean", x, scale=2.0)
        raises(ValueError, "not in any of the groups", xm.all_reduce, "sum", x, groups=[[3, 4]])
        raises(ValueError, "all_to_all: 2 equal parts", xm.all_to_all, x, 0, 0, 2)
    """).stdout
    assert seen == "printed 1\n"


def test_ordinals_of_the_environment_are_taken(run):
    run("""
        assert xm.xrt_world_size() == 4 and xm.get_ordinal() == 3 and not xm.is_master_ordinal(local=False)
        assert xm.xla_device() == torch.device("lazy:1") and xm.is_master_ordinal() is False
        raises(RuntimeError, "torch.distributed, which is not initialized", xm.all_reduce, "sum", torch.ones(1, device="lazy"))
    """, HAL_FAKE_DEVICES=2, XRT_SHARD_WORLD_SIZE=4, XRT_SHARD_ORDINAL=3)


def test_optimizer_steps_have_the_cpus_weights_and_warn_without_mark_step(run):
    done = run("""
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        twin = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        twin.load_state_dict(net.state_dict())
        net = net.to(xm.xla_device())
        ours, cpus = torch.optim.Adam(net.parameters()), torch.optim.Adam(twin.parameters())
        for i in range(20):
            x, y = torch.randn(5, 6), torch.randn(5, 2)
            for model, optimizer, device, step in ((net, ours, "lazy", xm.optimizer_step), (twin, cpus, "cpu", lambda o: o.step())):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
                step(optimizer)
        for one, other in zip(net.parameters(), twin.parameters()):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)
        loss = xm.optimizer_step(ours, barrier=True, optimizer_args={"closure": lambda: torch.tensor(3.0)})
        assert loss == 3.0
    """)
    assert done.stderr.count("the program does not mark steps") == 1


def test_closures_run_after_the_step_in_order_and_asynchronously(run):
    done = run("""
        import threading
        seen, event = [], threading.Event()
        x = torch.ones(2, device=xm.xla_device()) + 1
        xm.add_step_closure(lambda value: seen.append(value.sum().item()), (x,))
        xm.add_step_closure(lambda: seen.append(threading.current_thread() is threading.main_thread()))
        xm.add_step_closure(lambda: event.set(), run_async=True)
        assert seen == [] and not event.is_set()
        xm.mark_step()
        assert seen == [4.0, True] and event.wait(30)
        xm.mark_step(wait=True)
        assert len(seen) == 2
        xm.add_step_closure(lambda: 1 / 0)
        raises(ZeroDivisionError, "", xm.mark_step)
        xm.mark_step()
        xm.add_step_closure(lambda: 1 / 0, run_async=True)
        xm.mark_step()
        xm.wait_device_ops()
    """)
    assert "an asynchronous step closure failed: ZeroDivisionError" in done.stderr


def test_saving_random_numbers_and_memory(run):
    run("""
        device = xm.xla_device()
        data = {"a": [torch.ones(2, device=device)], "b": {torch.zeros(1, device=device)}, "c": 3}
        xm.save(data, "data.pt")
        back = torch.load("data.pt", weights_only=False)
        assert back["a"][0].device.type == "cpu" and next(iter(back["b"])).device.type == "cpu" and back["c"] == 3
        class Own(dict):
            pass

        state = nn.BatchNorm1d(2).to(device).state_dict()
        xm.save({"own": Own(a=torch.ones(2, device=device)), "size": torch.Size([2]), "state": state}, "own.pt")
        xser.save({"size": torch.Size([2]), "state": state}, "parts.pt")
        whole, parts = torch.load("own.pt", weights_only=False), xser.load("parts.pt")
        assert type(whole["own"]) is Own and whole["own"]["a"].device.type == "cpu"
        for back in (whole, parts):
            assert type(back["size"]) is torch.Size and back["state"]._metadata == state._metadata
            assert back["state"]["weight"].device.type == "cpu" and state["weight"].device.type == "lazy"
        xm.set_rng_state(5)
        first = torch.randn(4, device=device).cpu()
        xm.set_rng_state(5)
        assert xm.get_rng_state() == 5 and torch.equal(torch.randn(4, device=device).cpu(), first)
        with xm.fork_rng():
            inside = torch.randn(4, device=device).cpu()
        assert torch.equal(torch.randn(4, device=device).cpu(), inside)
        torch_xla.manual_seed(7)
        assert xm.get_rng_state() == 7
        torch.rand(3, device=device)
        state = xm.get_rng_state()
        after = torch.rand(4, device=device).cpu()
        xm.set_rng_state(state)
        assert torch.equal(torch.rand(4, device=device).cpu(), after), "must continue at the requested state"
        xm.set_rng_state(-1)
        assert xm.get_rng_state() == 2**64 - 1
        kept = torch.ones(1 << 20, device=device)
        xm.mark_step()
        info = xm.get_memory_info(device)
        assert info["bytes_used"] >= 4 << 20 and info["peak_bytes_used"] >= info["bytes_used"] and info["bytes_limit"] == info["kb_total"] * 1024
    """)


def test_reports_have_counters_times_and_causes(run):
    run("""
        met.clear_all()
        device = xm.xla_device()
        x = torch.ones(1000).to(device)
        for step in range(4):
            y = (x * 2 + step).tanh()
            xm.mark_step()
        assert y.cpu().shape == (1000,)
        assert met.counter_value("MarkStep") == 4 and met.counter_value("UncachedCompile") == 1 and met.counter_value("CachedCompile") == 3
        assert met.counter_value("NeededSyncs") is None or met.counter_value("NeededSyncs") == 1
        assert met.counter_value("unknown") is None and {"MarkStep", "UncachedCompile"} <= set(met.counter_names())
        samples, total, percentiles = met.metric_data("OutboundData")
        assert samples == 1 and total == 4000 and percentiles[0] == (1, 4000)
        assert met.metric_data("InboundData")[:2] == (1, 4000) and met.metric_data("CompileTime")[0] == 1 and met.metric_data("unknown") is None
        assert met.metric_data("ExecuteTime")[0] == 4 and met.metric_data("ExecuteTime")[1] > 0
        report = met.metrics_report()
        assert "Metric: CompileTime\\n  TotalSamples: 1\\n  Accumulator: " in report and "Counter: MarkStep\\n  Value: 4\\n" in report
        assert "Compilation: step " in report and "Percentiles: 1%=" in report
        assert "OutboundData" not in met.short_metrics_report() and "Counter: MarkStep" in met.short_metrics_report(metric_names=[])
        z = y + 1
        met.clear_all()
        assert met.metric_data("OutboundData") is None and met.counter_names() == [] and met.metric_names() == []
        counts = torch_backend.lazy.metrics()
        assert counts.pop("pending") >= 1 and set(counts.values()) == {0}
        xm.mark_step()
        torch_backend.lazy.device.stop()
        assert met.counter_value("MarkStep") == 1 and met.counter_value("SyncedOps") == 1 and min(torch_backend.lazy.metrics().values()) == 0
    """)


def test_counters_of_tensors_and_operators_count_them(run):
    run("""
        device = xm.xla_device()
        kept = torch.ones(10).to(device)
        xm.mark_step()
        met.clear_all()
        for step in range(5):
            y = kept * 2 + step
            z = (y + 1).exp()
            y.add_(z)
            xm.mark_step()
        assert {name: met.counter_value(name) for name in met.counter_names() if name.startswith("lazy::")} == {"lazy::mul": 5, "lazy::add": 15, "lazy::exp": 5}
        assert met.counter_value("RecordedOps") == 25 == sum(torch_backend.lazy.operators().values())
        assert met.counter_value("SyncedTensorsWithIR") == 10, "y and z of each step"
        assert met.counter_value("CreateLtcTensor") - met.counter_value("DestroyLtcTensor") == 2, "y and z"
        assert met.counter_value("CreateLtcTensor") >= 20 and met.counter_value("DeviceDataCacheMiss") is None
        kept.copy_(torch.zeros(10))
        xm.mark_step()
        assert met.counter_value("DeviceDataCacheMiss") == 1
        del y, z
        assert met.counter_value("CreateLtcTensor") == met.counter_value("DestroyLtcTensor")
        report = met.metrics_report()
        assert "Counter: CreateLtcTensor\\n" in report and "Counter: lazy::exp\\n  Value: 5\\n" in report
        met.clear_all()
        assert not [name for name in met.counter_names() if name.startswith("lazy::")] and torch_backend.lazy.operators() == {}
    """)


def test_the_analysis_finds_compilations_readings_and_fallbacks(run):
    done = run("""
        import torch_backend.lazy
        device = xm.xla_device()
        assert met.analysis() == []
        for step in range(1, 13):
            x = torch.ones(step, 3, device=device)
            for _ in range(step):   # a group of another length in each step
                x = (x + 1).sin()
            xm.mark_step()
            x.sum().item()
        torch.linalg.eigvals(torch.eye(3, device=device))
        lines = met.analysis()
        assert all(line.startswith("pt-xla-profiler: ") for line in lines)
        text = "\\n".join(lines)
        assert "CompileTime too frequent: " in text and " counts during 12 steps" in text and "TransferFromDeviceTime too frequent: " in text
        assert "compiled in step 12 at " in text and "script.py:" in text
    """, PT_XLA_DEBUG=1, LTC_IR_DEBUG=1)
    assert "pt-xla-profiler: CompileTime too frequent" in done.stderr


_BLOCKS = """
    x = torch.ones(8, device=xm.xla_device())
    for step in range(3):
        y = (x * 2).sin()
        xm.mark_step()
    (x + 1).exp().cpu()
"""


def test_causes_of_compilations_are_reported_after_each_step(run):
    seen = run(_BLOCKS, PT_XLA_DEBUG_LEVEL=1).stderr
    lines = [line.removeprefix("Compilation Analysis: ") for line in seen.splitlines() if line.startswith("Compilation Analysis: ")]
    causes = [line for line in lines if line.startswith("  step ")]
    assert len(causes) == 3 and all(cause.startswith(f"  step {step} at ") and "script.py:" in cause for step, cause in enumerate(causes, 1)), seen
    assert lines.count("Compilation Cause") == 3 and lines[0] == "=" * 80 and lines[-1] == "-" * 80 and "Execution" not in seen


def test_causes_of_executions_are_reported_with_the_line_that_reads(run):
    seen = run(_BLOCKS, PT_XLA_DEBUG_LEVEL=2).stderr
    causes = [line for line in seen.splitlines() if line.startswith("Execution Analysis:   step ")]
    assert [cause.split(": ", 2)[2] for cause in causes[:-1]] == ["mark_step"] * 3, seen
    assert causes[-1].startswith("Execution Analysis:   step 3: a copy to the host at ") and "script.py:" in causes[-1], seen
    assert "Compilation Analysis: Compilation Cause" in seen


def test_steps_are_not_reported_by_default(run):
    assert "Analysis" not in run(_BLOCKS).stderr
    done = run(_BLOCKS, PT_XLA_DEBUG_LEVEL="much", check=False)
    assert done.returncode and "PT_XLA_DEBUG_LEVEL=much: expected 0, 1 or 2" in done.stderr


def test_each_step_is_saved_if_the_environment_selects_it(run, tmp_path):
    run("""
        x = torch.ones(3, device=xm.xla_device()) * 2
        xm.mark_step()
        xm.mark_step()
    """, XLA_METRICS_FILE=tmp_path / "metrics")
    text = (tmp_path / "metrics.0").read_text()
    assert text.startswith("[MetricsData; step=0]\n") and "[MetricsData; step=1]\n" in text and "Counter: MarkStep" in text


def test_what_is_queued_is_written_as_text_and_as_a_graph(run, tmp_path):
    script = """
        x = torch.ones(3, device=xm.xla_device())
        y = (x * 2).sin()
        print(torch_xla.lazy.text())
        y.cpu()
        xm.mark_step()
    """
    seen = run(script, LTC_SAVE_TENSORS_FILE=tmp_path / "text", LTC_IR_DEBUG=1).stdout
    text = (tmp_path / "text").read_text()
    for one in (seen, text):
        assert "stream 0 of device fake:0: deferred work: " in one and "sin" in one and "script.py:" in one and "mul.Tensor(float32[3], 2)" in one, one
    assert text.startswith("## queued since: a copy to the host at ") and "script.py:" in text.split("\n")[0]
    run(script, LTC_SAVE_TENSORS_FILE=tmp_path / "dot", LTC_SAVE_TENSORS_FMT="dot")
    assert "digraph program {" in (tmp_path / "dot").read_text()
    done = run("", LTC_SAVE_TENSORS_FMT="pdf", check=False)
    assert done.returncode == 1 and "LTC_SAVE_TENSORS_FMT=pdf: expected text, dot or backend" in done.stderr


def test_compiled_functions_are_steps_that_refuse_what_breaks_them(run):
    run("""
        device = xm.xla_device()
        x = torch.ones(8, device=device)
        assert torch.equal(torch_xla.compile(lambda v: (v * 2).exp())(x).cpu(), (torch.ones(8) * 2).exp())

        @torch_xla.compile(full_graph=True, name="reader")
        def reads(v):
            return v * v.sum().item()

        raises(RuntimeError, "reader: full_graph=True, but results were needed 1 times inside", reads, x)

        @torch_xla.compile(max_different_graphs=1)
        def grows(v, count):
            for _ in range(count):
                v = (v + 1).cos()
            return v

        grows(x, 1)
        grows(x, 1)
        raises(RuntimeError, "grows: 2 calls compiled something, 1 are allowed", grows, x, 2)
        with torch_xla.step():
            y = x + 1
        assert y.cpu().sum() == 16
        torch_xla.sync(wait=True)
    """)


def test_the_package_is_torch_xla_only_on_request_and_never_over_another_one(run, tmp_path):
    run("""
        import importlib.util
        assert importlib.util.find_spec("torch_xla") is None
        torch_xla.install_as("torch_xla")
        torch_xla.install_as("torch_xla")
        import torch_xla as named
        import torch_xla.core.xla_model
        from torch_xla.distributed.parallel_loader import MpDeviceLoader
        from torch_xla.utils.utils import SampleGenerator
        import torch_xla.distributed.xla_multiprocessing as xmp
        assert named is torch_xla and torch_xla.core.xla_model is xm
        import json
        raises(RuntimeError, "install_as('json'): another package has that name", torch_xla.install_as, "json")
    """)


def test_without_a_plugin_the_error_names_the_cure(run):
    run("raises(RuntimeError, 'Lazy tensor backend not registered.', xm.xla_device)", TORCH_BACKEND="")


def test_runtime_reports_processes_and_devices(run):
    run("""
        from torch_backend.xla import runtime as xr
        assert (xr.world_size(), xr.global_ordinal(), xr.local_ordinal(), xr.process_count(), xr.process_index()) == (1, 0, 0, 1, 0)
        assert xr.device_type() == "FAKE" and xr.addressable_device_count() == 2 == xr.global_device_count() and not xr.is_spmd() and xr.local_process_count() == 1
        raises(NotImplementedError, "readonly", xr.initialize_cache, "cache", readonly=True)
        xr.initialize_cache("cache")
        import os
        assert os.environ["HAL_CACHE_DIR"] == "cache"
        torch.ones(1, device=xm.xla_device())
        raises(RuntimeError, "a device is in use already", xr.initialize_cache, "cache")
    """, HAL_FAKE_DEVICES=2)


def test_modules_of_torch_xla_that_do_not_exist_name_what_to_use(run):
    run("""
        import importlib
        torch_xla.install_as("torch_xla")
        for package in ("torch_xla", "torch_backend.xla"):
            for module, advice in (("distributed.spmd", "DTensor"), ("distributed.fsdp", "fully_shard"), ("experimental.custom_kernel", "Migration from torch_xla"),
                                   ("core.dynamo_bridge", "torch.compile")):
                raises(ImportError, advice, importlib.import_module, f"{package}.{module}")
            raises(ModuleNotFoundError, "No module named", importlib.import_module, f"{package}.no_such_module")
        from torch_xla import stablehlo
        raises(RuntimeError, "StableHLO is the language of the plugin pjrt", stablehlo.get_stablehlo)
    """)


def test_traces_have_the_names_of_blocks_and_steps(run):
    run("""
        import glob, json, tempfile
        import torch_backend.xla.debug.profiler as xp
        raises(RuntimeError, "no trace is running", xp.stop_trace)
        raises(NotImplementedError, "start_trace(folder)", xp.start_server, 9012)
        raises(NotImplementedError, "start_trace(folder)", xp.trace, "localhost:9012", "logs")
        with tempfile.TemporaryDirectory() as folder:
            xp.start_trace(folder)
            raises(RuntimeError, "running already", xp.start_trace, folder)
            before = met.counter_value("MarkStep") or 0
            with xp.StepTrace("train_step", step_num=3):
                with xp.Trace("build_graph"):
                    y = torch.ones(3, device="lazy") + 1
            assert (met.counter_value("MarkStep") or 0) == before + 1
            assert xp.trace_me("named")(lambda a: a + 1)(1) == 2
            xp.stop_trace()
            (file,) = glob.glob(folder + "/*.json")
            names = {event.get("name") for event in json.load(open(file))["traceEvents"]}
            assert {"train_step#step_num=3#", "build_graph", "named"} <= names, names
    """)
