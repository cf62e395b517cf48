"""Attention of packed sequences of different lengths (torch.nn.attention.varlen), forward and backward, compared with
one call in double precision for each sequence; it runs without the CPU."""

import itertools

import pytest
import torch
from native_reference import strict
from torch.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

HEADS, SIZE = 4, 8


def packed(lengths, heads=HEADS, dtype=torch.float32, size=SIZE):
    return torch.randn(sum(lengths), heads, size).to(dtype)


def cumulative(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


def exact(query, key, value, queries, keys, window=(-1, -1), scale=None):
    """Returns results and logarithms in double precision, from the definition."""
    results, logarithms = [], []
    for q, k, v in zip(query.double().split(queries), key.double().split(keys), value.double().split(keys)):
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * (scale or q.size(-1) ** -0.5)
        at_query, at_key = torch.arange(len(q))[:, None] + len(k) - len(q), torch.arange(len(k))
        outside = torch.zeros(len(q), len(k), dtype=torch.bool)
        if window[0] >= 0:
            outside |= at_key < at_query - window[0]
        if window[1] >= 0:
            outside |= at_key > at_query + window[1]
        scores = scores.masked_fill(outside, float("-inf"))
        results.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(0), v))
        logarithms.append(scores.logsumexp(-1) if len(k) else torch.full((q.size(1), len(q)), float("-inf"), dtype=torch.double))
    return torch.cat(results), torch.cat(logarithms, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 1), (3, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("queries, keys", [((3, 5), (3, 5)), ((1, 4, 2), (6, 4, 9))], ids=str)
def test_forward_and_backward(device, dtype, window, queries, keys):
    operands = [packed(queries, dtype=dtype), packed(keys, dtype=dtype), packed(keys, dtype=dtype)]
    ours = [x.to(device).requires_grad_() for x in operands]
    places = [cumulative(x).to(device) for x in (queries, keys)]
    with strict():
        result, logarithms = varlen_attn(*ours, *places, max(queries), max(keys), window_size=window, return_aux=AuxRequest(lse=True))
    theirs = [x.double().requires_grad_() for x in operands]
    expected, expected_logarithms = exact(*theirs, list(queries), list(keys), window)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    torch.testing.assert_close(result.cpu().double(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(logarithms.cpu().double(), expected_logarithms, rtol=tolerance, atol=tolerance)
    grad = torch.randn(result.shape)
    with strict():
        gradients = torch.autograd.grad(result, ours, grad.to(device, dtype))
    for gradient, reference in zip(gradients, torch.autograd.grad(expected, theirs, grad.to(dtype).double())):
        torch.testing.assert_close(gradient.cpu().double(), reference, rtol=2 * tolerance, atol=2 * tolerance)


def test_groups_of_heads_scale_and_other_sizes_of_values(device):
    query, key, value = packed((4, 2), 6), packed((3, 5), 2), packed((3, 5), 2)
    with strict():
        result = varlen_attn(query.to(device), key.to(device), value.to(device), cumulative((4, 2)).to(device), cumulative((3, 5)).to(device), 4, 5,
                             enable_gqa=True, scale=0.3)  # fmt: skip
    torch.testing.assert_close(result.cpu().double(), exact(query, key, value, [4, 2], [3, 5], scale=0.3)[0], rtol=1e-5, atol=1e-5)


def test_sequences_without_queries_or_keys(device):
    queries, keys = (2, 0, 3), (4, 5, 0)
    query, key, value = packed(queries), packed(keys), packed(keys)
    result, logarithms = varlen_attn(query.to(device), key.to(device), value.to(device), cumulative(queries).to(device), cumulative(keys).to(device),
                                     3, 5, return_aux=AuxRequest(lse=True))  # fmt: skip
    torch.testing.assert_close(result[:2].cpu().double(), exact(query[:2], key[:4], value[:4], [2], [4])[0], rtol=1e-5, atol=1e-5)
    assert not result[2:].any() and logarithms[:, 2:].isneginf().all()


def test_causal_queries_before_all_keys_are_zero(device):
    query, key, value = packed((5,)), packed((2,)), packed((2,))
    moved = [x.to(device).requires_grad_() for x in (query, key, value)]
    result = varlen_attn(*moved, cumulative((5,)).to(device), cumulative((2,)).to(device), 5, 2, window_size=(-1, 0))
    assert not result[:3].any()
    torch.testing.assert_close(result[3:].detach().cpu().double(), exact(query, key, value, [5], [2], (-1, 0))[0][3:], rtol=1e-5, atol=1e-5)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.sum(), moved))


def test_pages_and_used_lengths(device):
    """A cache of keys in pages of 4 rows, in any order."""
    keys, queries, used = packed((4,) * 6), packed((1, 1, 2)), [3, 8, 5]
    values, table = packed((4,) * 6), torch.tensor([[5, 0], [1, 3], [4, 2]], dtype=torch.int32)
    pages = [x.reshape(6, 4, HEADS, SIZE) for x in (keys, values)]
    rows = [torch.cat([page[table[i]].flatten(0, 1)[:length] for i, length in enumerate(used)]) for page in pages]
    places = cumulative((1, 1, 2)).to(device)
    settings = dict(seqused_k=torch.tensor(used, dtype=torch.int32).to(device), block_table=table.to(device))
    with strict():
        result = varlen_attn(queries.to(device), *(page.to(device) for page in pages), places, None, 2, 8, window_size=(-1, 0), **settings)
        out = torch.empty_like(result)
        varlen_attn_out(out, queries.to(device), *(page.to(device) for page in pages), places, None, 2, 8, window_size=(-1, 0), **settings)
    torch.testing.assert_close(result.cpu().double(), exact(queries, *rows, [1, 1, 2], used, (-1, 0))[0], rtol=1e-5, atol=1e-5)
    assert torch.equal(out, result)


def test_compiled(device):
    lengths = (3, 6)
    operands = [packed(lengths).to(device) for _ in range(3)]
    places = cumulative(lengths).to(device)

    def program(query, key, value):
        return varlen_attn(query * 2, key, value, places, places, 6, 6, window_size=(-1, 0)) + 1

    torch.testing.assert_close(torch.compile(program, fullgraph=True)(*operands), program(*operands), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("places", [[1, 3, 8], [0, 5, 3], [0, 3, 9]], ids=str)
def test_wrong_lengths_are_errors_with_the_numbers(device, places):
    operands = [packed((8,)).to(device) for _ in range(3)]
    wrong, right = torch.tensor(places, dtype=torch.int32).to(device), cumulative((3, 5)).to(device)
    for pair in ((wrong, right), (right, wrong)):
        with pytest.raises(RuntimeError, match="expected increasing numbers from 0 to 8"):
            varlen_attn(*operands, *pair, 5, 5)
    with pytest.raises(RuntimeError, match="cum_seq_k 2"):
        varlen_attn(*operands, right, right[:2], 5, 5)


# ---- jagged tensors -------------------------------------------------------------------------------------------------


def jagged_inputs(dtype, heads, size, lengths=(3, 5, 1)):
    return [[torch.randn(length, heads, size).to(dtype) for length in lengths] for _ in range(3)]


def jagged_attention(parts, device, **options):
    """Returns the attention of each sequence, [heads, length, size], and the gradients of the sum of its squares."""
    operands = [torch.nested.nested_tensor(part, layout=torch.jagged, device=device).requires_grad_() for part in parts]
    with strict():
        result = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in operands), **options)
        result.transpose(1, 2).values().float().square().sum().backward()
    return [x.cpu() for x in result.unbind()], [[x.cpu() for x in operand.grad.unbind()] for operand in operands]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options, size", [({}, 16), ({"is_causal": True}, 16), ({"is_causal": True, "scale": 0.3}, 8), ({}, 10)], ids=str)
def test_jagged_tensors(device, dtype, options, size):
    """The reference is double precision, one sequence after the other. torch has no causal mask for sizes that are no
    multiple of 8.
    """
    parts = jagged_inputs(dtype, 2, size)
    results, gradients = jagged_attention(parts, device, **options)
    limits = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2**-5, "atol": 2**-4}
    for i, result in enumerate(results):
        operands = [part[i].double().transpose(0, 1).requires_grad_() for part in parts]
        expected = torch.nn.functional.scaled_dot_product_attention(*operands, **options)
        expected.square().sum().backward()
        torch.testing.assert_close(result.double(), expected, **limits)
        for gradient, operand in zip(gradients, operands):
            torch.testing.assert_close(gradient[i].double().transpose(0, 1), operand.grad, **limits)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_jagged_tensors_compiled(device):
    q, k, v = (torch.nested.nested_tensor(part, layout=torch.jagged, device=device).transpose(1, 2) for part in jagged_inputs(torch.float32, 2, 16))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    compiled = torch.compile(torch.nn.functional.scaled_dot_product_attention, fullgraph=True)(q, k, v, is_causal=True)
    torch.testing.assert_close(compiled.transpose(1, 2).values(), expected.transpose(1, 2).values(), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("causal", [False, True])
def test_dropout_of_jagged_tensors(device, causal):
    """With unit matrices as values the result is the weights after dropout, and so the masks. With these masks, results
    and gradients are those of double precision.
    """
    lengths, size, p = (40, 24, 1), 40, 0.3
    parts = jagged_inputs(torch.float32, 2, size, lengths)
    options = {"is_causal": causal, "dropout_p": p}
    torch.manual_seed(5)
    weights, _ = jagged_attention([*parts[:2], [torch.eye(n, size)[:, None].expand(n, 2, size).contiguous() for n in lengths]], device, **options)
    torch.manual_seed(5)
    results, gradients = jagged_attention(parts, device, **options)
    torch.manual_seed(5)
    again, _ = jagged_attention(parts, device, **options)
    masks = [(weight[..., : weight.size(1)] != 0).double() / (1 - p) for weight in weights]
    for i, mask in enumerate(masks):
        query, key, value = operands = [part[i].double().transpose(0, 1).requires_grad_() for part in parts]
        scores = query @ key.mT * size**-0.5
        if causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
        expected = scores.softmax(-1) * mask @ value
        expected.square().sum().backward()
        torch.testing.assert_close(results[i].double(), expected, rtol=1e-4, atol=1e-4)
        for gradient, operand in zip(gradients, operands):
            torch.testing.assert_close(gradient[i].double().transpose(0, 1), operand.grad, rtol=1e-4, atol=1e-4)
        assert torch.equal(results[i], again[i])
    places = torch.ones(24, 24, dtype=torch.bool).tril() if causal else torch.ones(24, 24, dtype=torch.bool)
    share = (masks[1][:, places] != 0).double().mean()
    assert abs(share - (1 - p)) < 0.1, share
    assert not torch.equal(masks[0][:, :24, :24], masks[1])


def test_dropout_of_packed_sequences_moves_the_generator(device):
    q, places = packed((3, 5)).to(device), cumulative((3, 5)).to(device)
    call = lambda: torch.ops.aten._flash_attention_forward(q, q, q, places, places, 5, 5, 0.5, False, False)[0].cpu()  # noqa: E731
    torch.manual_seed(1)
    first, second = call(), call()
    torch.manual_seed(1)
    assert torch.equal(call(), first) and not torch.equal(first, second)


@pytest.mark.parametrize("used", [[-1, 2], [3, 6]], ids=str)
def test_wrong_numbers_of_used_keys_are_errors_with_the_number(device, used):
    q, places = packed((3, 5)).to(device), cumulative((3, 5)).to(device)
    with pytest.raises(RuntimeError, match=rf"seqused_k\[\d\] is {next(x for x, most in zip(used, (3, 5)) if not 0 <= x <= most)}; expected a number of keys in \[0, \d\]"):
        varlen_attn(q, q, q, places, places, 5, 5, seqused_k=torch.tensor(used, dtype=torch.int32).to(device))
