"""Streams and events: PyTorch's generic classes and the functions of torch.fake."""

import os

import pytest
import torch

asynchronous = pytest.mark.skipif(os.environ.get("HAL_FAKE_ASYNC") == "0", reason="every call is finished on return")


def long_work(device, rounds=30):
    """Queues work that runs long compared with a query."""
    matrix = torch.full((512, 512), 1e-3, device=device)
    for _ in range(rounds):
        matrix = matrix @ matrix
    return matrix


def test_the_default_stream_is_current_at_first_and_has_id_zero(module, device):
    assert module.current_stream() == module.default_stream() == torch.accelerator.current_stream()
    assert module.default_stream(1).device == torch.device(device, 1)
    assert module.default_stream().stream_id == 0


def test_new_streams_differ_until_the_pool_is_used_up(module, device):
    streams = {torch.Stream(device=device).stream_id for _ in range(32)}
    assert len(streams) == 32 and 0 not in streams
    assert torch.Stream(device=device).stream_id in streams  # round robin, like c10's CUDA pool


def test_priorities_come_from_different_pools(device):
    normal = {torch.Stream(device=device).stream_id for _ in range(32)}
    high = {torch.Stream(device=device, priority=-1).stream_id for _ in range(32)}
    assert normal.isdisjoint(high)


def test_stream_context_switches_device_and_stream_and_restores_both(module, device):
    stream = module.Stream(device=f"{device}:1")
    with pytest.raises(KeyError):
        with module.stream(stream):
            assert module.current_stream(1) == stream and module.current_device() == 1
            with module.stream(None):
                assert module.current_stream(1) == stream
            raise KeyError
    assert module.current_device() == 0 and module.current_stream(1) == module.default_stream(1)
    with stream:
        assert torch.accelerator.current_stream(f"{device}:1") == stream
    assert module.current_stream(1) == module.default_stream(1)


def test_set_stream(module, device):
    stream = module.Stream(device=device)
    module.set_stream(stream)
    try:
        assert module.current_stream() == stream
        module.set_stream(None)
        assert module.current_stream() == stream
    finally:
        module.set_stream(module.default_stream())


def test_current_streams_are_per_thread(module, device):
    import threading

    seen = []
    with module.stream(module.Stream(device=device)):
        thread = threading.Thread(target=lambda: seen.append(module.current_stream().stream_id))
        thread.start()
        thread.join()
    assert seen == [0]


@asynchronous
def test_an_event_is_not_done_before_the_work_in_front_of_it(module, device):
    event = module.Event()
    assert event.query()  # an event that was never recorded is complete
    with module.stream(module.Stream(device=device)) as _:
        result = long_work(device)
        event.record()
        assert not event.query()
        assert not module.current_stream().query()
        event.synchronize()
        assert event.query() and module.current_stream().query()
    assert torch.isfinite(result).all()


def test_a_stream_waits_for_an_event_of_another_stream(module, device):
    producer, consumer = module.Stream(device=device), module.Stream(device=device)
    value = torch.zeros(1 << 16, device=device)
    module.synchronize()
    with module.stream(producer):
        long_work(device)
        value.fill_(7)
        event = producer.record_event()
    with module.stream(consumer):
        consumer.wait_event(event)
        copy = value + 0
    consumer.synchronize()
    assert copy.eq(7).all().item()


def test_wait_stream(module, device):
    side = module.Stream(device=device)
    with module.stream(side):
        long_work(device)
        value = torch.full((1024,), 3.0, device=device)
    value.record_stream(module.current_stream())
    module.current_stream().wait_stream(side)
    assert (value * 2).eq(6).all().item()


def test_elapsed_time_is_that_of_the_work_between_the_events(module, device):
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    long_work(device)
    start.record()
    long_work(device)
    end.record()
    end.synchronize()
    import time

    module.synchronize()
    begin = time.perf_counter()
    long_work(device)
    module.synchronize()
    wall = 1e3 * (time.perf_counter() - begin)
    assert wall / 5 < start.elapsed_time(end) < wall * 5


def test_elapsed_time_without_timing_is_refused(module, device):
    start, end = module.Event(), module.Event()
    start.record(), end.record(), end.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="timing"):
        start.elapsed_time(end)


def test_an_event_belongs_to_one_device(module, device):
    event = module.Event()
    event.record(module.current_stream(0))
    with pytest.raises(RuntimeError, match="device"):
        event.record(module.current_stream(1))


def test_an_event_is_waited_for_across_devices(module, device):
    with module.device(1):
        long_work(f"{device}:1")
        value = torch.full((64,), 5.0, device=f"{device}:1")
        event = module.current_stream(1).record_event()
    module.current_stream(0).wait_event(event)
    assert value.to(f"{device}:0").eq(5).all().item()


def test_memory_freed_on_one_stream_is_not_reused_under_another_that_uses_it(module, device):
    """Without record_stream, the block would be overwritten while `side` still reads it."""
    side = module.Stream(device=device)
    for _ in range(10):
        value = torch.full((1 << 18,), 1.0, device=device)
        side.wait_stream(module.current_stream())
        with module.stream(side):
            long_work(device, 3)
            total = value.sum()
        value.record_stream(side)
        del value
        torch.full((1 << 18,), 2.0, device=device)
        side.synchronize()
        assert total.item() == 1 << 18


def test_native_handle_is_returned(module, device):
    assert isinstance(module.Stream(device=device).native_handle, int)


def test_synchronize_takes_every_form_of_device(module, device):
    for form in (None, 0, f"{device}:1", torch.device(device, 1)):
        module.synchronize(form)
    torch.accelerator.synchronize()


def test_backward_runs_on_the_streams_of_the_forward(module, device):
    stream = module.Stream(device=device)
    with module.stream(stream):
        weight = torch.ones(256, 256, device=device, requires_grad=True)
        (weight @ weight).sum().backward()
    stream.synchronize()
    assert weight.grad.eq(512).all().item()


def test_streams_and_events_are_torchs_generic_ones(module, device):
    """The documented behavior of torch.Stream and torch.Event, without torch.fake."""
    stream = torch.Stream(device=f"{device}:1", priority=-1)
    assert (stream.device, stream.device_index, stream.device_type) == (torch.device(device, 1), 1, int(torch._C._autograd.DeviceType.PrivateUse1))
    assert stream == torch.Stream(stream_id=stream.stream_id, device_index=1, device_type=stream.device_type)
    assert hash(stream) == hash(module.current_stream(1)) or stream != module.current_stream(1)
    assert torch.Stream().device.type == torch.Event().device.type == device  # the accelerator's without a device
    with stream:
        assert torch.accelerator.current_device_index() == 1
        event = torch.Event(device=device, enable_timing=True)
        event.record()
    event.synchronize()
    assert event.query() and event.device == torch.device(device, 1) and event.event_id != 0
    assert torch.accelerator.current_device_index() == 0
    event.wait(module.current_stream())
    event.record(stream)
    stream.wait_event(event)
    stream.wait_stream(torch.Stream(device=device))
    assert stream.record_event(torch.Event(device=device)).device == stream.device
    stream.synchronize()
    assert stream.query() and f"device_type={device}" in repr(stream) and f"device_type={device}" in repr(event)


def test_times_of_events_that_are_not_there_are_refused(module, device):
    start, end = torch.Event(device=device, enable_timing=True), torch.Event(device=device, enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record(), end.record(), end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_events_without_interprocess_cannot_be_shared(device):
    event = torch.Event(device=device, interprocess=True)
    event.record()
    with pytest.raises(NotImplementedError, match="ipc"):
        event.ipc_handle()


def test_a_stream_of_another_device_type_is_refused(module, device):
    stream = torch.Stream(device="cpu")
    for use in (lambda: module.set_stream(stream), lambda: module.stream(stream).__enter__(), lambda: torch.Event(device=device).record(stream),
                lambda: module.current_stream().wait_stream(stream), lambda: torch.ones(1, device=device).record_stream(stream)):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError), match="(?i)cpu"):
            use()


@pytest.mark.parametrize("wrong", ["x", 3, object()])
def test_an_invalid_stream_is_refused(module, wrong):
    with pytest.raises(TypeError):
        module.set_stream(wrong)
    with pytest.raises((TypeError, AttributeError)):
        with module.stream(wrong):
            pass
