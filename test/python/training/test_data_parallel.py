"""torch.nn.DataParallel does not support the device; it raises an error that names the alternative before any
computation."""

import pytest
import torch
from torch import nn

CURE = r"is not supported on 'fake'.*one device, module.to\('fake:0'\)"


@pytest.mark.parametrize("ids", [None, [0], [0, 1]], ids=str)
def test_the_class_is_refused_with_a_cure(device, ids):
    with pytest.raises(NotImplementedError, match=CURE):
        nn.DataParallel(nn.Linear(2, 2).to(device), device_ids=ids)


def test_the_function_is_refused_with_a_cure(device):
    with pytest.raises(NotImplementedError, match=CURE):
        nn.parallel.data_parallel(nn.Linear(2, 2).to(device), torch.ones(4, 2, device=device))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nn.parallel.comm.broadcast(x, [0, 1]),
        lambda x: nn.parallel.comm.broadcast_coalesced([x], [0, 1]),
        lambda x: nn.parallel.comm.scatter(x, [0, 1]),
        lambda x: nn.parallel.comm.gather([x, x.to("fake:1")]),
        lambda x: nn.parallel.comm.reduce_add([x, x.to("fake:1")]),
        lambda x: nn.parallel.comm.reduce_add_coalesced([[x], [x.to("fake:1")]]),
        lambda x: nn.parallel.replicate(nn.Linear(2, 2).to("fake"), [0, 1]),
    ],
    ids=["broadcast", "broadcast_coalesced", "scatter", "gather", "reduce_add", "reduce_add_coalesced", "replicate"],
)
def test_its_parts_are_refused_with_a_cure(device, call):
    with pytest.raises(NotImplementedError, match=CURE):
        call(torch.ones(4, 2, device=device))
