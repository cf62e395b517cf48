"""The guarantees of the common prepare layer for each operator that calls a kernel directly, compared with CPU PyTorch:
results are written to out= in any layout; operands may be lazy, strided, or share a buffer with the result."""

import pytest
import torch
from native_reference import native_count
from torch_backend.fallback import strict

INDEX = torch.tensor([[3, 1, 0, 2], [0, 0, 1, 3], [2, 3, 3, 1], [1, 2, 0, 0]])

# Operators of ATen with one result, of a matrix of 4 x 4, and dtypes.
CALLS = {
    "gather": (lambda x, out: torch.gather(x, 1, INDEX.to(x.device), out=out), (torch.float32, torch.float16, torch.bool, torch.complex128)),
    "index_select": (lambda x, out: torch.index_select(x, 1, INDEX[0].to(x.device), out=out), (torch.float32, torch.int16, torch.complex128)),
    "take": (lambda x, out: torch.take(x, INDEX.to(x.device), out=out), (torch.float32, torch.uint8, torch.complex64)),
    "scatter": (lambda x, out: torch.scatter(x, 1, INDEX.to(x.device)[:, :1], x[:, 1:2].clone(), out=out), (torch.float32, torch.complex128)),
    "scatter_add": (lambda x, out: torch.scatter_add(x, 1, INDEX.to(x.device), x.clone(), out=out), (torch.float32, torch.bfloat16, torch.int32, torch.complex64)),
    "index_add": (lambda x, out: torch.index_add(x, 0, INDEX[2].to(x.device), x.clone(), out=out), (torch.float64, torch.int8, torch.complex64)),
    "cumsum": (lambda x, out: torch.cumsum(x, 0, out=out), (torch.float32, torch.int64, torch.complex64)),
    "_logcumsumexp": (lambda x, out: torch._logcumsumexp(x, 1, out=out), (torch.float32, torch.float16)),
    "where": (lambda x, out: torch.where(INDEX.to(x.device) > 1, x, x.t(), out=out), (torch.float32, torch.bool, torch.complex128)),
    "tril": (lambda x, out: torch.tril(x, 1, out=out), (torch.float32, torch.uint8, torch.complex128)),
    "var": (lambda x, out: torch.var(torch.stack((x, x.t())), dim=0, out=out), (torch.float32, torch.float64)),
    "abs": (lambda x, out: torch.abs(x, out=out), (torch.float32, torch.int32)),
}
CASES = [pytest.param(call, dtype, id=f"{name}-{str(dtype)[6:]}") for name, (call, dtypes) in CALLS.items() for dtype in dtypes]


def matrix(dtype):
    numbers = torch.arange(16).reshape(4, 4).sub(3).mul(5) % 7
    return numbers > 2 if dtype == torch.bool else numbers.to(dtype)


# Memory for a result of 4 x 4 that does not overlap `x`.
PLACES = {
    "transposed": lambda x: torch.zeros(4, 4, dtype=x.dtype, device=x.device).t(),
    "strided": lambda x: torch.zeros(4, 8, dtype=x.dtype, device=x.device)[:, ::2],
    "part": lambda x: torch.zeros(6, 4, dtype=x.dtype, device=x.device)[1:5],
    "resized": lambda x: torch.zeros(0, dtype=x.dtype, device=x.device),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call, dtype", CASES)
def test_result_is_written_to_out(device, call, dtype, place):
    theirs_x, ours_x = matrix(dtype), matrix(dtype).to(device)
    theirs, ours = PLACES[place](theirs_x), PLACES[place](ours_x)
    call(theirs_x, theirs)
    with strict():
        call(ours_x, ours)
    assert ours.stride() == theirs.stride()
    torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("call, dtype", CASES)
def test_operand_and_result_may_be_parts_of_one_buffer(device, call, dtype):
    """They do not overlap: the kernel writes in place, without a temporary that is copied."""
    theirs = torch.zeros(4, 4, dtype=dtype)
    call(matrix(dtype), theirs)
    buffer = torch.cat((matrix(dtype), torch.zeros(4, 4, dtype=dtype))).to(device)
    with strict():
        call(buffer[:4], buffer[4:])
    torch.testing.assert_close(buffer[4:].cpu(), theirs)


def test_result_adjacent_to_its_operand_needs_no_copy(device):
    buffer = torch.arange(32, dtype=torch.float32, device=device).reshape(8, 4)
    index = INDEX.to(device)
    before = native_count("copy")
    torch.gather(buffer[:4], 1, index, out=buffer[4:])
    assert native_count("copy") == before


@pytest.mark.parametrize("name", ["gather", "index_select", "where", "cumsum", "tril"])
def test_lazy_conjugates_are_operands(device, name):
    call = CALLS[name][0]
    x = torch.complex(matrix(torch.float32), matrix(torch.float32).t())
    theirs = torch.zeros(4, 4, dtype=x.dtype)
    call(x.conj(), theirs)
    with strict():
        ours = torch.zeros(4, 4, dtype=x.dtype, device=device)
        call(x.to(device).conj(), ours)
    torch.testing.assert_close(ours.cpu(), theirs)


def test_elements_of_sixteen_bytes_are_moved_natively(device):
    x = torch.complex(matrix(torch.float64), matrix(torch.float64).t())
    with strict():
        ours = x.to(device)
        assert torch.equal(ours.masked_fill(INDEX.to(device) > 1, 2j).cpu(), x.masked_fill(INDEX > 1, 2j))
        assert torch.equal(ours.flip(0, 1).cpu(), x.flip(0, 1))
        assert torch.equal(ours.t().contiguous().cpu(), x.t().contiguous())
        assert torch.equal(ours.triu().cpu(), x.triu())
        every_second = torch.zeros(4, 8, dtype=x.dtype, device=device)
        every_second[:, ::2].fill_(1 - 2j)
        assert every_second.sum().item() == 16 * (1 - 2j)


@pytest.mark.parametrize("name", ["gather", "cumsum", "index_select"])
def test_operands_of_two_devices_are_refused(device, name):
    if torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    x = matrix(torch.float32).to(f"{device}:0")
    with pytest.raises(RuntimeError, match="two devices"):
        CALLS[name][0](x, torch.zeros(4, 4, device=f"{device}:1"))
