"""torch.compile of functions that use streams, events and the device module: inductor's code behaves like eager mode.
"""

import pytest
import torch
import torch._inductor.config

import torch_backend

pytestmark = [pytest.mark.host_memory("inductor's C++ kernels read and write device addresses"), pytest.mark.usefixtures("newly_compiled")]


def side_stream(x):
    stream = torch.Stream(device=x.device)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        y = x + 1
    torch.accelerator.current_stream().wait_stream(stream)
    return y * 2


def two_side_streams(x):
    first, second = torch.Stream(device=x.device), torch.Stream(device=x.device)
    here = torch.accelerator.current_stream()
    first.wait_stream(here)
    second.wait_stream(here)
    with first:
        y = x + 1
    with second:
        z = x * 3
    here.wait_stream(first)
    here.wait_stream(second)
    return y * z


def event_between(x):
    event = torch.Event(device=x.device)
    event.record()
    y = x + 1
    event.synchronize()
    return y


def events_and_reductions(x):
    event, stream = torch.Event(device=x.device), torch.accelerator.current_stream()
    y = x.sum(0)
    stream.record_event(event)
    z = y * 2
    stream.wait_event(event)
    return z - x.mean()


def device_module(x):
    module = torch.get_device_module(x.device)
    return x * module.device_count() + int(module.is_available())


@pytest.mark.parametrize("function", [side_stream, two_side_streams, event_between, events_and_reductions, device_module])
def test_code_with_streams_and_events_runs(device, function):
    x = torch.randn(64, 8)
    big = torch.full((1 << 20,), 0.5, device=device)
    for _ in range(4):
        big = big * 2  # work that is still queued
    compiled = torch.compile(function, backend="inductor")
    torch.testing.assert_close(compiled(x.to(device)).cpu(), function(x.to(device)).cpu())
    assert torch.isfinite(big).all()


def test_kernels_do_not_swap_with_events(device):
    """An event between two kernels remains between them in the code."""
    from torch._inductor.utils import run_and_get_code

    x = torch.randn(64, 8, device=device)
    _, code = run_and_get_code(torch.compile(events_and_reductions, backend="inductor"), x)
    lines = [line.strip() for line in "\n".join(code).splitlines()]
    calls = [line for line in lines if line.startswith(("torch.ops.streams.", "queue_on_host("))]
    recorded = next(i for i, line in enumerate(calls) if "record_event" in line)
    assert any(line.startswith("queue_on_host(") for line in calls[:recorded]), calls


def test_the_device_module_is_found_by_its_name(device, module):
    """TorchDynamo guards on a module by its name, `torch.<name>`."""
    assert module.__name__ == f"torch.{device}"
    compiled = torch.compile(lambda x: x + torch.get_device_module(device).device_count(), backend="eager", fullgraph=True)
    x = torch.zeros(3, device=device)
    assert compiled(x).tolist() == [float(module.device_count())] * 3


def test_inductors_settings_for_the_cpu_stay(device):
    """Names that the device does not support are omitted only for the device."""
    torch.compile(lambda x: x.sin() + 1, backend="inductor")(torch.randn(8, device=device))
    assert torch._inductor.config.loop_reindexing_after_fusion


def test_reductions_with_pointwise_operators_of_another_shape(device):
    """A case that the CPU's scheduler would reorder, and that C++ code generation does not support."""

    def function(x):
        return (x.view(4, 6, 8) * 2 + 1).view(24, 8), x.view(24, 8).sum(1)

    x = torch.randn(24 * 8)
    for ours, theirs in zip(torch.compile(function)(x.to(device)), function(x)):
        torch.testing.assert_close(ours.cpu(), theirs)


CACHED = """
import sys, torch, torch_backend
torch_backend.use("fake")
print(torch.compile(lambda x: (x * 2 + 1).cos())(torch.ones(8, device="fake")).tolist()[0])
from torch._dynamo.utils import counters
print(counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_cached_code_is_not_used_if_the_host_cannot_access_the_memory(run_python, tmp_path):
    cache = {"TORCHINDUCTOR_CACHE_DIR": tmp_path / "cache"}
    first = run_python(CACHED, **cache).stdout.split()
    second = run_python(CACHED, **cache).stdout.split()
    assert first[0] == second[0] and int(second[1]) > 0, "the cache serves the same device"
    hidden = run_python(CACHED, HAL_FAKE_PROTECT=1, **cache)
    assert hidden.stdout.split() == [first[0], "0"]
    assert "does not generate kernels for 'fake'" in hidden.stderr and "aot_eager" in hidden.stderr


def test_code_with_streams_comes_back_from_the_cache(run_python, tmp_path):
    script = """
    import torch, torch_backend
    torch_backend.use("fake")
    def function(x):
        stream = torch.Stream(device="fake")
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            y = x + 1
        event = stream.record_event()
        event.synchronize()
        torch.accelerator.current_stream().wait_stream(stream)
        return y * 2
    print(torch.compile(function)(torch.ones(8, device="fake")).tolist())
    """
    for _ in range(2):
        assert run_python(script, TORCHINDUCTOR_CACHE_DIR=tmp_path / "cache").stdout.strip() == str([4.0] * 8)


def test_generated_code_checks_again_whether_the_host_can_access_the_memory(run_python):
    """Code generated on another machine must raise an error and not crash."""
    script = """
    import torch, torch_backend
    torch_backend.use("fake")
    from torch_backend.inductor._host import run_on_host
    try:
        run_on_host(0, print, "print", "ran")
    except RuntimeError as error:
        print(error)
    """
    assert "not visible" in run_python(script, HAL_FAKE_PROTECT=1).stdout


def test_the_cache_key_names_plugin_and_visibility(device):
    from torch_backend.inductor._registration import DevicePass

    torch.ones(1, device=device)
    key = DevicePass().uuid()
    assert all(plugin.name in key for plugin in torch_backend.plugins()) and "C++ on the host" in key
