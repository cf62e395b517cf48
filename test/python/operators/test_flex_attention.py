"""flex_attention in eager mode, forward and backward, compared with the same function in float64."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def score(value, batch, head, row, column):
    return value * 0.5 + (row - column) * 0.1


def is_visible(batch, head, row, column):
    return row >= column


def written_out(query, key, value, masked):
    weights = query @ key.transpose(-1, -2) / query.size(-1) ** 0.5
    rows, columns = torch.arange(weights.size(-2))[:, None], torch.arange(weights.size(-1))
    weights = weights * 0.5 + (rows - columns) * 0.1
    if masked:
        weights = weights.masked_fill(rows < columns, -torch.inf)
    return weights.softmax(-1) @ value


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(1, 2, 16, 16), (2, 3, 33, 8)])
def test_forward_and_backward(device, shape, masked):
    length = shape[2]
    mask = create_block_mask(is_visible, 1, 1, length, length, device=device, BLOCK_SIZE=16) if masked else None
    reference = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    operands = [x.detach().float().to(device).requires_grad_() for x in reference]
    expected = written_out(*reference, masked)
    result = flex_attention(*operands, score_mod=score, block_mask=mask)
    torch.testing.assert_close(result.cpu().double(), expected, rtol=1e-4, atol=1e-5)
    expected.sin().sum().backward()
    result.sin().sum().backward()
    for ours, theirs in zip(operands, reference):
        torch.testing.assert_close(ours.grad.cpu().double(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_block_masks(device):
    mask = create_block_mask(is_visible, 1, 1, 64, 64, device=device, BLOCK_SIZE=16)
    expected = create_block_mask(is_visible, 1, 1, 64, 64, device="cpu", BLOCK_SIZE=16)
    assert mask.to_dense().device.type == device
    assert torch.equal(mask.to_dense().cpu(), expected.to_dense())
