"""Optimizers in graphs: each replay is a step, or the capture is refused."""

import pytest
import torch
from torch import optim

ON_HOST = [
    (optim.Adam, {}), (optim.Adam, {"amsgrad": True}), (optim.Adam, {"foreach": False}), (optim.AdamW, {}), (optim.Adamax, {}),
    (optim.NAdam, {}), (optim.RAdam, {}), (optim.ASGD, {}), (optim.Adadelta, {}), (optim.RMSprop, {}), (optim.Rprop, {}),
]  # fmt: skip
CAPTURABLE = [(cls, options | {"capturable": True}) for cls, options in ON_HOST]
WITHOUT_COUNTS = [(optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.Adagrad, {}), (optim.Adagrad, {"foreach": False})]


def make(cls, options, place):
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, 5).to(place))
    optimizer = cls([parameter], **options)
    parameter.grad = torch.linspace(0.5, 2, 5).to(place)
    return parameter, optimizer


def capture(device, optimizer):
    graph = torch.get_device_module(device).Graph()
    with torch.get_device_module(device).graph(graph):
        optimizer.step()
    return graph


@pytest.mark.parametrize("cls, options", CAPTURABLE + WITHOUT_COUNTS)
def test_each_replay_is_a_step(device, cls, options):
    expected, reference = make(cls, {key: value for key, value in options.items() if key != "capturable"}, "cpu")
    parameter, optimizer = make(cls, options, device)
    for _ in range(2):
        optimizer.step()
    graph = capture(device, optimizer)
    for _ in range(6):
        graph.replay()
    for _ in range(8):
        reference.step()
    torch.testing.assert_close(parameter.cpu(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls, options", ON_HOST)
def test_a_count_on_the_host_is_refused(device, cls, options):
    parameter, optimizer = make(cls, options, device)
    optimizer.step()
    with pytest.raises(RuntimeError, match=f"{cls.__name__}.*captur"):
        capture(device, optimizer)
    before = parameter.tolist()
    optimizer.step()  # outside a capture it works as before
    assert parameter.tolist() != before


def test_a_decaying_learning_rate_is_refused(device):
    _, optimizer = make(optim.Adagrad, {"lr_decay": 0.1}, device)
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"Adagrad.step\(\) cannot be captured.*lr_decay=0"):
        capture(device, optimizer)
