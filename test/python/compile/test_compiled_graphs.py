"""torch.compile with graphs: mode="reduce-overhead" and backend="cudagraphs" run a region as a graph from its third call
on. All results are compared with the same calls without a compiler."""

import copy
import ctypes
import gc
import logging
import threading
import time
from pathlib import Path

import pytest
import torch
from torch_backend._extension import extension
from torch_backend.backend.graphs import Graph, graph as capture

WAYS = {"inductor": {"mode": "reduce-overhead"}, "cudagraphs": {"backend": "cudagraphs"}}


@pytest.fixture(params=WAYS)
def compiled(request):
    """torch.compile with graphs."""
    return lambda function, **options: torch.compile(function, **WAYS[request.param], **options)


@pytest.fixture
def recorded():
    """The way that compiles no kernels, for what does not depend on the way."""
    return lambda function, **options: torch.compile(function, **WAYS["cudagraphs"], **options)


@pytest.fixture
def replays(module):
    """A list with one element for each replay of a graph so far."""
    seen = []
    handle = module.register_graph_replay_start_hook(lambda *_: seen.append(1))
    yield seen
    handle.remove()


def close(found, expected):
    torch.testing.assert_close(found.cpu(), expected.cpu(), rtol=1e-4, atol=1e-5)


def test_results_are_those_of_eager_calls_and_the_third_call_is_a_replay(device, compiled, replays):
    weight = torch.randn(16, 16, device=device)

    def function(x):
        return torch.nn.functional.gelu(x @ weight).sum(1) * 2, x.sin()

    run = compiled(function)
    for call in range(8):
        x = torch.randn(8, 16, device=device)
        for found, expected in zip(run(x), function(x)):
            close(found, expected)
        del found
        assert bool(replays) == (call >= 2), f"call {call}"


def test_inputs_at_changing_addresses_are_copied(device, recorded, replays):
    inputs = [torch.randn(64, device=device) for _ in range(6)]  # alive together, so no address is used twice
    run = recorded(lambda x: (x * 2).cos())
    for x in inputs * 2:
        close(run(x), (x * 2).cos())
    assert len(replays) >= 8


@pytest.mark.parametrize("stride", [(1, 8), (20, 2), (0, 1)], ids=["transposed", "gaps", "expanded"])
def test_strided_inputs(device, recorded, replays, stride):
    run = recorded(lambda x: x * 3 + 1)
    for _ in range(5):
        x = torch.randn(400, device=device).as_strided((4, 8), stride)
        close(run(x), x * 3 + 1)
    assert replays


def test_outputs_that_the_program_keeps_remain_right(device, recorded, replays):
    run = recorded(lambda x: (x.exp(), x.sum()))
    large, small, inputs = [], [], []
    for _ in range(12):
        inputs.append(torch.randn(40_000, device=device))
        first, second = run(inputs[-1])
        small.append(second)
        if len(inputs) % 3 == 0:
            large.append((len(inputs) - 1, first))
    for x, y in zip(inputs, small):
        close(y, x.sum())
    for number, y in large:
        close(y, inputs[number].exp())
    assert replays


def test_copies_of_outputs_have_the_strides_of_the_outputs(device, recorded, replays):
    def function(x):
        return (x * 2).sin()[:, ::2], (x.sum(1, keepdim=True) * 2).expand(6, 8), (x * 3).t()

    run = recorded(function)
    kept = []
    for _ in range(8):
        x = torch.randn(6, 8, device=device)
        kept.append((x, run(x)))
        assert [one.stride() for one in kept[-1][1]] == [one.stride() for one in function(x)]
    assert replays
    for x, outputs in kept:
        for found, expected in zip(outputs, function(x)):
            close(found, expected)


def test_a_graph_that_is_destroyed_completes_its_replays(device):
    """Its kernels on the host are called after the program has dropped the graph: here a function that sleeps."""
    kernels, graph, x = extension().HostKernels(), Graph(), torch.ones(1000, device=device)
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
    with capture(graph):
        for _ in range(30):
            kernels.queue(sleep, "sleep", 3000)
            y = x + 1
    start = time.monotonic()
    for _ in range(2):
        kernels.begin_replay()
        graph.replay()
    del kernels, graph
    overwritten = [bytes(1104 + 8 * i) for i in range(20) for _ in range(40)]  # memory of freed calls
    assert torch.equal(y.cpu(), torch.full((1000,), 2.0))
    assert time.monotonic() - start >= 2 * 30 * 0.003, "the replays were not completed"
    del overwritten


def test_regions_with_replays_in_flight_are_dropped(device):
    def function(x):
        return (x * 2).sin()[:, ::2], (x.sum(1, keepdim=True) * 2).expand(x.shape)

    for _ in range(8):
        run = torch.compile(function, mode="reduce-overhead")
        with torch.no_grad():
            kept = [run(torch.randn(300, 800, device=device)) for _ in range(6)]
        del run, kept
        torch._dynamo.reset()
        gc.collect()
    torch.accelerator.synchronize()


def test_memory_of_an_output_remains_right_without_its_tensor(device, recorded, replays):
    run = recorded(torch.sin)
    kept = []
    for _ in range(6):
        x = torch.randn(30, device=device)
        kept.append((x, run(x).untyped_storage()))
    assert replays
    for x, memory in kept:
        close(torch.empty(0, device=device).set_(memory, 0, (30,)), x.sin())


def test_all_large_outputs_kept(device, recorded):
    run = recorded(lambda x: x + 1)
    kept = [(x, run(x)) for x in (torch.randn(40_000, device=device) for _ in range(10))]
    for x, y in kept:
        close(y, x + 1)


def test_an_output_that_is_an_input_or_a_view_of_one(device, recorded, replays):
    run = recorded(lambda x, y: (x, y[1:].t(), x + y))
    for _ in range(5):
        x, y = torch.randn(4, 4, device=device), torch.randn(4, 4, device=device)
        same, view, total = run(x, y)
        close(same, x), close(view, y[1:].t()), close(total, x + y)
        view.add_(1)
        close(view, y[1:].t())
        assert view.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        del same, view, total
    assert replays


def test_training_has_the_losses_and_gradients_of_eager_mode(device, compiled, replays):
    layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 10)]
    eager = torch.nn.Sequential(*layers).to(device)
    model = copy.deepcopy(eager)
    data = [(torch.randn(16, 32, device=device), torch.randint(10, (16,), device=device)) for _ in range(10)]

    def losses(module, run, to_none):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        kept = []
        for x, y in data:
            optimizer.zero_grad(set_to_none=to_none)
            loss = torch.nn.functional.cross_entropy(run(x), y)
            loss.backward()
            optimizer.step()
            kept.append(loss.detach())
        return torch.stack(kept)

    for to_none in (True, False):
        close(losses(model, compiled(model), to_none), losses(eager, eager, to_none))
        for found, expected in zip(model.parameters(), eager.parameters()):
            close(found, expected)
    assert len(replays) >= 10


def test_gradients_that_accumulate_over_two_forward_passes(device, recorded, replays):
    weight = torch.randn(16, 16, device=device, requires_grad=True)
    reference = weight.detach().clone().requires_grad_()

    def function(x, weight):
        return torch.tanh(x @ weight).pow(2).mean()

    run = recorded(function)
    for _ in range(6):
        batches = [torch.randn(8, 16, device=device) for _ in range(2)]
        sum(run(x, weight) for x in batches).backward()
        sum(function(x, reference) for x in batches).backward()
        close(weight.grad, reference.grad)
    assert replays


def test_a_parameter_with_new_memory(device, recorded, replays):
    module = torch.nn.Linear(8, 8).to(device).requires_grad_(False)
    run = recorded(module)
    for call in range(9):
        if call % 3 == 0:
            module.weight.data = torch.randn(8, 8, device=device)
        x = torch.randn(4, 8, device=device)
        close(run(x), torch.nn.functional.linear(x, module.weight, module.bias))
    assert replays


def test_buffers_and_inputs_that_the_region_changes(device, compiled, replays):
    eager = torch.nn.BatchNorm1d(6).to(device)
    module = copy.deepcopy(eager)
    run, reference = compiled(module), eager
    for _ in range(6):
        x = torch.randn(32, 6, device=device)
        close(run(x), reference(x))
    close(module.running_mean, eager.running_mean)
    assert module.num_batches_tracked.item() == 6

    add = compiled(lambda x, y: x.add_(y).sum())
    for _ in range(6):
        x, y = torch.zeros(8, device=device), torch.randn(8, device=device)
        close(add(x, y), y.sum())
        close(x, y)
    assert replays


def test_random_numbers_differ_between_replays(device, compiled, replays):
    run = compiled(lambda x: torch.nn.functional.dropout(x, 0.5))
    x = torch.ones(4096, device=device)
    masks = [run(x).cpu() for _ in range(6)]
    assert replays
    assert all(0.4 < (mask != 0).float().mean() < 0.6 for mask in masks)
    assert all((one != other).any() for number, one in enumerate(masks) for other in masks[:number])


def test_attention_with_dropout_has_one_mask_in_both_passes(device, compiled, replays):
    query, key = (torch.randn(2, 2, 8, 16, device=device) for _ in range(2))
    value = torch.eye(8, 16, device=device).expand(2, 2, 8, 16).contiguous().requires_grad_()

    def attend(value):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.5)

    run, weights = compiled(attend), []
    for _ in range(8):
        value.grad = None
        result = run(value)
        weights.append(result[..., :8].detach().cpu())  # the values are unit vectors
        result.sum().backward()
        close(value.grad[..., 0], weights[-1].sum(-2))
        del result
    assert len(replays) >= 8
    assert all((one != other).any() for number, one in enumerate(weights) for other in weights[:number])


def test_dynamic_sizes(device, compiled, replays):
    run = compiled(lambda x: (x * 2).sum(0), dynamic=True)
    for _ in range(4):
        for size in (3, 5, 7):
            x = torch.randn(size, 4, device=device)
            close(run(x), (x * 2).sum(0))
    assert replays


def test_regions_after_a_graph_break_use_outputs_in_place(device, recorded, replays):
    def function(x):
        y = x * 2
        torch._dynamo.graph_break()
        return (y + 1).relu()

    run = recorded(function)
    for _ in range(6):
        x = torch.randn(32, device=device)
        close(run(x), function(x))
    assert len(replays) >= 6


def test_calls_on_several_streams_and_threads(device, module, recorded, replays):
    run = recorded(lambda x: (x.sin() + x.cos()).cumsum(0))

    def calls(failures):
        try:
            for _ in range(6):
                stream = module.Stream()
                x = torch.randn(5000, device=device)
                stream.wait_stream(module.current_stream())
                with module.stream(stream):
                    y = run(x)
                module.current_stream().wait_stream(stream)
                close(y, (x.sin() + x.cos()).cumsum(0))
                del y
        except Exception as error:  # raised by the test's thread
            failures.append(error)

    failures = []
    calls(failures)
    threads = [threading.Thread(target=calls, args=(failures,)) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures, failures
    assert replays


def test_a_second_device(device, module, recorded, replays):
    if module.device_count() < 2:
        pytest.skip("one device")
    run = recorded(lambda x: x * 2 - 1)
    for _ in range(5):
        x = torch.randn(8, device=f"{device}:1")
        y = run(x)
        assert y.device.index == 1
        close(y, x * 2 - 1)
        del y
    assert replays


@pytest.mark.parametrize(
    "function, sentence",
    [
        (lambda x: (x + torch.arange(4).to(x.device), x.sum()), "work on the CPU"),
        (lambda x: x.to(f"{x.device.type}:1") + 1, "several devices"),
    ],
    ids=["cpu", "devices"],
)
def test_a_region_that_runs_without_graphs_reports_why(device, module, caplog, replays, function, sentence):
    if module.device_count() < 2:
        pytest.skip("one device")
    run = torch.compile(function, backend="cudagraphs")
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            x = torch.randn(4, device=f"{device}:0")
            found, expected = run(x), function(x)
            close(torch.cat([one.reshape(-1).cpu() for one in found]), torch.cat([one.reshape(-1).cpu() for one in expected]))
    assert not replays
    assert sentence in caplog.text


def host_reads(x, index):
    """Returns one of the operators that read a tensor of the device on the host, or that the CPU computes."""
    if index == "cond":
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # cond
    if index == "while_loop":
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return torch._higher_order_ops.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (start, x))[1]  # while_loop
    if index == "nested":
        return torch.compiler.nested_compile_region(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))(x)  # nested
    if index == "fft":
        return torch.fft.rfft(x).abs()  # fft
    return x + torch.arange(4).to(x.device)  # cpu


NAMES = {"cond": "cond", "while_loop": "while_loop", "nested": "cond", "fft": "aten._fft_r2c.default", "cpu": "arange"}


# Inductor computes the arange on the device.
@pytest.mark.parametrize("index, options", [(index, {"backend": "cudagraphs"}) for index in NAMES]
                         + [(index, {"mode": "reduce-overhead"}) for index in NAMES if index != "cpu"])  # fmt: skip
def test_a_region_that_runs_without_graphs_names_the_operator_and_its_line(device, caplog, replays, index, options):
    run = torch.compile(host_reads, **options)
    x = torch.randn(4, device=device)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            close(run(x, index), host_reads(x, index))
    assert not replays
    lines = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {index}"))
    [record] = [one for one in caplog.records if "skipping graphs due to" in one.getMessage()]
    assert f"{__file__}:{number}: {lines[number - 1].strip().partition('  #')[0]}" in record.getMessage()
    assert NAMES[index] in record.getMessage()


MOVED = """
import torch, torch_backend
torch_backend.use("fake")
def function(x):
    return torch.fft.rfft(x).abs()
def on_cpu(x):
    return x + x.cpu().cumsum(0).to(x.device)
for one in (function, on_cpu):
    run = torch.compile(one, mode="reduce-overhead")
    for _ in range(3):
        run(torch.ones(4, device="fake"))
from torch._dynamo.utils import counters
print("hits", counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
"""


@pytest.mark.fresh_interpreter("the cache of another process is what is tested")
def test_a_region_of_the_cache_names_the_line_of_the_program_that_runs(run_python, tmp_path):
    """Another program stored the same region: its lines are elsewhere."""
    for name, prefix in (("first", ""), ("second", "# one line more\n")):
        file = tmp_path / f"{name}.py"
        file.write_text(prefix + MOVED)
        lines = file.read_text().splitlines()
        done = run_python(f"import runpy; runpy.run_path({str(file)!r})", TORCHINDUCTOR_CACHE_DIR=tmp_path / "cache")
        skipped = [line for line in done.stderr.splitlines() if "skipping graphs due to" in line]
        assert len(skipped) == 2, done.stderr
        for line, operator, code in zip(skipped, ("aten._fft_r2c.default", "work on the CPU"), ("rfft", "cumsum")):
            number, text = next((number, text) for number, text in enumerate(lines, 1) if code in text)
            assert operator in line and f" at {file}:{number}: {text.strip()}" in line, done.stderr
        assert (done.stdout.strip() != "hits 0") == (name == "second"), done.stdout


@pytest.mark.parametrize("stored, expected", [
    ("/old/file.py:9: return x.fft()", "{file}:4: return x.fft()"),
    ("/old/file.py:9: return x.fft())", "{file}:4: return x.fft())"),
    ("/old/file.py:9: y = x.sum()", "y = x.sum()"),
    ("{file}:6: y = x.sum()", "{file}:6: y = x.sum()"),
    ("/old/file.py:9: z = 1", "z = 1"),
], ids=["moved", "within a message", "twice", "in place", "unknown"])  # fmt: skip
def test_the_place_of_a_stored_line(tmp_path, stored, expected):
    from torch_backend.dynamo.graphs.lines import relocate

    file = tmp_path / "program.py"
    file.write_text("def f(x):\n    if x is None:\n        return\n    return x.fft()\ndef g(x):\n    y = x.sum()\n    y = x.sum()\n    return y\n")
    codes = [one for one in compile(file.read_text(), str(file), "exec").co_consts if hasattr(one, "co_lines")]
    assert relocate("an operator at " + stored.format(file=file), codes) == "an operator at " + expected.format(file=file)


def test_a_condition_that_is_a_number_is_recorded(device, recorded, replays):
    run = recorded(lambda x: torch.cond(x.shape[0] > 2, torch.sin, torch.cos, (x,)), dynamic=True)
    for _ in range(4):
        for size in (3, 5, 2):
            x = torch.randn(size, device=device)
            close(run(x), x.sin() if size > 2 else x.cos())
    assert replays


def test_an_error_of_a_kernel_on_the_host_is_raised_by_a_later_call(run_python):
    script = """
        import torch, torch_backend
        torch_backend.use("fake")
        run = torch.compile(lambda x, y: x // y, mode="reduce-overhead")
        x, y = torch.full((4,), 7, device="fake"), torch.ones(4, dtype=torch.int64, device="fake")
        for _ in range(4):
            assert run(x, y).tolist() == [7] * 4
        y.zero_()
        try:
            run(x, y)
            torch.accelerator.synchronize()
            run(x, y)
        except RuntimeError as error:
            assert "division by 0" in str(error) or "ZeroDivision" in str(error), error
        else:
            raise AssertionError("no error")
    """
    run_python(script)


def test_a_capture_of_the_program_records_a_compiled_function(device, module):
    run = torch.compile(lambda x, y: torch.sin(x @ y) * 2)
    x, y = torch.randn(8, 8, device=device), torch.randn(8, 8, device=device)
    run(x, y)
    graph = torch.accelerator.Graph()
    with module.graph(graph):
        z = run(x, y)
    for _ in range(3):
        x.copy_(torch.randn(8, 8))
        graph.replay()
        close(z, torch.sin(x @ y) * 2)
