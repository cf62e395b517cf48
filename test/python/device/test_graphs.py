"""Graphs: captured work is recorded and replayed, on the same memory, with new random numbers."""

import contextlib
import gc
import threading

import pytest
import torch


@pytest.fixture
def capture(device):
    """Captures a function on a separate stream; returns the graph and the function's result."""

    def run(function, **options):
        graph, stream = torch.accelerator.Graph(**options), torch.Stream(device)
        with stream, graph:
            result = function()
        return graph, result

    return run


def test_nothing_runs_in_a_capture_and_each_replay_does_all_again(device, capture):
    x = torch.zeros(2000, device=device)
    graph, y = capture(lambda: x.add_(1) * 2)
    assert x.sum() == 0
    for count in range(1, 4):
        graph.replay()
        assert x[0] == count and y[-1] == 2 * count


def test_memory_of_a_capture_is_not_given_to_others(device, capture):
    x = torch.arange(1000.0, device=device)
    graph, y = capture(lambda: (x * 2 + 1).sin().exp())
    others = [torch.full((1000,), -5.0, device=device) for _ in range(50)]
    graph.replay()
    torch.testing.assert_close(y.cpu(), (x.cpu() * 2 + 1).sin().exp())
    assert all((other == -5).all() for other in others)


def training_step(model, optimizer, inputs, targets):
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


def adam(parameters):
    parameters = list(parameters)
    # torch 2.15 requires it in a capture
    return torch.optim.Adam(parameters, lr=1e-3, capturable=parameters[0].device.type != "cpu", fused=True)


@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), adam], ids=["sgd", "fused adam"])
def test_a_training_step_is_replayed_with_the_losses_of_the_cpu(device, capture, optimizer):
    torch.manual_seed(0)
    made = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 5)
    )
    batches = [(torch.randn(6, 1, 8, 8), torch.randint(5, (6,))) for _ in range(8)]
    losses = {}
    for where in ("cpu", device):
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 5)
        )
        model.load_state_dict(made.state_dict())
        model.to(where)
        steps = optimizer(model.parameters())
        inputs, targets = (value.to(where).clone() for value in batches[0])
        # the optimizer's state exists afterwards
        losses[where] = [training_step(model, steps, inputs, targets).item() for _ in range(3)]
        if where == device:
            graph, loss = capture(lambda: training_step(model, steps, inputs, targets))
        for x, y in batches[1:]:
            inputs.copy_(x), targets.copy_(y)
            if where == device:
                graph.replay()
            else:
                loss = training_step(model, steps, inputs, targets)
            losses[where].append(loss.item())
    torch.testing.assert_close(losses[device], losses["cpu"], rtol=1e-4, atol=1e-5)


def test_a_transformer_with_dropout_trains_by_replay(device, capture):
    """Attention's dropout mask is generated in the forward pass and again in the backward pass, from the same numbers.
    """
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True).to(device)
    x, weights = torch.randn(3, 5, 16, device=device), torch.randn(3, 5, 16, device=device)

    def step():
        layer.zero_grad(set_to_none=False)
        loss = (layer(x) * weights).sum()
        loss.backward()
        return loss

    for _ in range(2):
        step()
    graph, loss = capture(step)
    for _ in range(3):
        state = torch.get_device_module(device).get_rng_state()
        graph.replay()
        replayed, gradients = loss.item(), [p.grad.clone() for p in layer.parameters()]
        torch.get_device_module(device).set_rng_state(state)
        assert step().item() == replayed
        for p, gradient in zip(layer.parameters(), gradients, strict=True):
            torch.testing.assert_close(p.grad, gradient, rtol=1e-5, atol=1e-6)


def test_each_replay_generates_the_numbers_of_an_eager_call(device, capture):
    def draw():
        return torch.rand(1000, device=device), torch.randn(7, device=device), torch.nn.functional.dropout(torch.ones(100, device=device))

    torch.manual_seed(3)
    graph, drawn = capture(draw)
    torch.manual_seed(5)
    expected = [draw() for _ in range(3)]
    torch.manual_seed(5)
    for numbers in expected:
        graph.replay()
        for ours, eager in zip(drawn, numbers, strict=True):
            assert torch.equal(ours, eager)


def test_a_generator_of_the_users_exists_as_long_as_the_graph(device, capture):
    generator = torch.Generator(device).manual_seed(9)
    graph, drawn = capture(lambda: torch.rand(50, device=device, generator=generator))
    eager = torch.Generator(device).manual_seed(9)
    del generator
    gc.collect()
    for _ in range(3):
        graph.replay()
        assert torch.equal(drawn, torch.rand(50, device=device, generator=eager))


def test_side_streams_are_captured_with_what_they_wait_for(device):
    main, side, graph = torch.Stream(device), torch.Stream(device), torch.accelerator.Graph()
    x = torch.ones(100, device=device)
    torch.accelerator.synchronize()
    with main, graph:
        y = x + 1
        side.wait_stream(main)
        assert side.is_capturing()
        with side:
            z = y * 3
        main.wait_stream(side)
        total = (z + y).sum()
    assert not side.is_capturing() and not main.is_capturing()
    x.fill_(2)
    graph.replay()
    assert total == 100 * 12


def test_replays_on_several_streams_follow_one_another(device, capture):
    x = torch.zeros(10000, device=device)
    graph, _ = capture(lambda: x.add_(1))
    streams = [torch.Stream(device) for _ in range(3)]
    torch.accelerator.synchronize()
    for count in range(60):
        with streams[count % 3]:
            graph.replay()
    torch.accelerator.synchronize()
    assert (x == 60).all()


# ---- host memory ----


def test_page_locked_memory_is_read_by_each_replay_and_other_memory_once(device, capture):
    pinned, plain = torch.zeros(4).pin_memory(), torch.full((4,), 7.0)
    x, y, z = (torch.zeros(4, device=device) for _ in range(3))
    back = torch.zeros(4).pin_memory()

    def copies():
        x.copy_(pinned, non_blocking=True)
        y.copy_(plain)
        z.copy_(torch.full((40000,), 2.0)[:4])
        back.copy_(x, non_blocking=True)

    graph, _ = capture(copies)
    for value in (3.0, 4.0):
        pinned.fill_(value)
        plain.fill_(-1)
        graph.replay()
        torch.accelerator.synchronize()
        assert x[0] == value and back[1] == value and y[2] == 7 and z[3] == 2


@pytest.mark.parametrize("count", [10, 100_000])
def test_a_copy_that_is_waited_for_keeps_the_values_of_page_locked_memory(device, capture, count):
    pinned, x = torch.full((count,), 3.0).pin_memory(), torch.zeros(count, device=device)
    graph, _ = capture(lambda: x.copy_(pinned))
    pinned.fill_(-1)
    graph.replay()
    assert (x == 3).all()


def test_indexing_and_tables_that_are_uploaded_are_captured(device, capture):
    x = torch.randn(2, 3, 9, 9)
    ours = x.to(device)

    def compute(t):
        pooled = torch.nn.functional.adaptive_avg_pool2d(t, (4, 5))
        return torch.nn.functional.interpolate(t, size=(5, 7), mode="bilinear"), pooled, t[:, [0, 2]], t.roll(2, 3)

    graph, results = capture(lambda: compute(ours))
    ours.copy_(x.flip(0))
    graph.replay()
    for result, expected in zip(results, compute(x.flip(0)), strict=True):
        torch.testing.assert_close(result.cpu(), expected)


# ---- calls that cannot be captured ----

IMPOSSIBLE = {
    "item": (lambda x: x.sum().item(), r"item\(\).*page-locked"),
    "cpu": (lambda x: x.cpu(), r"cpu\(\).*page-locked"),
    "nonzero": (lambda x: x.nonzero(), "captured by aten::nonzero"),
    "mask": (lambda x: x[x > 0], "captured by aten::nonzero"),
    "masked_select": (lambda x: x.masked_select(x > 0), "captured by aten::masked_select"),
    "unique": (lambda x: torch.unique(x), "captured by aten::.*unique"),
    "equal": (lambda x: torch.equal(x, x.clone()), "captured by aten::equal"),
    "synchronize": (lambda x: torch.accelerator.synchronize(), "synchronize"),
    "fallback": (lambda x: torch.linalg.qr(x.reshape(2, 2)), "aten::linalg_qr.*captured"),
    "stream query": (lambda x: torch.accelerator.current_stream().query(), "hal_stream_query"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_calls_that_cannot_be_captured_name_the_reason_and_leave_the_device_working(device, capture, what):
    x = torch.ones(4, device=device)
    function, words = IMPOSSIBLE[what]
    with pytest.raises(RuntimeError, match=words):
        capture(lambda: function(x))
    assert not torch.accelerator.current_stream().is_capturing()
    assert (x + 1).sum().item() == 8
    graph, y = capture(lambda: x + 2)
    graph.replay()
    assert y.sum().item() == 12


def test_an_error_of_the_users_reaches_the_user(device, module):
    x = torch.ones(3, device=device)
    graph = torch.accelerator.Graph()
    with pytest.raises(ZeroDivisionError):
        with module.graph(graph):
            y = x + 1
            1 / 0
    del y
    with pytest.raises(ValueError, match="of the user"):
        with module.graph(torch.accelerator.Graph()):
            try:
                x.sum().item()
            except RuntimeError:
                raise ValueError("of the user") from None


def test_an_invalidated_capture_cannot_be_replayed(device, module):
    x = torch.ones(3, device=device)
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="invalidated"):
        with module.graph(graph):
            try:
                x.sum().item()
            except RuntimeError:
                pass
    with pytest.raises(RuntimeError, match="has captured"):
        graph.replay()


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_a_program_that_swallows_the_error_gets_no_graph_without_the_operator(device, module, what):
    x = torch.ones(4, device=device)
    function, words = IMPOSSIBLE[what]
    with pytest.raises(RuntimeError, match=words):
        with module.graph(torch.accelerator.Graph()):
            with contextlib.suppress(RuntimeError):
                function(x)
    assert (x + 1).sum().item() == 8


def test_wrong_orders_are_refused(device, capture):
    graph = torch.accelerator.Graph()
    for call in (graph.replay, graph.instantiate, graph.capture_end, graph.pool):
        with pytest.raises(RuntimeError, match="capture"):
            call()
    graph, _ = capture(lambda: torch.ones(2, device=device))
    with pytest.raises(RuntimeError, match="reset"):
        with torch.Stream(device), graph:
            pass
    with torch.Stream(device):
        outer, inner = torch.accelerator.Graph(), torch.accelerator.Graph()
        outer.capture_begin()
        with pytest.raises(RuntimeError, match="already"):
            inner.capture_begin()
        with pytest.raises(RuntimeError, match="another program"):
            graph.replay()
        with pytest.raises(RuntimeError, match="another program"):
            outer.capture_end()


# ---- lifetime ----


def test_a_graph_may_capture_again_and_its_memory_comes_back(device, module):
    x = torch.ones(1 << 20, device=device)
    graph = torch.accelerator.Graph()
    torch.accelerator.synchronize()
    module.empty_cache()
    reserved = module.memory_reserved()
    for factor in range(1, 4):
        with module.graph(graph):
            y = (x * factor + 1).sum()
        graph.replay()
        assert y == (factor + 1) * (1 << 20)
        del y
        graph.reset()
        module.empty_cache()
        assert module.memory_reserved() <= reserved + (2 << 20)


def test_results_outlive_their_graph(device, capture):
    x = torch.ones(1000, device=device)
    graph, y = capture(lambda: x * 3)
    graph.replay()
    del graph
    gc.collect()
    others = [torch.zeros(1000, device=device) for _ in range(20)]
    assert (y == 3).all() and len(others) == 20


def test_graphs_share_a_pool(device, module):
    pool = module.graph_pool_handle()
    x = torch.ones(1 << 20, device=device)
    first, second = torch.accelerator.Graph(), torch.accelerator.Graph()
    with module.graph(first, pool=pool):
        (x + 1).mul_(2)
    torch.accelerator.synchronize()
    before = module.memory_reserved()
    with module.graph(second, pool=first.pool()):
        y = (x + 1).mul_(3)
    assert module.memory_reserved() == before, "the second found the first one's free memory"
    assert first.pool() == second.pool() == pool
    del first
    second.replay()
    assert y[0] == 6


def test_memory_of_a_pool_is_its_users_alone_and_graphs_share_it(device, module):
    pool, other = module.MemPool(), module.MemPool()
    assert pool.id != other.id
    with module.use_mem_pool(pool):
        inside = torch.ones(1000, device=device)
        with pytest.raises(RuntimeError, match="allocates from memory pool"):
            with module.use_mem_pool(other):
                pass
    address = inside.data_ptr()
    del inside
    outside = [torch.ones(1000, device=device) for _ in range(20)]
    assert address not in [x.data_ptr() for x in outside], "what was freed is the pool's"
    with module.use_mem_pool(pool):
        assert torch.ones(1000, device=device).data_ptr() == address
    graph = torch.accelerator.Graph(pool=pool.id)
    x = torch.ones(1000, device=device)
    with module.graph(graph):
        y = x + 1
    x.fill_(4)
    graph.replay()
    assert (y == 5).all()
    reserved = module.memory_reserved()
    del pool, graph, y
    module.empty_cache()
    assert module.memory_reserved() < reserved, "at the end it is the device's again"


def test_a_graph_that_is_kept_is_instantiated_on_request_or_by_its_first_replay(device, capture):
    x = torch.zeros(3, device=device)
    for explicit in (True, False):
        graph, _ = capture(lambda: x.add_(1), keep_graph=True)
        if explicit:
            graph.instantiate()
        graph.replay()
    assert x[0] == 2


def test_a_graph_of_another_device(device, capture, module):
    if module.device_count() < 2:
        pytest.skip("one device")
    with module.device(1):
        x = torch.zeros(5, device=f"{device}:1")
        graph, _ = capture_on(x.device, lambda: x.add_(4))
    graph.replay()
    assert x[0].item() == 4


def capture_on(device, function):
    graph, stream = torch.accelerator.Graph(), torch.Stream(device)
    with stream, graph:
        result = function()
    return graph, result


def test_other_threads_work_while_one_captures(device, module):
    x, results = torch.ones(1000, device=device), []
    graph = torch.accelerator.Graph()

    def work():
        results.append([float((x * count).sum().item()) for count in range(20)])

    torch.accelerator.synchronize()
    with module.graph(graph):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        y = x + 1
    graph.replay()
    assert results == [[1000.0 * count for count in range(20)]] and y[0] == 2


def test_streams_of_other_threads_are_never_the_captured_one(device, module):
    x, graph, results = torch.ones(1000, device=device), torch.accelerator.Graph(), []
    early = [module.Stream() for _ in range(40)]  # more than the pool has: all of its streams are in use

    def work():
        for count, stream in enumerate(early + [module.Stream() for _ in range(40)]):
            stream.wait_stream(module.current_stream())
            with module.stream(stream):
                results.append((x * count).sum().item())

    with module.graph(graph):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        y = x + 1
    graph.replay()
    assert results == [1000.0 * count for count in range(80)] and y[0] == 2


def test_threads_capture_at_the_same_time(device, module):
    x, barrier, results = torch.ones(1000, device=device), threading.Barrier(3), {}

    def work(number):
        graph = torch.accelerator.Graph()
        with module.graph(graph):
            barrier.wait(60)
            y = x * number
            barrier.wait(60)
        graph.replay()
        results[number] = y.sum().item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert results == {number: 1000.0 * number for number in range(3)}


def test_captures_in_turn_share_memory(device, module):
    x, pool, graphs = torch.ones(1 << 20, device=device), module.graph_pool_handle(), []
    for count in range(3):
        graphs.append(torch.accelerator.Graph())
        with module.graph(graphs[-1], pool=pool):
            y = (x * count).sum()
        if count == 0:
            before = module.memory_reserved()
    assert module.memory_reserved() == before
    for count, graph in enumerate(graphs):
        graph.replay()
        if count == 2:
            assert y.item() == 2 * (1 << 20)


def test_dumps_name_operators(device, tmp_path):
    x, graph = torch.ones(5, device=device), torch.accelerator.Graph()
    graph.enable_debug_mode()
    with torch.Stream(device), graph:
        (x + 1).sin()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph") and "add.Tensor" in text and "sin" in text
    with pytest.raises(RuntimeError, match="cannot write"):
        graph.debug_dump(str(tmp_path / "missing" / "graph.dot"))


def test_hooks_run_for_every_graph_until_they_are_removed(run_python):
    run_python(
        """
        import warnings
        import torch, torch_backend
        torch_backend.use("fake")
        m, x, seen = torch.fake, torch.ones(3, device="fake"), []
        plain = torch.accelerator.Graph()

        def names(graph):
            return lambda name: lambda found: (seen.append(name), found is graph or seen.append("another graph"))

        def raises(graph):
            raise ValueError("of a hook")

        events = ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end")
        note = names(plain)
        handles = [getattr(m, f"register_graph_{event}_hook")(note(event)) for event in events]
        with m.graph(plain):
            y = x + 1
        assert seen == ["capture_start", "capture_end", "instantiate"], seen
        plain.replay()
        assert seen[3:] == ["replay_start", "replay_end"] and y.tolist() == [2, 2, 2], seen
        broken = m.register_graph_replay_start_hook(raises)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plain.replay()
        assert ["of a hook" in str(each.message) for each in caught] == [True] and seen[5:] == ["replay_start", "replay_end"]
        broken.remove()
        for handle in handles:
            handle.remove()
        seen.clear()
        plain.reset()
        with m.graph(plain):
            y = x + 1
        plain.replay()
        assert not seen
        kept, seen = torch.accelerator.Graph(keep_graph=True), []
        m.register_graph_instantiate_hook(lambda found: seen.append(found is kept))
        with torch.Stream("fake"), kept:
            y = x + 2
        assert seen == []
        kept.replay()
        kept.replay()
        assert seen == [True] and y.tolist() == [3, 3, 3], seen
        kept.instantiate()
        assert seen == [True, True]
        try:
            torch.accelerator.Graph().replay()
        except RuntimeError as error:
            assert "captured" in str(error)
        else:
            raise AssertionError("a graph that has captured nothing was replayed")
        for wrong in (dict(enable_annotations=True), dict(annotation_config={"key_by": "exec"})):
            try:
                m.graph(plain, **wrong)
            except NotImplementedError:
                continue
            raise AssertionError(wrong)
        try:
            m.make_graphed_callables(torch.sin, (x,), enable_annotations=True)
        except NotImplementedError as error:
            assert "make_graphed_callables(enable_annotations=True)" in str(error)
        else:
            raise AssertionError("annotations were accepted")
        assert m.graph(plain, None, None, "global", False, True)._tracker is not None
        """
    )


def test_capturing_is_reported(device, module):
    assert not module.is_current_stream_capturing()
    with module.graph(torch.accelerator.Graph()):
        assert module.is_current_stream_capturing() and torch.accelerator.current_stream().is_capturing()
    assert not module.is_current_stream_capturing()


# ---- make_graphed_callables ----


def test_graphed_modules_train_as_the_cpu_does(device, module):
    torch.manual_seed(2)
    reference = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    first, second = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh()), torch.nn.Linear(8, 3)
    torch.nn.Sequential(*first, second).load_state_dict(reference.state_dict())
    first.to(device), second.to(device)
    sample = torch.randn(4, 6, device=device), torch.randn(4, 8, device=device, requires_grad=True)
    first, second = module.make_graphed_callables((first, second), ((sample[0],), (sample[1],)))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (reference, torch.nn.ModuleList([first, second]))]
    for _ in range(5):
        x = torch.randn(4, 6)
        ours = second(first(x.to(device)))
        expected = reference(x)
        torch.testing.assert_close(ours.cpu(), expected, rtol=1e-5, atol=1e-6)
        for optimizer, result in zip(optimizers, (expected, ours), strict=True):
            optimizer.zero_grad()
            result.square().sum().backward()
            optimizer.step()
    for a, b in zip(reference.parameters(), [*first.parameters(), *second.parameters()], strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-5)
    first.eval(), second.eval()
    torch.testing.assert_close(second(first(x.to(device))).cpu(), reference(x), rtol=1e-4, atol=1e-5)


def test_gradients_of_graphed_modules_add_up(device, module):
    reference = torch.nn.Linear(4, 2)
    ours = torch.nn.Linear(4, 2).to(device)
    ours.load_state_dict(reference.state_dict())
    ours = module.make_graphed_callables(ours, (torch.ones(3, 4, device=device, requires_grad=True),))
    kept = []
    for value in (1.0, 2.0, 4.0):
        x = torch.full((3, 4), value)
        y = x.to(device).requires_grad_()
        ours(y).square().sum().backward()
        reference(x.requires_grad_()).square().sum().backward()
        kept.append((x.grad, y.grad))
        torch.testing.assert_close(ours.weight.grad.cpu(), reference.weight.grad)
    for expected, gradient in kept:
        torch.testing.assert_close(gradient.cpu(), expected)


def test_a_graphed_function_takes_and_returns_structures(device, module):
    def function(pair, scale):
        return {"sum": (pair[0] + pair[1]) * scale, "product": pair[0] * pair[1]}

    a, b = (torch.randn(5, device=device, requires_grad=True) for _ in range(2))
    graphed = module.make_graphed_callables(function, ((a, b), torch.ones(1, device=device)))
    x, y = (torch.randn(5, device=device, requires_grad=True) for _ in range(2))
    result = graphed((x, y), torch.full((1,), 2.0, device=device))
    (result["sum"].sum() + result["product"].sum()).backward()
    torch.testing.assert_close(result["sum"], (x + y) * 2)
    torch.testing.assert_close(x.grad, 2 + y.detach())
    torch.testing.assert_close(y.grad, 2 + x.detach())
    with pytest.raises(TypeError, match="structure"):
        graphed((x, y))


def test_graphed_callables_refuse_what_they_cannot_replay(device, module):
    with pytest.raises(TypeError, match="tensors"):
        module.make_graphed_callables(lambda x, y: x, (torch.ones(1, device=device), 3))
    hooked = torch.nn.Linear(2, 2).to(device)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="hooks"):
        module.make_graphed_callables(hooked, (torch.ones(1, 2, device=device),))
    with torch.autocast(device, dtype=torch.bfloat16), pytest.raises(RuntimeError, match="cache_enabled"):
        module.make_graphed_callables(torch.nn.Linear(2, 2).to(device), (torch.ones(1, 2, device=device),))
