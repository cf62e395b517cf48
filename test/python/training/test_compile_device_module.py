"""The device module in compiled functions: TorchDynamo traces it without a graph break, and the code behaves like eager
mode."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("newly_compiled")


def functions(m):
    side = m.Stream()

    def stream(x):
        made = m.Stream(device=x.device)
        made.wait_stream(m.current_stream())
        with m.stream(made):
            y = x + 1
        m.current_stream().wait_stream(made)
        return y * 2

    def stream_of_outside(x):
        side.wait_stream(m.current_stream())
        with m.stream(side):
            y = x + 1
        m.current_stream().wait_stream(side)
        return y * 2

    def no_stream(x):
        with m.stream(None):
            return x + 1

    def synchronize(x):
        y = x + 1
        m.synchronize()
        m.synchronize(0)
        m.synchronize(f"{x.device.type}:1")
        m.synchronize(x.device)
        m.synchronize(device=torch.device(x.device.type))
        return y * 2

    def current_device(x):
        return x + m.current_device() + torch.get_device_module(x.device).current_device()

    def current_stream(x):
        event = m.current_stream().record_event()
        m.current_stream(x.device).wait_event(event)
        m.current_stream(0).wait_event(event)
        return x + 1

    def default_stream(x):
        m.default_stream().wait_stream(m.current_stream())
        return x + 1

    def set_stream(x):
        m.set_stream(m.current_stream())
        return x + 1

    def device(x):
        with m.device(1):
            y = torch.ones(3, device=x.device.type)
        return y.to(x.device) + x

    def device_by_name(x):
        with m.device(f"{x.device.type}:1"):
            index = m.current_device()
            y = torch.ones(3, device=x.device.type) * 2
        with m.device(torch.device(x.device.type, 1)):
            y = y + torch.ones(3, device=x.device.type)
        return y.to(x.device) + x + index + m.current_device()

    def properties(x):
        own, other = m.get_device_properties(), m.get_device_properties(f"{x.device.type}:1")
        return x + own.multi_processor_count + other.warp_size + len(own.name) + own.major + own.L2_cache_size

    def name(x):
        return x + len(m.get_device_name()) + len(m.get_device_name(x.device))

    def event(x):
        first, second = m.Event(), m.Event(enable_timing=True)
        first.record()
        y = x + 1
        second.record(m.current_stream())
        first.synchronize()
        m.current_stream().wait_event(second)
        return y

    def counts(x):
        return x + m.device_count() + int(m.is_available()) + len(m.get_amp_supported_dtype()) + int(m.is_bf16_supported())

    return {key: value for key, value in locals().items() if callable(value)}


NAMES = ["stream", "stream_of_outside", "no_stream", "synchronize", "current_device", "current_stream", "default_stream", "set_stream", "device",
         "device_by_name", "properties", "name", "event", "counts"]  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.host_memory("inductor's C++ kernels"))])
@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_one_graph_and_computes_what_it_does_in_eager_mode(device, module, name, backend):
    function = functions(module)[name]
    x = torch.randn(3, device=device)
    expected = function(x)
    for _ in range(2):
        found = torch.compile(function, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(found.cpu(), expected.cpu())
    assert module.current_device() == 0 and module.current_stream().stream_id == 0


def test_all_functions_are_in_the_list(module):
    assert sorted(functions(module)) == sorted(NAMES)


def test_the_current_device_is_guarded(device, module):
    compiled = torch.compile(lambda x: x + module.current_device() + 10 * module.get_device_properties().multi_processor_count, backend="eager", fullgraph=True)
    x = torch.zeros(1, device=device)
    first = compiled(x).item()
    with module.device(1):
        assert compiled(x).item() == first + 1
    assert compiled(x).item() == first


def test_an_index_that_no_device_has_is_an_error(device, module):
    with pytest.raises(Exception, match="out of range"):
        torch.compile(lambda x: (module.synchronize(7), x + 1)[1], backend="eager", fullgraph=True)(torch.zeros(1, device=device))


BEFORE_INDUCTOR = """
import sys, torch
assert "torch._dynamo" not in sys.modules, "importing torch does not import TorchDynamo"
{first}
from torch._dynamo.device_interface import get_interface_for_device, get_registered_device_interfaces
{then}
for name in ("fake", "fake:0", "fake:1", torch.device("fake", 1)):
    interface = get_interface_for_device(name)
    assert interface.device_count() == 2 and interface.is_available() and interface.current_device() == 0, name
    assert interface.get_device_properties(1).multi_processor_count > 0 and interface.stream is torch.fake.stream
    assert interface.Worker.get_device_properties().name == torch.fake.get_device_name()
assert {{"fake", "fake:0", "fake:1"}} <= {{name for name, _ in get_registered_device_interfaces()}}
# Since torch 2.15 TorchDynamo imports the part of inductor that all devices share; their code generators it does not.
generators = {{name for name in sys.modules if name.startswith(("torch._inductor.codegen.", "torch_backend.inductor"))}}
assert generators <= {{"torch._inductor.codegen.common"}}, generators
"""


@pytest.mark.parametrize("when", ["by_the_environment", "before", "after"])
def test_the_interface_is_known_before_inductor_is_loaded(run_python, when):
    """In either order: the plugin first, or TorchDynamo first."""
    use = "import torch_backend; torch_backend.use('fake')"
    script = BEFORE_INDUCTOR.format(first=use if when == "before" else "", then=use if when == "after" else "")
    run_python(script, HAL_FAKE_DEVICES=2, **({"TORCH_BACKEND": "fake"} if when == "by_the_environment" else {}))
