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


def paged_result(device, function):
    """Returns the attention over keys in pages of 16 tokens that are reserved in turns, so that sequences are not
    contiguous, and the same over the keys themselves on the CPU.
    """
    from torch.nn.attention.experimental._paged_attention import PagedAttention

    count, heads, length, width, page = 3, 4, 64, 16, 16
    query, key, value = (torch.randn(count, heads, length, width) for _ in range(3))
    pages = PagedAttention(count * length // page, page, count, device=device)
    for reserved in range(page, length + 1, page):
        for sequence in range(count):
            pages.reserve(torch.tensor(sequence, device=device), torch.tensor(reserved, device=device))
    caches = [torch.zeros(1, heads, count * length, width, device=device) for _ in range(2)]
    positions = torch.arange(length, device=device).repeat(count, 1)
    pages.assign(torch.arange(count, device=device), positions, key.to(device), value.to(device), *caches)
    mask = create_block_mask(causal, count, None, length, length, device=device, BLOCK_SIZE=page)
    score = pages.get_score_mod(lambda value, batch, head, row, column: value + (column - row) * 0.05)
    result = function(query.to(device), *caches, block_mask=pages.convert_logical_block_mask(mask), score_mod=score)
    rows, columns = torch.arange(length)[:, None], torch.arange(length)
    bias = ((columns - rows) * 0.05).masked_fill(rows < columns, -torch.inf)
    return result.cpu(), torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)


@pytest.mark.parametrize("function", [flex_attention, torch.compile(flex_attention)], ids=["eager", "compiled"])
def test_keys_and_values_in_pages(device, function):
    result, expected = paged_result(device, function)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
