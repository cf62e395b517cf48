"""Lazy mode: work inside record() is deferred, fused and queued together, with the results of eager mode."""

import gc
import os
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import models
from torch_backend import lazy


@pytest.fixture(autouse=True)
def fresh_metrics():
    lazy.reset_metrics()
    yield
    assert not lazy.is_recording()


def both(function):
    """Returns the results of a function, eager and lazy, on the CPU."""
    eager = function()
    with lazy.record():
        put_off = function()
    return eager.cpu(), put_off.cpu()


# ---- what runs when ----


def test_nothing_is_queued_until_a_call_flushes(device):
    x = torch.ones(1000, device=device)
    with lazy.record():
        assert lazy.is_recording()
        y = (x + 1) * 3
        assert lazy.metrics()["queued"] == 0 and lazy.metrics()["recorded"] == 2
        assert y.shape == (1000,) and y.dtype == torch.float32, "shapes are known before anything ran"
        lazy.mark_step()
        assert lazy.metrics()["pending"] == 0 and lazy.metrics()["queued"] >= 1
        z = y - 1
    assert (z == 5).all()


@pytest.mark.parametrize("use", [
    lambda x: x.sum().item(), lambda x: x.cpu(), lambda x: bool((x > 0).any()), lambda x: x.tolist(), lambda x: repr(x),
    lambda x: torch.accelerator.synchronize(), lambda x: torch.accelerator.current_stream().synchronize(), lambda x: torch.Event(x.device).record(),
    lambda x: x.nonzero(), lambda x: x.__dlpack__(), lambda x: lazy.mark_step(), lambda x: lazy.mark_step(x.device, wait=True),
], ids=["item", "cpu", "bool", "tolist", "repr", "synchronize", "stream", "event", "nonzero", "dlpack", "mark_step", "wait"])
def test_what_needs_values_or_the_stream_queues_the_work(device, use):
    x = torch.ones(100, device=device)
    with lazy.record():
        y = x + 1
        assert lazy.metrics()["pending"] > 0
        use(y)
        assert lazy.metrics()["queued"] > 0
    assert (y == 2).all()


def test_another_stream_sees_what_it_waits_for(device):
    side = torch.Stream(device)
    x = torch.ones(10000, device=device)
    with lazy.record():
        y = x + 1
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            z = y * 2  # that stream is not lazy
        torch.accelerator.current_stream().wait_stream(side)
        w = z + y
    assert (w == 6).all()


def test_memory_used_by_another_stream_is_not_reused_too_early(device):
    side = torch.Stream(device)
    for _ in range(20):
        with lazy.record():
            y = torch.full((100000,), 3.0, device=device) + 1
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                z = y * 2
            y.record_stream(side)
            del y
            other = torch.zeros(100000, device=device)
        torch.accelerator.synchronize()
        assert (z == 8).all() and (other == 0).all()


def test_uploads_own_their_bytes(device):
    host = torch.ones(1000)
    with lazy.record():
        y = host.to(device) * 2
        host.zero_()
        assert lazy.metrics()["flushes"] == 0, "and wait for nothing"
    assert (y == 2).all()


def test_views_in_place_writes_and_resizes_are_real(device):
    def work():
        base = torch.zeros(4, 6, device=device)
        base[1:3].add_(1)
        base.t()[2].mul_(5)
        column = base[:, 0]
        column += 7
        out = torch.empty(0, device=device)
        torch.add(base, 1, out=out)
        base.resize_(2, 6)
        return torch.cat([base.flatten(), out.flatten(), column])

    eager, put_off = both(work)
    assert torch.equal(eager, put_off)


def test_random_numbers_are_those_of_eager_mode(device):
    def draw():
        torch.manual_seed(5)
        x = torch.rand(1000, device=device)
        return F.dropout(x, 0.5) + torch.randn(1000, device=device)

    eager, put_off = both(draw)
    assert torch.equal(eager, put_off)


def test_an_operator_that_the_cpu_computes_takes_part(device):
    matrix = torch.eye(4, device=device) * 2
    with lazy.record():
        y = torch.linalg.eigvalsh(matrix + 1e-3)
        z = y + 1
    torch.testing.assert_close(z.cpu(), torch.linalg.eigvalsh(matrix.cpu() + 1e-3) + 1)


# ---- what is won ----


def test_a_chain_is_one_kernel(device):
    x, y = torch.randn(1000, device=device), torch.randn(1000, device=device)

    def chain():
        return torch.sigmoid((x * y + x).relu() * 0.5 - y)

    eager = chain()
    with lazy.record():
        put_off = chain()
    assert lazy.metrics()["fused"] == 6 and lazy.metrics()["queued"] == 1
    torch.testing.assert_close(put_off.cpu(), eager.cpu(), rtol=1e-6, atol=1e-7)


def test_broadcast_operands_and_other_dtypes_are_fused_right(device):
    x, row, column = torch.randn(30, 40, device=device), torch.randn(40, device=device), torch.randn(30, 1, device=device)
    count = torch.randint(-5, 5, (30, 40), device=device)

    def mixed():
        y = x * row + column
        z = torch.where(y > 0, y, x).half()
        return (z * 2 + count.to(torch.float16)).float() - (count * 2 + 1)

    eager, put_off = both(mixed)
    torch.testing.assert_close(put_off, eager, rtol=1e-6, atol=1e-6)


def test_results_that_nothing_reads_are_not_computed(device):
    x = torch.randn(1000, device=device)
    with lazy.record():
        y = x + 1
        del y
        z = x * 2
        lazy.mark_step()
        assert lazy.metrics()["dropped"] >= 1
    assert torch.equal(z.cpu(), x.cpu() * 2)


def test_copies_and_fills_are_operators_of_the_program_and_steps_of_its_kernels(device):
    x, out = torch.randn(1000, device=device), torch.empty(1000, device=device)
    with lazy.record(lines=True):
        y = x.clone().mul_(2)
        z = torch.full_like(x, 1.5) + y
        out.zero_()
        out.copy_(z)
        text = lazy.text()
        lazy.mark_step()
        metrics = lazy.metrics()
    assert "copy" in text and "fill.Scalar" in text and __file__ in text, text
    assert metrics["queued"] == 1 and metrics["dropped"] == 1, metrics
    assert torch.equal(out.cpu(), x.cpu() * 2 + 1.5)


@pytest.mark.parametrize("dtype", [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool,
    torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("number", [0, 1, 1.75, 100])
def test_fills_and_copies_have_the_bits_of_the_cpu(device, dtype, number):
    integer = not (dtype.is_floating_point or dtype.is_complex)
    number = int(number) if integer else -number if dtype != torch.float8_e4m3fn else number
    if integer and dtype.is_signed:
        number = -number

    def work(where):
        x = torch.empty(6, 7, dtype=dtype, device=where)
        y = torch.empty(7, 6, dtype=dtype, device=where).t().fill_(number)  # dense, another order
        z = torch.zeros(6, 14, dtype=dtype, device=where)
        z[:, ::2].fill_(number)  # not dense
        x.fill_(number)
        return [t.cpu().view(torch.uint8) for t in (x.clone(), x, y.clone().contiguous(), z, x.t().contiguous(), torch.zeros_like(x).copy_(x))]

    with lazy.record():
        put_off = work(device)
    for one, other, eager in zip(put_off, work("cpu"), work(device), strict=True):
        assert torch.equal(one, other) and torch.equal(eager, other)


def test_nothing_is_compiled_from_the_second_step_on(device):
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    x, y = torch.randn(8, 16, device=device), torch.randint(4, (8,), device=device)
    compiled = []
    with lazy.record():
        for _ in range(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()
            lazy.mark_step()
            compiled.append(lazy.metrics()["compiled"])
    assert len(set(compiled[1:])) == 1, compiled


def test_each_compilation_has_its_step_line_and_cause(device):
    x, row = torch.randn(30, 40, device=device), torch.randn(40, device=device)
    with lazy.record(lines=True):
        for step in range(4):
            y = (x + 1).relu()
            if step == 2:
                kept = x * 2
                y = kept.relu()
            lazy.mark_step()
    first, second = lazy.compilations()[0], lazy.compilations()[-1]
    assert first.step == 1 and __file__ in first.line and "add_f32" in first.cause
    assert second.step == 3 and "mul_f32" in second.cause
    lazy.reset_metrics()
    with lazy.record():
        y = ((x * row) * 3).exp()
        lazy.mark_step()
        y = ((x * row[:1]) * 3).exp()
    assert "strides" in lazy.compilations()[-1].cause


def test_lines_of_a_program_in_a_folder_named_like_the_package_are_reported(device):
    x = torch.ones(8, device=device)
    code = compile("y = (x.atan() * 7).erfc().sinh()", "/home/user/torch_backend/torch/train.py", "exec")
    names = {"x": x}
    with lazy.record(lines=True):
        exec(code, names)  # its result must be used; otherwise it would be eliminated
    assert lazy.compilations()[0].line == "/home/user/torch_backend/torch/train.py:1"


def test_lines_are_distinguished_also_inside_functions_of_torch(device):
    x = torch.ones(8, device=device)
    first = test_lines_are_distinguished_also_inside_functions_of_torch.__code__.co_firstlineno
    with lazy.record(lines=True):
        for _ in range(3):  # lines that were recorded before, too
            y = torch.nn.functional.softsign(x)
            z = torch.nn.functional.softsign(y)
        text = lazy.text()
    assert all(text.count(f"{__file__}:{first + line}") >= 3 for line in (5, 6)) and z.sum() > 0, text


# ---- training ----


@pytest.mark.parametrize("name", ["digits", "resnet", "lstm", "transformer", "vae"])
def test_losses_and_weights_are_those_of_eager_mode(device, name):
    def train(context):
        torch.manual_seed(3)
        model = models.MODELS[name]().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        with context:
            for batch in models.batches(name, 20):
                batch = [part.to(device) for part in batch]
                optimizer.zero_grad()
                loss = model.loss(batch)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                lazy.mark_step()
        return torch.stack(losses).cpu(), [p.detach().cpu() for p in model.parameters()]

    eager, weights = train(torch.autograd.profiler.record_function("eager"))
    put_off, same = train(lazy.record())
    torch.testing.assert_close(put_off, eager, rtol=1e-5, atol=0)
    for one, other in zip(weights, same):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


def test_the_peak_of_a_transformers_step_is_that_of_eager_mode(device):
    module = torch.get_device_module(device)

    def peak(context):
        torch.manual_seed(3)
        model = models.MODELS["transformer"]().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        batch = [part.to(device) for part in models.batches("transformer", 1)[0]]
        with context:
            for _ in range(3):
                gc.collect()
                module.reset_peak_memory_stats()
                optimizer.zero_grad()
                model.loss(batch).backward()
                optimizer.step()
                lazy.mark_step()
            return module.max_memory_allocated()

    eager = peak(torch.autograd.profiler.record_function("eager"))
    gc.collect()
    assert peak(lazy.record()) <= eager


def test_memory_is_flat_over_many_steps_and_each_shape_compiles_once(device):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    marks = []
    with lazy.record():
        for step in range(1000):
            x = torch.randn(3 if step % 50 == 49 else 8, 16).to(device)  # a smaller last batch
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (step + 1)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            lazy.mark_step()
            marks.append((torch.accelerator.memory_allocated(), lazy.metrics()["compiled"]))
    assert marks[99] == marks[499] == marks[999]
    assert marks[1][1] == marks[48][1] and marks[49][1] == marks[999][1] <= marks[1][1] + 1, "compiled after the first step of a shape"


# ---- threads, nesting, errors ----


def test_work_of_another_thread_is_deferred_too(device):
    x = torch.zeros(100, device=device)
    with lazy.record():
        for _ in range(10):
            thread = threading.Thread(target=lambda: x.add_(1))
            thread.start()
            thread.join()
        assert lazy.metrics()["queued"] == 0
    assert (x == 10).all()


def test_a_thread_marks_steps_while_the_recordings_of_others_end(device):
    sums, failures = [], []

    def work(value):
        try:
            with torch.Stream(device):
                for _ in range(200):
                    with lazy.record():
                        x = torch.full((100,), value, device=device) * 2
                        lazy.mark_step()
                        lazy.metrics(), lazy.text(), lazy.compilations()
                    torch.accelerator.synchronize()
                sums.append((x.sum().item(), 200 * value))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(value,)) for value in (1.0, 2.0, 3.0, 4.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(sums) == 4
    assert all(found == expected for found, expected in sums)


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("count", [10, 100_000])
def test_copies_from_page_locked_memory_own_their_bytes(device, count, non_blocking):
    pinned = torch.full((count,), 3.0).pin_memory()
    with lazy.record():
        x = pinned.to(device, non_blocking=non_blocking)
        y = torch.zeros(count, device=device).copy_(pinned, non_blocking=non_blocking)
        pinned.fill_(-1)
        z = x + y
    assert (z == 6).all()


def test_a_recording_in_a_recording_is_refused_and_the_outer_one_goes_on(device):
    with lazy.record():
        y = torch.ones(10, device=device) + 1
        with pytest.raises(RuntimeError, match="lazy already"):
            with lazy.record():
                pass
        assert lazy.is_recording()
        z = y * 2
    assert (z == 4).all()


def test_a_capture_in_a_recording_and_the_other_way_round_are_refused(device):
    graph = torch.accelerator.Graph()
    with lazy.record(), pytest.raises(RuntimeError, match="already"):
        graph.capture_begin()


def test_an_exception_inside_keeps_what_was_done_before_it(device):
    x = torch.zeros(10, device=device)
    with pytest.raises(ValueError, match="mine"):
        with lazy.record():
            x.add_(1)
            raise ValueError("mine")
    assert (x == 1).all()


def test_bad_arguments_are_reported_at_their_line(device):
    x = torch.zeros(10, device=device)
    with lazy.record():
        with pytest.raises(RuntimeError, match="size"):
            x + torch.zeros(11, device=device)
        y = x + 1
    assert (y == 1).all()


def test_an_invalid_index_is_reported_and_later_work_runs(device):
    x = torch.randn(10, 3, device=device)
    with lazy.record():
        bad = x.index_select(0, torch.tensor([99]).to(device))
        with pytest.raises(IndexError, match="99"):
            torch.accelerator.synchronize()
        y = x * 2
    del bad
    assert torch.equal(y.cpu(), x.cpu() * 2)


def test_an_invalid_index_is_reported_by_a_later_event(device):
    x = torch.randn(10, 3, device=device)
    event = torch.Event(device)
    with lazy.record():
        bad = x.index_select(0, torch.tensor([99]).to(device))
        event.record()
        with pytest.raises(IndexError, match="99"):
            event.synchronize()
    del bad


def test_an_endless_recording_is_queued_with_one_warning(device, capfd):
    x = torch.zeros(10, device=device)
    with lazy.record(limit=100):
        for _ in range(1000):
            x.add_(1)
        assert lazy.metrics()["limits"] >= 8
    assert (x == 1000).all()
    assert capfd.readouterr().err.count("without a synchronization point") <= 1


def test_another_device_type_is_refused():
    with pytest.raises(ValueError, match="cpu"):
        with lazy.record("cpu"):
            pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_inside_leaves_the_parents_work_to_the_parent(device):
    x = torch.zeros(10, device=device)
    with lazy.record():
        x.add_(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert (x == 1).all()


def test_garbage_collection_in_a_recording_frees_nothing_that_is_needed(device):
    x = torch.randn(1000, device=device)
    with lazy.record():
        parts = []
        for i in range(50):
            y = (x + i).sin()
            parts.append([y, parts[-1] if parts else None])
        last = parts[-1][0]
        del parts, y
        gc.collect()
        z = last + 1
    torch.testing.assert_close(z.cpu(), (x.cpu() + 49).sin() + 1)


def test_out_of_memory_is_reported_at_its_line_and_later_work_runs(run_python):
    run_python("""
        import torch, torch_backend
        from torch_backend import lazy
        with lazy.record():
            x = torch.ones(1 << 20, device="fake")  # 4 MiB of 64
            for _ in range(100):                     # freed memory is used again, in the order of the work
                y = (x * 2).flip(0) + 1
            try:
                torch.ones(1 << 26, device="fake")
            except torch.OutOfMemoryError as error:
                assert "Tried to allocate 256.00 MiB" in str(error), error
            else:
                raise SystemExit("no error")
            z = y + x
        assert (z == 4).all()
        assert torch.fake.max_memory_allocated() <= 24 << 20, torch.fake.max_memory_allocated()
    """, TORCH_BACKEND="fake", HAL_FAKE_MEMORY=64 << 20)
