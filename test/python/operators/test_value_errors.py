"""Invalid values that only the device can detect: the CPU raises immediately; the device raises once, at the next
synchronization."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from torch_backend.fallback import strict

asynchronous = pytest.mark.skipif(os.environ.get("HAL_FAKE_ASYNC") == "0", reason="every call is finished on return")
aten = torch.ops.aten


def scores(*shape, dtype=torch.float32):
    return torch.linspace(-2, 2, torch.Size(shape).numel()).reshape(shape).to(dtype)


def labels(*shape, bad):
    """Classes 0 to 2 of three, the last one invalid."""
    y = torch.arange(torch.Size(shape).numel()) % 3
    y[-1] = bad
    return y.reshape(shape)


def nll_gradient(x, y, places, reduction):
    total, grad = torch.ones((), device=x.device), torch.ones(y.shape if reduction == 0 else (), device=x.device)
    backward = aten.nll_loss2d_backward if places else aten.nll_loss_backward
    return backward(grad, x, y, None, reduction, -100, total)


# name: (a function of operands, operands by the invalid value, invalid values)
CLASSES = {
    "nll_loss none": (lambda x, y: F.nll_loss(x, y, reduction="none"), lambda bad: (scores(4, 3), labels(4, bad=bad))),
    "nll_loss mean": (F.nll_loss, lambda bad: (scores(4, 3), labels(4, bad=bad))),
    "nll_loss sum of many": (lambda x, y: F.nll_loss(x, y, reduction="sum"), lambda bad: (scores(9000, 3).exp(), labels(9000, bad=bad))),
    "nll_loss of half": (F.nll_loss, lambda bad: (scores(4, 3, dtype=torch.float16), labels(4, bad=bad))),
    "nll_loss with weight": (lambda x, y: F.nll_loss(x, y, x[0].abs()), lambda bad: (scores(4, 3), labels(4, bad=bad))),
    "nll_loss of one sample": (F.nll_loss, lambda bad: (scores(3), labels(1, bad=bad)[0])),
    "nll_loss2d": (F.nll_loss, lambda bad: (scores(2, 3, 4, 5), labels(2, 4, 5, bad=bad))),
    "nll_loss2d none": (lambda x, y: F.nll_loss(x, y, reduction="none"), lambda bad: (scores(2, 3, 4, 5), labels(2, 4, 5, bad=bad))),
    "cross_entropy": (F.cross_entropy, lambda bad: (scores(4, 3), labels(4, bad=bad))),
    "cross_entropy of images": (F.cross_entropy, lambda bad: (scores(2, 3, 4, 5), labels(2, 4, 5, bad=bad))),
    "gradient none": (lambda x, y: nll_gradient(x, y, False, 0), lambda bad: (scores(4, 3), labels(4, bad=bad))),
    "gradient mean": (lambda x, y: nll_gradient(x, y, False, 1), lambda bad: (scores(4, 3), labels(4, bad=bad))),
    "gradient of images": (lambda x, y: nll_gradient(x, y, True, 2), lambda bad: (scores(2, 3, 4, 5), labels(2, 4, 5, bad=bad))),
}
DIVISIONS = {
    "//": lambda x, y: x // y, "%": lambda x, y: x % y, "fmod": torch.fmod, "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"), "//=": lambda x, y: x.clone().floor_divide_(y),
    "%=": lambda x, y: x.clone().remainder_(y), "out": lambda x, y: torch.fmod(x, y, out=torch.empty_like(x)),
    "number // tensor": lambda x, y: 7 // y,
}  # fmt: skip
DIVISORS = {
    "dense": lambda dtype: with_zero((3, 5), dtype), "transposed": lambda dtype: with_zero((5, 3), dtype).t(),
    "strided": lambda dtype: with_zero((3, 10), dtype)[:, 1::2], "row": lambda dtype: with_zero((5,), dtype),
    "one": lambda dtype: torch.zeros((), dtype=dtype), "column": lambda dtype: with_zero((3, 1), dtype).expand(3, 5),
}  # fmt: skip
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def with_zero(shape, dtype):
    y = torch.ones(shape, dtype=dtype)
    y.view(-1)[-1] = 0
    return y


def assert_raised_once(module, call, error, match):
    with pytest.raises(error, match=match) as raised:
        call()
        module.synchronize()
    assert type(raised.value) is error
    module.synchronize()


@pytest.mark.parametrize("bad", [3, -1, 2**40, -(2**63)])
@pytest.mark.parametrize("name", CLASSES)
def test_a_target_that_is_no_class_is_an_index_error(name, bad, device, module):
    function, operands = CLASSES[name]
    x, y = operands(bad)
    if "gradient" not in name:  # the CPU's gradient ignores such targets in some shapes
        with pytest.raises(IndexError, match=f"Target {bad} is out of bounds"):
            function(x, y)
    with strict():
        assert_raised_once(module, lambda: function(x.to(device), y.to(device)), IndexError,
                           f"nll_loss_(for|back)ward: Target {bad} is out of bounds: the input has 3 classes")  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_classes_and_the_ignored_target_are_no_error(name, device, module):
    function, operands = CLASSES[name]
    for good in (0, 2, -100):
        x, y = operands(good)
        with strict():
            ours = function(x.to(device), y.to(device))
            module.synchronize()
        limit = 2**-9 if x.dtype == torch.float16 else 1e-5
        torch.testing.assert_close(ours.cpu(), function(x, y), equal_nan=True, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bad", [1.5, -0.25, float("nan"), float("inf"), -float("inf")])
def test_binary_cross_entropy_of_what_is_no_probability_is_an_error(bad, dtype, device, module):
    good, wrong = torch.rand(7, 5, dtype=dtype), torch.rand(7, 5, dtype=dtype)
    wrong[3, 2] = bad
    for operands, what in (((wrong, good), "input"), ((good, wrong), "target"), ((wrong.t(), good.t()), "input")):
        for reduction in ("none", "mean", "sum"):
            with pytest.raises(RuntimeError, match=f"all elements of {what} should be between 0 and 1"):
                F.binary_cross_entropy(*operands, reduction=reduction)
            with strict():
                assert_raised_once(module, lambda: F.binary_cross_entropy(*(t.to(device) for t in operands), reduction=reduction),
                                   RuntimeError, f"all elements of {what} should be between 0 and 1; one is -?{abs(bad)}")  # fmt: skip


@pytest.mark.parametrize("bad", [1.5, -0.25, float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_bernoulli_of_what_is_no_probability_is_an_error(bad, dtype, device, module):
    p = torch.tensor([0.0, 1.0, bad], dtype=dtype)
    for draw in (torch.bernoulli, lambda x: torch.empty(3, device=x.device).bernoulli_(x), lambda x: torch.bernoulli(x, out=torch.empty_like(x))):
        with pytest.raises(RuntimeError, match="p_in >= 0 && p_in <= 1"):
            draw(p)
        with strict():
            assert_raised_once(module, lambda: draw(p.to(device)), RuntimeError, "all elements of p should be between 0 and 1; one is ")
            assert torch.bernoulli(p[:2].to(device)).tolist() == [0, 1]


def test_the_next_number_after_1_is_no_probability(device, module):
    x = torch.nextafter(torch.ones(3, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)).to(device)
    assert_raised_once(module, lambda: F.binary_cross_entropy(x, x * 0), RuntimeError, "one is 1.0000000000000002")


def test_0_and_1_are_probabilities(device, module):
    x = torch.tensor([0.0, 1.0, 0.0, 1.0, -0.0])
    y = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    with strict():
        ours = F.binary_cross_entropy(x.to(device), y.to(device), reduction="none")
        module.synchronize()
    assert torch.equal(ours.cpu(), F.binary_cross_entropy(x, y, reduction="none"))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("name", DIVISIONS)
def test_an_integer_divided_by_a_tensor_that_holds_0_is_an_error(name, divisor, dtype, device, module):
    function = DIVISIONS[name]
    x, y = torch.arange(15, dtype=dtype).reshape(3, 5), DIVISORS[divisor](dtype)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        function(x, y)
    ours, by = x.to(device), y.to(device)
    with strict():
        assert_raised_once(module, lambda: function(ours, by), RuntimeError, "ZeroDivisionError")


@pytest.mark.parametrize("name", DIVISIONS)
def test_other_divisions_are_no_error(name, device, module):
    function = DIVISIONS[name]
    for x, y in ((torch.arange(6), torch.tensor([1, -2, 3, -4, 5, -6])), (torch.arange(6.0), torch.zeros(6)),
                 (torch.arange(0), torch.zeros(0, dtype=torch.long)), (torch.arange(6), torch.full((1,), 3))):  # fmt: skip
        with strict():
            ours = function(x.to(device), y.to(device))
            module.synchronize()
        torch.testing.assert_close(ours.cpu(), function(x, y), rtol=0, atol=0, equal_nan=True)


def test_the_last_of_a_million_divisors(device, module):
    y = with_zero((1000003,), torch.int64).to(device)
    assert_raised_once(module, lambda: y // y, RuntimeError, "floor_divide: ZeroDivisionError")


# ---- where the error is raised ----
def query(thing):
    while not thing.query():
        pass


def recorded(module):
    event = module.Event()
    event.record()
    return event


WAITS = {
    "device": lambda module, x: module.synchronize(),
    "stream": lambda module, x: module.current_stream().synchronize(),
    "stream query": lambda module, x: query(module.current_stream()),
    "event": lambda module, x: recorded(module).synchronize(),
    "event query": lambda module, x: query(recorded(module)),
    "copy to the host": lambda module, x: x.cpu(),
    "item": lambda module, x: x.sum().item(),
}
BAD = {
    "index": (lambda x: x[torch.tensor([9], device=x.device)], IndexError, "index 9 is out of bounds"),
    "class": (lambda x: F.nll_loss(x.expand(1, 4), torch.tensor([4], device=x.device)), IndexError, "Target 4 is out of bounds"),
    "probability": (lambda x: F.binary_cross_entropy(x + 1.5, x), RuntimeError, "one is 2.5"),
    "divisor": (lambda x: x.long() // (x.long() - 1), RuntimeError, "ZeroDivisionError"),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("name", BAD)
def test_every_synchronization_reports_it(name, wait, device, module):
    function, error, message = BAD[name]
    x = torch.ones(4, device=device)
    module.synchronize()
    with pytest.raises(error, match=message):
        function(x)
        WAITS[wait](module, x)
    WAITS[wait](module, x)
    module.synchronize()
    assert (x + 1).sum().item() == 8


def test_an_event_of_another_stream_reports_it_for_that_stream(device, module):
    stream, event, x = module.Stream(), module.Event(), torch.ones(4, device=device)
    module.synchronize()
    with pytest.raises(IndexError, match="index 9"):
        with stream:
            x[torch.tensor([9], device=device)]
            event.record()
        module.current_stream().synchronize()
        event.synchronize()
    module.synchronize()


@asynchronous
def test_an_event_before_the_invalid_work_does_not_report_it(device, module):
    x, bad = torch.ones(4, device=device), torch.tensor([9], device=device)
    module.synchronize()
    event = recorded(module)
    x[bad]
    event.synchronize()
    with pytest.raises(IndexError, match="index 9"):
        module.synchronize()


@asynchronous
def test_the_first_error_of_a_stream_is_reported_and_then_the_next_one(device, module):
    x, bad, worse = torch.ones(4, device=device), torch.tensor([9], device=device), torch.tensor([8], device=device)
    module.synchronize()
    x[bad]
    x[worse]
    with pytest.raises(IndexError, match="index 9"):
        module.synchronize()
    module.synchronize()
    x[worse]
    with pytest.raises(IndexError, match="index 8"):
        module.synchronize()


@pytest.mark.skipif("TORCH_BACKEND_MODE" in os.environ, reason="runs these tests in another mode")
@pytest.mark.parametrize("settings", [{"HAL_FAKE_ASYNC": "0"}, {"HAL_FAKE_DELAY": "300"}], ids=["inline", "delayed"])
def test_the_same_in_the_other_modes(settings):
    environment = {**os.environ, "TORCH_BACKEND_MODE": "other", **settings}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
