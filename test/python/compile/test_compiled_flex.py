"""flex_attention in compiled functions: forward, backward, masks and blocks, compared with eager mode."""

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

pytestmark = [pytest.mark.slow, pytest.mark.host_memory("inductor's C++ kernels read and write device addresses")]


def operands(device, shape=(2, 4, 48, 16), groups=1, dtype=torch.float32):
    batch, heads, length, width = shape
    return [torch.randn(batch, count, length, width).to(device, dtype).requires_grad_() for count in (heads, heads // groups, heads // groups)]


def causal(batch, head, row, column):
    return row >= column


def compare(device, given, *buffers, **options):
    """Compares results and gradients of a compiled call with those of eager mode."""
    inputs = [*given, *(x for x in buffers if x.requires_grad)]

    def gradients(function):
        results = function(*given, **options)
        tensors = [x for x in torch.utils._pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]
        loss = sum((x.float() * torch.arange(x.numel(), device=device).view(x.shape).sin()).sum() for x in tensors if x.requires_grad)
        return [*(x.detach() for x in tensors), *torch.autograd.grad(loss, inputs)]

    expected, results = gradients(flex_attention), gradients(torch.compile(flex_attention, fullgraph=True))
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.device.type == device and ours.stride() == theirs.stride()
        torch.testing.assert_close(ours.cpu(), theirs.cpu(), rtol=1e-4, atol=1e-4)


def test_a_modification_of_scores_a_block_mask_and_gradients(device):
    slopes = torch.rand(4, device=device).requires_grad_()

    def score(value, batch, head, row, column):
        return value + slopes[head] * (column - row)

    mask = create_block_mask(causal, 2, None, 48, 48, device=device, BLOCK_SIZE=16)
    compare(device, operands(device), slopes, score_mod=score, block_mask=mask)


def test_groups_of_heads_and_the_logarithm_of_sums(device):
    compare(device, operands(device, groups=2), enable_gqa=True, return_aux=AuxRequest(lse=True, max_scores=True))


def test_other_strides_and_no_gradients(device):
    query, key, value = (x.detach().transpose(1, 2) for x in operands(device, (2, 48, 4, 16)))
    with torch.no_grad():
        result = torch.compile(flex_attention)(query, key, value)
        expected = flex_attention(query, key, value)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected.cpu(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(device, dtype):
    given = [x.detach() for x in operands(device, dtype=dtype)]
    result, expected = torch.compile(flex_attention)(*given), flex_attention(*given)
    assert result.dtype == dtype
    torch.testing.assert_close(result.cpu(), expected.cpu(), rtol=2e-2, atol=2e-2)


def test_blocks_that_the_table_does_not_list_are_not_visible(device):
    """A table without a function: only its blocks are visible, as in torch's own kernels."""
    counts = torch.tensor([1, 2, 1], dtype=torch.int32, device=device).view(1, 1, 3)
    indices = torch.tensor([[0, 1, 2], [2, 0, 1], [1, 0, 2]], dtype=torch.int32, device=device).view(1, 1, 3, 3)
    mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=16)
    given = [x.detach() for x in operands(device)]
    visible = torch.tensor([[1, 0, 0], [1, 0, 1], [0, 1, 0]], dtype=torch.bool).repeat_interleave(16, 0).repeat_interleave(16, 1)
    expected = torch.nn.functional.scaled_dot_product_attention(*(x.cpu() for x in given), attn_mask=visible)
    torch.testing.assert_close(torch.compile(flex_attention)(*given, block_mask=mask).cpu(), expected, rtol=1e-4, atol=1e-5)


def test_rows_without_visible_keys_are_zero(device):
    mask = create_block_mask(lambda batch, head, row, column: row >= 8, None, None, 48, 48, device=device, BLOCK_SIZE=16)
    compare(device, operands(device), block_mask=mask)
    result = torch.compile(flex_attention)(*operands(device), block_mask=mask)
    assert not result[:, :, :8].any() and result[:, :, 8:].all()


def test_changing_lengths(device):
    compiled = torch.compile(lambda *given: flex_attention(*given, score_mod=lambda value, b, h, row, column: value - (row - column).abs()), dynamic=True)
    for length in (16, 33, 50):
        given = [x.detach() for x in operands(device, (1, 2, length, 16))]
        expected = flex_attention(*given, score_mod=lambda value, b, h, row, column: value - (row - column).abs())
        torch.testing.assert_close(compiled(*given).cpu(), expected.cpu(), rtol=1e-4, atol=1e-5)
