"""Streams of native handles, pauses, and the parameters of events."""

import pytest
import torch


@pytest.fixture
def handle_of(module):
    if not module.Stream().native_handle:
        pytest.skip("the plugin's streams have no handles")
    return lambda stream: stream.native_handle


def test_a_handle_finds_its_stream(device, module, handle_of):
    for index in (0, 1):
        for stream in (module.Stream(device=f"{device}:{index}"), module.default_stream(index), module.Stream(device=f"{device}:{index}", priority=-1)):
            found = module.get_stream_from_external(handle_of(stream), index)
            assert found == stream and isinstance(found, torch.Stream)
            assert module.ExternalStream(handle_of(stream), device=f"{device}:{index}") == stream
    assert module.get_stream_from_external(0) == module.default_stream()


def test_work_of_a_stream_that_was_found_is_work_of_the_stream(device, module, handle_of):
    stream = module.Stream()
    with module.stream(module.ExternalStream(handle_of(stream))):
        assert module.current_stream() == stream
        x = torch.ones(4, device=device) + 1
    stream.synchronize()
    assert x.tolist() == [2.0] * 4


def test_a_foreign_handle_is_refused_with_the_cure(device, module):
    with pytest.raises(NotImplementedError, match=rf"'{device}:1' has no stream with the native handle 0x2a.*native_handle"):
        module.get_stream_from_external(42, 1)
    with pytest.raises(RuntimeError, match="out of range"):
        module.ExternalStream(0, 7)


def test_a_pause_is_work_of_the_stream(device, module):
    """A pause of 50 ms blocks the stream for 50 ms, and not the host."""
    if not module.get_device_properties().flags & 4:  # HAL_DEVICE_ASYNC
        pytest.skip("streams run in the calling thread")
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    start.record()
    module._sleep(50_000_000)
    x = torch.ones(4, device=device) + 1
    end.record()
    assert not end.query()
    end.synchronize()
    assert start.elapsed_time(end) >= 49 and x.tolist() == [2.0] * 4
    with pytest.raises(ValueError, match="0 or more"):
        module._sleep(-1)


def test_a_pause_is_replayed(device, module):
    graph = module.Graph()
    x = torch.zeros(1, device=device)
    with module.graph(graph):
        module._sleep(1000)
        x += 1
    for _ in range(3):
        graph.replay()
    assert x.item() == 3


def test_events_take_torch_cudas_parameters_in_their_order(device, module):
    first, second = module.Event(True), module.Event(enable_timing=True, external=True)
    first.record()
    second.record()
    second.synchronize()
    assert first.elapsed_time(second) >= 0
    assert module.Event(False, True, False, False).query()
    for event in (module.Event(f"{device}:1"), module.Event(device=f"{device}:1"), module.Event(torch.device(device, 1))):
        event.record(module.current_stream(1))
        assert event.device == torch.device(device, 1) and isinstance(event, module.Event)


def replayed(module, device, event):
    """A graph that works for 50 ms, adds 1, and records the event."""
    graph, x = module.Graph(), torch.zeros(1, device=device)
    with module.graph(graph):
        module._sleep(50_000_000)
        x += 1
        event.record()
    return graph, x


def test_an_external_event_of_a_graph_is_recorded_by_each_replay(device, module):
    event, other = module.Event(external=True), module.Stream()
    graph, x = replayed(module, device, event)
    assert event.query(), "the capture has run nothing"
    for count in (1, 2, 3):
        graph.replay()
        other.wait_event(event)
        with module.stream(other):
            y = x + 0
        event.synchronize()
        assert event.query()
        other.synchronize()
        assert y.item() == count


def test_a_graph_waits_for_an_external_event_of_outside(device, module):
    event, other, x = module.Event(external=True), module.Stream(), torch.zeros(1, device=device)
    graph = module.Graph()
    with module.graph(graph):
        module.current_stream().wait_event(event)
        y = x * 2
    for value in (1, 2, 3):
        with module.stream(other):
            module._sleep(20_000_000)
            x.fill_(value)
            event.record()
        graph.replay()
        assert y.item() == 2 * value


def test_external_events_may_end_before_their_graph_and_after_it(device, module):
    event = module.Event(external=True)
    graph, x = replayed(module, device, event)
    del event
    graph.replay()
    assert x.item() == 1
    event = module.Event(external=True)
    graph, x = replayed(module, device, event)
    graph.reset()
    del graph
    event.record()
    event.synchronize()


def test_an_external_event_that_a_graph_records_has_no_time(device, module):
    event = module.Event(enable_timing=True, external=True)
    with pytest.raises(RuntimeError, match="does not support timing"):
        replayed(module, device, event)
    with pytest.raises(ValueError, match="either external or interprocess"):
        module.Event(external=True, interprocess=True)


def test_other_events_of_a_graph_stay_inside(device, module):
    event = module.Event()
    graph, _ = replayed(module, device, event)
    graph.replay()
    with pytest.raises(RuntimeError, match="record it again"):
        event.query()
