"""torch_backend.xla.utils.utils: each helper does what its name describes, in edge cases as well."""

import gc
import os
import time
from collections import namedtuple

import pytest
import torch

from torch_backend.xla.utils import utils as xu


def test_a_cleaner_calls_once():
    called = []
    cleaner = xu.Cleaner(lambda: called.append(1))
    cleaner.close()
    del cleaner
    gc.collect()
    assert called == [1]


def test_a_temporary_folder_goes_with_its_object():
    folder = xu.TmpFolder()
    name = folder.name
    open(os.path.join(name, "file"), "w").close()
    del folder
    gc.collect()
    assert not os.path.exists(name)


def test_a_lazy_property_is_made_once():
    made = []
    one = xu.LazyProperty(lambda: made.append(1) or 7)
    assert made == [] and one.value == 7 and one.value == 7 and made == [1]


def test_sample_generators_can_be_read_again():
    generator = xu.SampleGenerator("data", 3)
    assert len(generator) == 3 and list(generator) == ["data"] * 3 and list(generator) == ["data"] * 3
    assert list(xu.SampleGenerator(0, 0)) == []


def test_function_generators_return_data_and_targets():
    pairs = list(xu.FnDataGenerator(lambda data: data * 2, 4, torch.ones, dims=[3], count=2))
    assert len(pairs) == 2 and all(torch.equal(target, data * 2) and data.shape == (4, 3) for data, target in pairs)
    assert next(iter(xu.FnDataGenerator(torch.neg, 5, torch.ones)))[0].shape == (5, 1)


def test_lists_environment_and_flags(monkeypatch):
    assert xu.as_list((1, 2)) == (1, 2) and xu.as_list([3]) == [3] and xu.as_list("ab") == ["ab"]
    monkeypatch.setenv("XU_TEST", "12")
    assert xu.getenv_as("XU_TEST", int) == 12 and xu.getenv_as("XU_MISSING", int, 5) == 5 and xu.getenv_as("XU_MISSING", int) is None
    for value, expected in (("on", True), ("1", True), ("Yes", True), ("true", True), ("y", True), ("0", False), ("", False), ("no", False)):
        monkeypatch.setenv("XU_FLAG", value)
        assert xu.check_env_flag("XU_FLAG") is expected, value
    assert xu.check_env_flag("XU_MISSING", "1") and not xu.check_env_flag("XU_MISSING")
    ilist = [1, 2]
    assert xu.list_copy_append(ilist, 3) == [1, 2, 3] and ilist == [1, 2]


class Holder:
    def __init__(self, **values):
        self.__dict__.update(values)


def test_for_each_instance_visits_each_object_once():
    tensor, other = torch.ones(1), torch.zeros(1)
    nested = {"a": [tensor, (other, {"b": tensor})], "c": Holder(inner={other}, text="x")}
    nested["self"] = nested
    seen = []
    xu.for_each_instance(nested, lambda value: isinstance(value, torch.Tensor), seen.append)
    assert len(seen) == 2 and {id(one) for one in seen} == {id(tensor), id(other)}


def test_rewriting_leaves_the_original_and_makes_lists_of_tuples():
    Pair = namedtuple("Pair", "x y")
    holder = Holder(inner=[torch.ones(1)], name="kept")
    original = {"a": (torch.ones(1), 2), "b": Pair(torch.ones(1), "y"), "c": holder, "d": None}
    result = xu.for_each_instance_rewrite(original, lambda value: isinstance(value, torch.Tensor), lambda value: value + 1)
    assert result["a"] == [torch.tensor([2.0]), 2] and isinstance(result["b"], Pair) and result["b"].x.item() == 2 and result["d"] is None
    assert result["c"] is not holder and result["c"].inner[0].item() == 2 and result["c"].name == "kept"
    assert original["a"][0].item() == 1 and holder.inner[0].item() == 1


def test_rewriting_goes_round_in_cycles_and_keeps_what_is_shared():
    shared = [torch.ones(1)]
    original = {"a": shared, "b": shared}
    original["me"] = original
    result = xu.for_each_instance_rewrite(original, lambda value: isinstance(value, torch.Tensor), lambda value: value * 3)
    assert result["a"] is result["b"] and result["a"][0].item() == 3 and result["me"] is result


def test_shapes_and_flat_tuples():
    assert xu.shape([[1, 2, 3], [4, 5, 6]]) == [2, 3] and xu.shape(5) == [] and xu.shape([]) == [0]
    assert xu.flatten_nested_tuple((1, (2, (3, [4])), ())) == (1, 2, 3, 4)


def test_printing(capsys, monkeypatch):
    xu.null_print("nothing")
    xu.eprint("printed")
    assert xu.get_print_fn(0) is xu.null_print and xu.get_print_fn(1) is xu.eprint
    monkeypatch.setenv("DEBUG", "1")
    assert xu.get_print_fn() is xu.eprint
    said = []
    assert xu.timed(lambda: time.sleep(0.01) or 9, msg="took ", printfn=said.append) == 9
    with xu.TimedScope("scope ", said.append):
        pass
    assert said[0].startswith("took ") and said[0].endswith("ms") and float(said[0][5:-2]) >= 10 and said[1].startswith("scope ")
    assert capsys.readouterr().err == "printed\n"


def test_ports_are_different():
    ports = xu.get_free_tcp_ports(5)
    assert len(set(ports)) == 5 and all(0 < port < 65536 for port in ports)


def test_parallel_work_keeps_order_and_raises():
    assert xu.parallel_work(4, lambda x, y: x * y, range(10), range(10)) == [x * x for x in range(10)]
    with pytest.raises(ZeroDivisionError):
        xu.parallel_work(2, lambda x: 1 // x, [1, 0])


def test_a_data_wrapper_names_what_is_missing():
    with pytest.raises(NotImplementedError, match="get_tensors"):
        xu.DataWrapper().get_tensors()
    with pytest.raises(NotImplementedError, match="from_tensors"):
        xu.DataWrapper().from_tensors([])


def test_a_rate_tracker_measures_samples_per_second(monkeypatch):
    from torch_backend.xla.core import _rates

    now = [100.0]
    monkeypatch.setattr(_rates.time, "monotonic", lambda: now[0])
    tracker = _rates.RateTracker(smooth_factor=0.5)
    assert tracker.rate() == 0 and tracker.global_rate() == 0
    for count, expected in ((10, 5.0), (20, 7.5), (0, 3.75)):  # 2 s each
        now[0] += 2
        tracker.add(count)
        assert tracker.rate() == expected
    assert tracker.global_rate() == 5.0
    monkeypatch.setenv("RATE_TRACKER_SMOOTHING", "0.25")
    assert _rates.RateTracker()._smooth_factor == 0.25
