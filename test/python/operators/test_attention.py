"""Scaled dot product attention: the device's own forward and backward kernels compared with the CPU, the selection of
the implementation, dropout."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_backend import fallback

OVERRIDEABLE = SDPBackend.OVERRIDEABLE.value
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def operands(dtype=torch.float32, batch=2, heads=4, kv_heads=None, queries=5, keys=7, size=8, value_size=None, seed=0):
    torch.manual_seed(seed)
    kv_heads = kv_heads or heads
    shapes = (heads, queries, size), (kv_heads, keys, size), (kv_heads, keys, value_size or size)
    return [torch.randn(batch, *shape).to(dtype) for shape in shapes]


def run(place, tensors, mask=None, learned=True, **options):
    """Returns the result and the gradients of the operands, and of a floating mask that is `learned`."""
    leaves = [t.detach().to(place).requires_grad_() for t in tensors]
    if mask is not None:
        mask = mask.detach().to(place).requires_grad_(learned and mask.is_floating_point())
    result = F.scaled_dot_product_attention(*leaves, attn_mask=mask, **options)
    assert result.device.type == place
    result.double().sin().sum().backward()
    grads = [leaf.grad for leaf in leaves] + ([mask.grad] if mask is not None and mask.requires_grad else [])
    return [t.detach().cpu() for t in (result, *grads)]


def compare(device, tensors, mask=None, **options):
    assert choice(device, tensors, mask, **options) == OVERRIDEABLE
    tolerance = TOLERANCE[tensors[0].dtype]
    # The CPU's fast kernel has no gradient of the mask; its composite is the reference.
    with sdpa_kernel(SDPBackend.MATH):
        reference = run("cpu", tensors, mask, **options)
    for ours, theirs in zip(run(device, tensors, mask, **options), reference, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def choice(device, tensors, mask=None, **options):
    tensors = [t.to(device) for t in tensors]
    return torch._fused_sdp_choice(*tensors, None if mask is None else mask.to(device), **options)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"scale": -1.5}], ids=str)
def test_attention_equals_the_cpu(device, dtype, options):
    compare(device, operands(dtype), **options)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (2, 1, 5, 7), (1, 4, 1, 7), (2, 4, 5, 7)], ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_every_broadcast_shape(device, shape, kind):
    torch.manual_seed(1)
    compare(device, operands(), torch.rand(shape) > 0.3 if kind == "bool" else torch.randn(shape))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_fully_masked_row_has_the_cpus_result(device, kind):
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    if kind == "float":
        mask = torch.zeros(5, 7).masked_fill(~mask, -torch.inf)
    tensors = operands()
    compare(device, tensors, mask)
    result = F.scaled_dot_product_attention(*(t.to(device) for t in tensors), attn_mask=mask.to(device))
    assert result[:, :, 2].eq(0).all() and result.isfinite().all()


def test_more_queries_than_keys_and_another_size_of_values(device):
    compare(device, operands(queries=9, keys=3, size=4, value_size=6), is_causal=True)


def test_numbers_that_are_not_finite_pass_through_as_on_the_cpu(device):
    query, key, value = operands()
    query[0, 0, 1, 0], query[1, 2, 3, 1], value[0, 1, 2, 3] = torch.nan, torch.inf, -torch.inf
    with sdpa_kernel(SDPBackend.MATH):
        theirs = F.scaled_dot_product_attention(query, key, value)
    ours = F.scaled_dot_product_attention(*(t.to(device) for t in (query, key, value)))
    torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_groups_of_query_heads_share_keys_and_values(device, kv_heads):
    compare(device, operands(kv_heads=kv_heads), enable_gqa=True)
    compare(device, operands(kv_heads=kv_heads), torch.randn(2, 4, 5, 7), enable_gqa=True)


def test_operands_and_results_keep_the_order_of_dimensions(device):
    """Heads are usually a transposed view of (batch, sequence, head, number)."""
    tensors = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in operands()]
    compare(device, tensors)
    query = tensors[0].to(device)
    result = F.scaled_dot_product_attention(query, *(t.to(device) for t in tensors[1:]))
    assert result.stride() == query.stride()


@pytest.mark.parametrize("empty", [{"batch": 0}, {"queries": 0}, {"keys": 0}, {"heads": 0}], ids=str)
def test_empty_operands(device, empty):
    sizes = {"batch": 2, "heads": 4, "queries": 5, "keys": 7, **empty}
    shapes = (sizes["queries"], 8), (sizes["keys"], 8), (sizes["keys"], 8)
    tensors = [torch.ones(sizes["batch"], sizes["heads"], *shape) for shape in shapes]
    for ours, theirs in zip(run(device, tensors), run("cpu", tensors), strict=True):
        torch.testing.assert_close(ours, theirs)
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    result, logarithms, *_ = operator(*(t.to(device) for t in tensors))
    torch.testing.assert_close(result.cpu(), run("cpu", tensors)[0])
    assert logarithms.shape == tensors[0].shape[:3]


def test_the_operator_itself_returns_all_its_outputs(device):
    query, key, value = operands()
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    outputs = operator(*(t.to(device) for t in (query, key, value)), is_causal=True, return_debug_mask=True)
    scores = (query @ key.mT / 8**0.5).masked_fill(torch.ones(5, 7, dtype=torch.bool).tril().logical_not(), -torch.inf)
    torch.testing.assert_close(outputs[0].cpu(), scores.softmax(-1) @ value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outputs[1].cpu(), scores.logsumexp(-1), rtol=1e-5, atol=1e-6)
    assert outputs[2] is None and outputs[3] is None and outputs[4:6] == (5, 7)
    torch.testing.assert_close(outputs[8].cpu(), scores.softmax(-1), rtol=1e-5, atol=1e-6)


def test_operands_of_three_dimensions(device):
    tensors = [t[0] for t in operands()]
    for ours, theirs in zip(run(device, tensors), run("cpu", tensors), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    result = operator(*(t.to(device) for t in tensors))[0]
    torch.testing.assert_close(result.cpu(), run("cpu", tensors)[0], rtol=2e-5, atol=2e-5)


# ---- the fused kernel: without dropout and without a gradient of the mask ----


def exact(tensors, mask=None, **options):
    """Result and gradients on the CPU in float64, by the formula."""
    mask = mask.double() if mask is not None and mask.is_floating_point() else mask
    with sdpa_kernel(SDPBackend.MATH):
        return run("cpu", [t.double() for t in tensors], mask, learned=False, **options)


def compare_exactly(device, tensors, mask=None, **options):
    tolerance = TOLERANCE[tensors[0].dtype]
    theirs = exact(tensors, mask, **options)
    for ours, want in zip(run(device, tensors, mask, learned=False, **options), theirs, strict=True):
        torch.testing.assert_close(ours.double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(32, 32, 16), (33, 65, 20), (1, 130, 64), (130, 1, 3), (700, 900, 8)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_lengths_that_are_no_multiples_of_blocks(device, dtype, sizes, causal):
    queries, keys, size = sizes
    compare_exactly(device, operands(dtype, 1, 2, 1, queries, keys, size), is_causal=causal, enable_gqa=True)


@pytest.mark.parametrize("shape", [(7,), (5, 7), (1, 7), (5, 1), (2, 1, 5, 7), (1, 4, 1, 7), (2, 4, 5, 7), (2, 1, 1, 7)], ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_constant_masks_of_every_broadcast_shape(device, shape, dtype):
    torch.manual_seed(1)
    compare_exactly(device, operands(dtype), torch.randn(shape).to(dtype))
    compare_exactly(device, operands(dtype), torch.rand(shape) > 0.3)


def written_out(tensors, mask):
    """The weights in float32 or float64 as the kernels compute them: scores are negligible compared with a large number
    in the mask."""
    query, key, value = leaves = [t.detach().to(mask.dtype, copy=True).requires_grad_() for t in tensors]
    result = (query @ key.mT / query.size(-1) ** 0.5 + mask).softmax(-1) @ value
    (result * torch.arange(result.numel()).view(result.shape).cos()).sum().backward()
    return [result.detach()] + [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("number", ["lowest", -1e8, 1e8, -1e4, -1000])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("keys", [4, 7, 130])
def test_rows_that_are_masked_throughout_by_a_large_finite_number(device, dtype, number, keys):
    """Masks of padded sequences, as models create them. With such large numbers, float32 loses all digits of log(keys).
    """
    number = torch.finfo(dtype).min if number == "lowest" else number
    if abs(number) > torch.finfo(dtype).max:
        pytest.skip("the number has no place in the dtype")
    torch.manual_seed(1)
    tensors = operands(dtype, 1, 2, 2, 37, keys, 8)
    mask = torch.zeros(37, keys, dtype=dtype)
    mask[0] = mask[5] = mask[36] = number
    mask[3, : keys // 2] = number
    theirs = written_out(tensors, mask.to(torch.promote_types(dtype, torch.float32)))
    leaves = [t.to(device).requires_grad_() for t in tensors]
    result = F.scaled_dot_product_attention(*leaves, attn_mask=mask.to(device))
    (result * torch.arange(result.numel()).view(result.shape).cos().to(device)).sum().backward()
    ours = [result.detach()] + [leaf.grad for leaf in leaves]
    tolerance = max(TOLERANCE[dtype], 0 if dtype is torch.float64 else 2e-4)
    for got, want in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got.cpu().to(want.dtype), want, rtol=tolerance, atol=tolerance * want.abs().max().item())


def test_a_transposed_and_an_expanded_mask(device):
    torch.manual_seed(1)
    compare_exactly(device, operands(), torch.randn(7, 5).mT)
    compare_exactly(device, operands(), torch.randn(2, 1, 5, 7).expand(2, 4, 5, 7))


def test_operands_that_are_parts_of_one_projection(device):
    """The layout of models: (batch, sequence, 3, head, number), also for the gradients."""
    packed = torch.randn(2, 9, 3, 4, 16)
    results = []
    for place, dtype in ((device, torch.float32), ("cpu", torch.float64)):
        leaf = packed.to(place, dtype).requires_grad_()
        result = F.scaled_dot_product_attention(*leaf.permute(2, 0, 3, 1, 4).unbind(), is_causal=True)
        result.sin().sum().backward()
        results.append((result.detach().cpu().double(), leaf.grad.cpu().double()))
    torch.testing.assert_close(results[0], results[1], rtol=2e-5, atol=2e-5)


def test_rows_whose_numbers_are_not_adjacent_and_an_expanded_gradient(device):
    query, key, value = (t.mT.contiguous().mT for t in operands())
    compare_exactly(device, (query, key, value))
    leaf = query.to(device).requires_grad_()
    F.scaled_dot_product_attention(leaf, key.to(device), value.to(device)).sum().backward()
    reference = query.double().requires_grad_()
    F.scaled_dot_product_attention(reference, key.double(), value.double()).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu().double(), reference.grad, rtol=2e-5, atol=2e-5)


def test_expanded_keys_and_values(device):
    query, key, value = operands(kv_heads=1)
    compare_exactly(device, (query, key.expand(2, 4, 7, 8), value.expand(2, 4, 7, 8)))


@pytest.mark.parametrize("size", [256, 257])
def test_heads_around_the_largest_that_the_kernel_takes(device, size):
    compare_exactly(device, operands(batch=1, heads=2, size=size))


def test_a_long_sequence_keeps_no_matrix_of_weights(device):
    length, heads = 2048, 2
    tensors = [t.to(device).requires_grad_() for t in operands(batch=1, heads=heads, queries=length, keys=length, size=8)]
    torch.fake.synchronize()
    torch.fake.reset_peak_memory_stats()
    before = torch.fake.memory_allocated()
    F.scaled_dot_product_attention(*tensors, is_causal=True).sum().backward()
    torch.fake.synchronize()
    assert torch.fake.max_memory_allocated() - before < heads * length * length * 4 / 4


def test_gradients_are_those_of_finite_differences(device):
    tensors = [t.to(device).requires_grad_() for t in operands(torch.float64, 1, 4, 2, queries=4, keys=3, size=3)]
    mask = torch.randn(4, 3, dtype=torch.float64, device=device)
    assert torch.autograd.gradcheck(lambda *leaves: F.scaled_dot_product_attention(*leaves, mask, enable_gqa=True), tensors)


def test_one_gradient_alone(device):
    tensors = operands(queries=40, keys=70)
    want = exact(tensors)[1:]
    for i in range(3):
        leaves = [t.to(device).requires_grad_(n == i) for n, t in enumerate(tensors)]
        F.scaled_dot_product_attention(*leaves).sin().sum().backward()
        torch.testing.assert_close(leaves[i].grad.cpu().double(), want[i], rtol=2e-5, atol=2e-5)


def test_a_float_mask_with_operands_in_half_precision(device):
    mask = torch.randn(5, 7) * 30
    query, key, value = (t.to(device) for t in operands(torch.bfloat16))
    ours = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(query, key, value, mask.to(device))[0]
    theirs = F.scaled_dot_product_attention(*(t.float() for t in operands(torch.bfloat16)), mask)
    torch.testing.assert_close(ours.cpu().float(), theirs, rtol=1e-2, atol=1e-2)


def test_a_mask_that_does_not_broadcast_is_refused(device):
    tensors = [t.to(device) for t in operands()]
    with pytest.raises(RuntimeError, match="must match the size|broadcast|must be broadcastable"):
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable(*tensors, torch.ones(5, 6, device=device))


# ---- dropout ----


def dropped_weights(device, seed, p=0.25):
    """With unit matrices as values, the result is the weights after dropout."""
    query, key, _ = (t.to(device) for t in operands(queries=40, keys=50))
    value = torch.eye(50, device=device).expand(2, 4, 50, 50)
    torch.manual_seed(seed)
    return F.scaled_dot_product_attention(query, key, value, dropout_p=p).cpu()


def test_dropout_scales_what_it_keeps_and_drops_the_right_share(device):
    p, dropped, all_weights = 0.25, dropped_weights(device, 3), dropped_weights(device, 3, p=0.0)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], all_weights[kept] / (1 - p), rtol=1e-5, atol=1e-7)
    count, deviation = dropped.numel(), (dropped.numel() * p * (1 - p)) ** 0.5
    assert abs((~kept).sum().item() - p * count) < 5 * deviation


def test_dropout_follows_the_seed_and_moves_on(device):
    torch.testing.assert_close(dropped_weights(device, 3), dropped_weights(device, 3), rtol=0, atol=0)
    assert not torch.equal(dropped_weights(device, 3), dropped_weights(device, 4))
    query, key, value = (t.to(device) for t in operands())
    first, second = (F.scaled_dot_product_attention(query, key, value, dropout_p=0.5) for _ in range(2))
    assert not torch.equal(first.cpu(), second.cpu())


def test_the_backward_pass_drops_what_the_forward_pass_dropped(device):
    query, key, _ = (t.to(device) for t in operands(queries=40, keys=50))
    value = torch.randn(2, 4, 50, 6).to(device).requires_grad_()
    torch.manual_seed(3)
    result = F.scaled_dot_product_attention(query, key, value, dropout_p=0.25)
    torch.rand(10, device=device)  # random numbers generated between the passes must not change the result
    direction = torch.randn(2, 4, 40, 6)
    result.backward(direction.to(device))
    weights = dropped_weights(device, 3)
    torch.testing.assert_close(result.detach().cpu(), weights @ value.detach().cpu(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(value.grad.cpu(), weights.mT @ direction, rtol=1e-5, atol=1e-5)


def test_everything_dropped_is_zero(device):
    result = F.scaled_dot_product_attention(*(t.to(device) for t in operands()), dropout_p=1.0)
    assert result.eq(0).all()


def test_gradients_with_dropout_are_those_of_finite_differences(device):
    tensors = [t.to(device).requires_grad_() for t in operands(torch.float64, batch=1, heads=2, queries=3, keys=4, size=3)]

    def attend(*leaves):
        torch.manual_seed(5)
        return F.scaled_dot_product_attention(*leaves, dropout_p=0.3)

    assert torch.autograd.gradcheck(attend, tensors)


# ---- the selection of the implementation ----


def test_no_operator_of_attention_falls_back_to_the_cpu(device):
    tensors = [t.to(device).requires_grad_() for t in operands()]
    fallback.reset()
    F.scaled_dot_product_attention(*tensors).sum().backward()
    assert not [row for row in fallback.report() if "softmax" in row.op or "bmm" in row.op or "attention" in row.op]


def test_the_users_choice_of_backends_is_used(device):
    tensors = operands()
    with sdpa_kernel(SDPBackend.MATH):
        assert choice(device, tensors) == SDPBackend.MATH.value
    flash, efficient = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
    for fused in (SDPBackend.OVERRIDEABLE, flash, efficient, [flash, efficient], SDPBackend.CUDNN_ATTENTION, [flash, SDPBackend.MATH]):
        with sdpa_kernel(fused):
            assert choice(device, tensors) == OVERRIDEABLE


def test_no_enabled_backend_is_an_error(device):
    tensors = [t.to(device) for t in operands()]
    with sdpa_kernel(SDPBackend.MATH):
        torch.backends.cuda.enable_math_sdp(False)
        for call in (torch._fused_sdp_choice, F.scaled_dot_product_attention):
            with pytest.raises(RuntimeError, match="No viable backend.*turning off both"):
                call(*tensors)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No viable backend.*Enable SDPBackend.MATH"):
        F.scaled_dot_product_attention(*(t[0, 0] for t in tensors))


def test_a_transformer_layer_trains_as_on_the_cpu(device):
    losses = {}
    for place in ("cpu", device):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        x = torch.randn(3, 6, 16)
        layer.to(place)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        losses[place] = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = layer(x.to(place), is_causal=True, src_mask=torch.nn.Transformer.generate_square_subsequent_mask(6).to(place)).square().mean()  # fmt: skip
            loss.backward()
            optimizer.step()
            losses[place].append(loss.item())
    assert losses[device] == pytest.approx(losses["cpu"], rel=1e-4)
    assert losses[device][-1] < losses[device][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q, k.double(), v), "key is double, query is float"),
        (lambda q, k, v: (q, k[..., :4], v), "key has 4 numbers per head, query has 8"),
        (lambda q, k, v: (q, k, v[:, :, :3]), "does not fit key"),
        (lambda q, k, v: (q[:, :3], k[:, :2], v[:, :2]), "3 heads of query cannot share 2 heads of key"),
        (lambda q, k, v: (q.long(), k.long(), v.long()), "floating dtype"),
        (lambda q, k, v: (q[0, 0], k[0, 0], v[0, 0]), "3 or 4 dimensions, but it has 2"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_operator(device, change, message):
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    with pytest.raises(RuntimeError, match=message):
        operator(*change(*(t.to(device) for t in operands())))


def test_a_bias_of_bools_is_refused_by_the_operator(device):
    query, key, value = (t.to(device) for t in operands())
    mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=device)
    with pytest.raises(RuntimeError, match="attn_bias is added to the scores, but it is bool"):
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable(query, key, value, mask)


def test_operands_on_two_devices_are_refused(device):
    query, key, value = operands()
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(query.to(device), key, value)
