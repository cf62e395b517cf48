"""torch.compile on a device whose threads compute inductor's C++ kernels: results, failed checks, and what is queued."""

import contextlib

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from torch_backend.inductor import _threads

MANY = 1 << 17  # elements that several threads compute

pytestmark = [pytest.mark.host_memory("inductor's C++ kernels read and write device addresses"), pytest.mark.usefixtures("fresh_dynamo")]


def agree(function, device, *given, tolerance=1e-5):
    """Compares a compiled function on the device with the CPU's eager mode in double precision."""
    compiled = torch.compile(function)
    expected = function(*(x.double() if x.is_floating_point() else x for x in given))
    for _ in range(3):
        result = compiled(*(x.to(device) for x in given))
        for ours, theirs in zip(torch.utils._pytree.tree_leaves(result), torch.utils._pytree.tree_leaves(expected)):
            torch.testing.assert_close(ours.cpu().to(theirs.dtype), theirs, rtol=tolerance, atol=tolerance)


def test_no_kernel_uses_openmp(device):
    x = torch.randn(MANY, device=device)
    _, code = run_and_get_code(torch.compile(lambda x: (x.sin() + 1).sum()), x)
    assert any("void GOMP_parallel" in source for source in code)
    if _threads.threads() > 1:
        assert any("#pragma omp parallel" in source for source in code)
    calls = [line.strip() for source in code for line in source.splitlines() if "_on_host(" in line]
    assert calls
    assert all(line.startswith("queue_on_host(") for line in calls), calls


def test_other_parallel_code_keeps_openmp():
    """Code whose parts wait for each other, and loops without the line that reports a failed check."""
    head = "#include <torch/csrc/inductor/cpp_prefix.h>\n#pragma omp parallel num_threads(8)\n{\n"
    assert "void GOMP_parallel" in _threads.use(f"{head}#pragma omp for\n}}\n{_threads.END_LOOP}")
    assert _threads.use(f"{head}#pragma omp for\n}}\n") is None
    for waits in ("barrier", "single", "critical"):
        assert _threads.use(f"{head}#pragma omp {waits}\n}}\n{_threads.END_LOOP}") is None


def test_a_kernel_is_queued(device):
    """The call returns before the device has done earlier work, on whose result it depends."""
    compiled, matrix = torch.compile(lambda x: x.sin() + 1), torch.full((1500, 1500), 1 / 1500, device=device)
    compiled(matrix)
    x = matrix
    for _ in range(16):
        x = x @ matrix
    if torch.accelerator.current_stream().query():
        pytest.skip("streams are not asynchronous")
    result = compiled(x)
    assert not torch.accelerator.current_stream().query()
    torch.testing.assert_close(result.cpu(), (torch.full((1500, 1500), 1 / 1500)).sin() + 1)


@pytest.mark.parametrize("shape", [(MANY,), (3, 70000), (513, 257), (40, 41, 43), (2, 3)])
def test_loops_and_reductions(device, shape):
    torch.manual_seed(0)
    x = torch.randn(shape)
    agree(lambda x: (x.sin() * 2, x.sum(), x.amax(-1), x.var(), x.softmax(-1), (x > 0).sum(0), x.argmax(-1)), device, x, tolerance=1e-4)


def test_serial_code_after_a_parallel_loop(device):
    """Additions to the same elements are serial, and follow a loop that is not."""
    torch.manual_seed(0)
    x, index = torch.randn(4096, 64), torch.randint(100, (4096,))
    agree(lambda x, i: (torch.zeros(4096, 64, dtype=x.dtype, device=x.device).index_add(0, i, x) + 1, x.mean()), device, x, index, tolerance=1e-3)


def test_small_loops_between_large_ones(device):
    torch.manual_seed(0)
    net = nn.BatchNorm2d(8).double()
    x = torch.randn(16, 8, 64, 64)
    ours = nn.BatchNorm2d(8).to(device)
    step = torch.compile(lambda x: ours(x).relu().sum((0, 2, 3)))
    for _ in range(3):
        torch.testing.assert_close(step(x.to(device)).cpu().double(), net(x.double()).relu().sum((0, 2, 3)), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(ours.running_var.cpu().double(), net.running_var, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [10, 100000], ids=["serial", "parallel"])
def test_an_invalid_index_is_an_error_and_the_device_remains_usable(device, count):
    look_up = torch.compile(lambda w, i: nn.functional.embedding(i, w).relu() * 2)
    weight, index = torch.randn(100, 16, device=device), torch.zeros(count, dtype=torch.long, device=device)
    expected = look_up(weight, index)
    index[count // 2] = 200
    with pytest.raises(RuntimeError, match="cpp_fused_embedding.*index out of bounds"):
        look_up(weight, index)
        torch.get_device_module(device).synchronize()
    torch.get_device_module(device).synchronize()  # reported once
    index[count // 2] = 0
    assert torch.equal(look_up(weight, index), expected)


@pytest.mark.parametrize("count", [10, 100000], ids=["serial", "parallel"])
def test_an_invalid_index_in_a_graph(device, count):
    module = torch.get_device_module(device)
    look_up = torch.compile(lambda w, i: nn.functional.embedding(i, w).relu() * 2, mode="reduce-overhead")
    weight, index = torch.randn(100, 16, device=device), torch.zeros(count, dtype=torch.long, device=device)
    for _ in range(3):
        expected = look_up(weight, index).clone()
    index[count // 2] = 200
    with pytest.raises(RuntimeError, match="cpp_fused_embedding.*index out of bounds"):
        for _ in range(3):  # the failure of a replay is an error of a later call
            look_up(weight, index)
            module.synchronize()
    index[count // 2] = 0
    module.synchronize()
    with contextlib.suppress(RuntimeError):  # of the replay that raised the error above
        look_up(weight, index)
    assert torch.equal(look_up(weight, index), expected)


def test_a_division_by_zero_is_an_error(device):
    divide = torch.compile(lambda x, y: x // y + 1)
    x, y = torch.ones(MANY, dtype=torch.int32, device=device), torch.ones(MANY, dtype=torch.int32, device=device)
    assert divide(x, y).eq(2).all()
    y[MANY - 5] = 0
    with pytest.raises(RuntimeError, match="cpp_fused.*ZeroDivisionError"):
        divide(x, y)
        torch.get_device_module(device).synchronize()


def test_kernels_have_rows_in_the_profile(device):
    compiled, x = torch.compile(lambda x: x.sin() + 1), torch.randn(MANY, device=device)
    compiled(x)
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profile:
        compiled(x)
        torch.get_device_module(device).synchronize()
    rows = [event.name for event in profile.events() if event.device_type != torch.autograd.DeviceType.CPU]
    assert any(name.startswith("cpp_fused") and "sin" in name for name in rows), rows


def test_a_tensor_of_the_cpu_takes_part(device):
    """Its memory is not freed in the order of the stream, so the kernel runs at once."""
    x, scale = torch.randn(MANY), torch.tensor(3.0)
    compiled = torch.compile(lambda x, s: (x * s).relu())
    for _ in range(3):
        torch.testing.assert_close(compiled(x.to(device), scale).cpu(), (x * 3).relu())


def test_streams_of_several_threads(device):
    import threading

    module, failures = torch.get_device_module(device), []
    compiled = torch.compile(lambda x: (x.sin().cumsum(0), (x * x).sum(1)))
    given = torch.randn(256, 512)
    expected = given.sin().double().cumsum(0), (given * given).double().sum(1)
    compiled(given.to(device))

    def work():
        try:
            with torch.Stream(device=device) as stream:
                for _ in range(20):
                    result = compiled(given.to(device))
                stream.synchronize()
                for ours, theirs in zip(result, expected):
                    torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-4, atol=1e-3)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    module.synchronize()
    assert not failures
