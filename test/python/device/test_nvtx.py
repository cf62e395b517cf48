"""torch.<name>.nvtx: ranges that torch.profiler shows."""

import threading

import pytest
from torch.profiler import ProfilerActivity, profile


def names(profiler):
    return [event.name for event in profiler.events()]


def test_ranges_are_rows_of_the_profiler(module):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        assert module.nvtx.range_push("outer") == 0
        assert module.nvtx.range_push("inner") == 1
        module.nvtx.mark("here")
        assert module.nvtx.range_pop() == 1
        assert module.nvtx.range_pop() == 0
        with module.nvtx.range("step {}", 3):
            pass
        first, second = module.nvtx.range_start("first"), module.nvtx.range_start("second")
        module.nvtx.range_end(first)
        module.nvtx.range_end(second)
    assert sorted(names(profiler)) == sorted(["outer", "inner", "here", "step 3", "first", "second"])
    spans = {event.name: event.time_range for event in profiler.events()}
    assert spans["outer"].start <= spans["inner"].start <= spans["here"].start <= spans["inner"].end <= spans["outer"].end
    assert spans["first"].start <= spans["second"].start <= spans["first"].end <= spans["second"].end, "they overlap and are not nested"


def test_a_range_decorates_a_function(module):
    @module.nvtx.range("decorated")
    def function():
        return 5

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        assert function() == function() == 5
    assert names(profiler) == ["decorated"] * 2


def test_depths_are_those_of_a_thread(module):
    seen = []
    module.nvtx.range_push("main")
    thread = threading.Thread(target=lambda: seen.extend([module.nvtx.range_push("other"), module.nvtx.range_pop(), module.nvtx.range_pop()]))
    thread.start()
    thread.join()
    assert seen == [0, 0, -1] and module.nvtx.range_pop() == 0 and module.nvtx.range_pop() == -1


def test_a_range_of_one_thread_ends_in_another(module):
    number = module.nvtx.range_start("passed on")
    thread = threading.Thread(target=module.nvtx.range_end, args=(number,))
    thread.start()
    thread.join()
    with pytest.raises(ValueError, match=f"{number} is not the number of an open range"):
        module.nvtx.range_end(number)


def test_a_range_ends_with_an_exception(module):
    with pytest.raises(KeyError), module.nvtx.range("failing"):
        raise KeyError
    assert module.nvtx.range_push("next") == 0 and module.nvtx.range_pop() == 0
