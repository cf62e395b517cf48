"""What inductor requires of a device of another package: registration, interface, code in Python and C++."""

import copy
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

import torch_backend

MINOR = tuple(map(int, torch.__version__.split(".")[:2]))


@pytest.fixture
def interface(device):
    from torch._dynamo.device_interface import get_interface_for_device

    return get_interface_for_device(device)


@pytest.fixture
def overrides(device):
    from torch._inductor.codegen.common import get_device_op_overrides, init_backend_registration

    init_backend_registration()
    return get_device_op_overrides(device)


def test_registration_is_repeated_when_inductor_forgets_the_device(device, module):
    from torch._inductor.codegen import common

    common.init_backend_registration()
    registered, backend_pass = common.device_codegens.pop(device), common.custom_backend_passes.pop(device)
    module._inductor_backend_init()
    assert common.device_codegens[device].cpp_wrapper_codegen is registered.cpp_wrapper_codegen
    assert type(common.custom_backend_passes[device]) is type(backend_pass)


def test_the_interface_of_the_device(device, interface):
    import json

    assert interface.is_gpu() is False
    information = interface.get_cache_system_info()
    assert json.loads(json.dumps(information)) == information
    assert {plugin[0] for plugin in information["plugins"]} == {plugin.name for plugin in torch_backend.plugins()}
    assert interface.get_cpp_device_options(aot_mode=False, compile_only=False) == ([],) * 7
    _, includes, _, _, folders, libraries, _ = interface.get_cpp_device_options(aot_mode=True, compile_only=False)
    assert [Path(folder) / "hal/hal.h" for folder in includes if (Path(folder) / "hal/hal.h").exists()]
    assert [folder for folder in folders for library in libraries if (Path(folder) / library.removeprefix(":")).exists()]
    if MINOR >= (2, 15):
        from torch._inductor import utils
        from torch._inductor.codecache import CacheBase

        assert CacheBase.get_system.__wrapped__()["device_interfaces"][device] == information
        assert interface.exposes_streams() and interface.get_multi_processor_count() > 0
        assert not utils.is_gpu(device) and not utils.device_need_guard(device)


def test_code_in_python(device, overrides):
    space = {"torch": torch}
    exec(overrides.import_get_raw_stream_as("raw_stream"), space)
    assert space["raw_stream"](0) == torch.accelerator.current_stream(0).stream_id
    exec(f"with {overrides.device_guard(1)}:\n    index = {overrides.current_device_idx_expr()}", space)
    assert space["index"] == 1
    exec(f"{overrides.set_device(0)}\n{overrides.synchronize()}\nstream = {overrides.current_stream()}", space)
    assert space["stream"] == torch.accelerator.current_stream()


@pytest.mark.slow
def test_code_in_cpp_compiles(overrides, tmp_path):
    lines = [
        "#include <ATen/core/Tensor.h>",
        overrides.kernel_header(),
        overrides.kernel_driver(),
        overrides.tma_descriptor_helpers(),
        "void call(int index) {",
        f"  {overrides.cpp_aoti_device_guard()} guard(index);",
        f"  {overrides.cpp_stream_type()} stream = nullptr;",
        f"  if ({overrides.aoti_get_stream()}(index, &stream) != 0) return;",
        f"  {overrides.cpp_aoti_stream_guard()} by_handle(stream, index);",
        f"  {overrides.cpp_stream_guard()} by_stream({overrides.cpp_getStreamFromExternal()}(stream, index));",
        f"  {overrides.cpp_kernel_type()} kernel = nullptr; {overrides.cpp_device_ptr()} pointer = kernel; (void)pointer;",
        f"  static_assert({overrides.aten_device_type()} == c10::DeviceType::PrivateUse1);",
        "}",
    ]
    source = tmp_path / "code.cpp"
    source.write_text("\n".join(lines))
    folders = [Path(torch.__file__).parent / "include", Path(torch.__file__).parent / "include/torch/csrc/api/include", sysconfig.get_path("include")]
    done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", *(f"-I{folder}" for folder in folders), source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert overrides.uses_gpu_cpp_wrapper() is False and overrides.cpp_scratch(0, None) is None and not overrides.cpp_kernel_launch_supports_pdl()


@pytest.mark.slow
@pytest.mark.host_memory("inductor's C++ kernels read and write device addresses")
def test_the_name_of_the_device_is_a_compiler(device):
    from torch._dynamo.backends.registry import list_backends
    from torch._dynamo.testing import CompileCounterWithBackend

    assert device in list_backends(exclude_tags=())
    x = torch.linspace(-2, 2, 24).reshape(4, 6)

    def function(x):
        return (x.sin() * 2 + x.sum(-1, keepdim=True)).relu()

    def gradient(function, x):
        x = x.detach().requires_grad_()
        function(x).sum().backward()
        return x.grad.cpu()

    counter = CompileCounterWithBackend(device)
    for compiled in (torch.compile(function, backend=device), torch.compile(function, backend=counter),
                     torch.compile(function, backend=device, options={"max_autotune": False}),
                     torch.compile(function, backend=device, mode="max-autotune-no-cudagraphs")):  # fmt: skip
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(x.to(device)).cpu(), function(x))
        torch.testing.assert_close(gradient(compiled, x.to(device)), gradient(function, x))
    assert counter.frame_count == 2, "with and without gradients"
    with pytest.raises(Exception, match="no_such_option"):
        torch.compile(lambda x: x.cos(), backend=device, options={"no_such_option": 1})(x.to(device))


def test_a_compiler_that_another_package_registers_takes_precedence(run_python):
    """As a vendor does whose compiler has the name of its device."""
    run_python(
        """
import torch, torch_backend
from torch._dynamo import register_backend
name = torch_backend.device_name()
called = []
def mine(graph, inputs):
    called.append(True)
    return graph.forward
register_backend(mine, name=name)
x = torch.arange(3.0)
assert torch.compile(lambda x: x + 1, backend=name)(x.to(name)).tolist() == [1, 2, 3]
assert called
""",
        TORCH_BACKEND="fake",
    )


def test_convolutions_keep_the_memory_format_of_the_program(device):
    """Inductor prefers channels last, so the device would copy each operand of each convolution."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, padding=1)]
    model = torch.nn.Sequential(*layers).to(device)
    x = torch.randn(2, 16, 16, 16).to(device)
    compiled = torch.compile(model)
    for _ in range(2):
        torch_backend.ops.reset()
        result = compiled(x)
        result.square().mean().backward()
    assert "convolution_overrideable" in {row.op for row in torch_backend.ops.report()}
    assert sum(row.native for row in torch_backend.ops.report() if row.op == "copy") == 0
    torch.testing.assert_close(result.cpu(), copy.deepcopy(model).cpu()(x.cpu()), rtol=1e-4, atol=1e-4)
    other = x.to(memory_format=torch.channels_last)
    assert compiled(other).stride() == model(other).stride()
