"""fill_ and zero_ write the same bytes as on the CPU, for every dtype and layout, and without a fallback."""

import pytest
import torch

import torch_backend

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
          torch.int64, torch.bool, torch.complex64, torch.complex128]  # fmt: skip
WINDOWS = {
    "all": lambda x: x,
    "transposed": lambda x: x.t(),
    "columns": lambda x: x[:, 1:3],
    "every second row": lambda x: x[::2],
    "one": lambda x: x[2, 3],
    "none": lambda x: x[:0],
    "expanded": lambda x: x[:, :1].expand(5, 4),
}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS.keys())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fill_writes_what_the_cpu_writes(device, dtype, window):
    value = 2 - 3j if dtype.is_complex else True if dtype is torch.bool else 113
    ours, expected = torch.zeros(5, 4, dtype=dtype, device=device), torch.zeros(5, 4, dtype=dtype)
    torch_backend.fallback.reset()
    window(ours).fill_(value)
    assert torch_backend.fallback.report() == []
    window(expected).fill_(value)
    assert ours.cpu().equal(expected)
    window(ours).zero_()
    window(expected).zero_()
    assert torch_backend.fallback.report() == []
    assert ours.cpu().equal(expected)


def test_large_integers_are_exact(device):
    for number in (2**53 + 1, -(2**63), 2**63 - 1):
        x = torch.empty(3, 2, dtype=torch.int64, device=device)
        x[:, 0].fill_(number)
        x[:, 1] = number
        assert x.tolist() == [[number, number]] * 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 1e-45])
def test_special_numbers(device, value):
    ours, theirs = torch.full((3,), value, device=device).cpu(), torch.full((3,), value)
    assert ours.view(torch.int32).equal(theirs.view(torch.int32))


def test_numbers_that_do_not_fit_are_refused(device):
    with pytest.raises(RuntimeError, match="cannot be converted to type int8_t without overflow"):
        torch.empty(3, dtype=torch.int8, device=device).fill_(1000)


def test_fill_from_a_tensor(device):
    x = torch.zeros(3, device=device)
    x.fill_(torch.tensor(4.0, device=device))
    assert x.tolist() == [4, 4, 4]
    x.fill_(torch.tensor(5, dtype=torch.int64))
    assert x.tolist() == [5, 5, 5]
    x.copy_(torch.tensor([1.0, 2.0, 3.0]))
    x.fill_(x[1])  # an element of the destination
    assert x.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="only supports 0-dimension value tensor"):
        x.fill_(torch.ones(2, device=device))


def test_setitem(device):
    x = torch.zeros(3, 3, device=device)
    x[1] = 7
    x[:, 2] = torch.tensor([1.0, 2.0, 3.0])
    x[x > 6] = -1
    assert x.tolist() == [[0, 0, 1], [-1, -1, 2], [0, 0, 3]]
