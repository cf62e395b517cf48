"""Calls of operator entries that PyTorch's operator database does not reach with its first samples, for programs.py.

A call has the name of its entry (codegen/operators). An entry that is a part of another operator on devices with kernels, such as
`norm_p`, is called by way of that operator. The reference is the CPU; where the CPU does not have the operator, it is the same
device outside of lazy mode, where the portable kernels compute.
"""

import torch
import torch.nn.functional as F
from compare import same_values
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
CALLS = {}


def case(name, function, *operands):
    CALLS[name] = (function, operands)


def real(*sizes, low=-2.0, high=2.0):
    generator = torch.Generator().manual_seed(len(CALLS))
    return torch.rand(*sizes, generator=generator) * (high - low) + low


def whole(*sizes, low=0, high=9, dtype=torch.int64):
    return torch.randint(low, high, sizes, generator=torch.Generator().manual_seed(len(CALLS))).to(dtype)


A, B, POSITIVE, MASK = real(5, 7), real(5, 7) + 1, real(5, 7, low=0.1, high=3), real(5, 7) > 0
IMAGE, VOLUME = real(2, 3, 6, 5), real(2, 3, 4, 5, 6)
INDEX = torch.tensor([[0, 2, 1, 4, 2, 0, 3], [1, 1, 0, 3, 4, 2, 2]])

# ---- element-wise operators, reductions ----
for name, p in {"norm_zero": 0, "norm_one": 1, "norm_two": 2, "norm_p": 3.5, "norm_largest": float("inf"), "norm_smallest": float("-inf")}.items():
    case(name, lambda a, p=p: torch.linalg.vector_norm(a, p, 1), A)
case("linalg_vector_norm", lambda a: torch.linalg.vector_norm(a, 2.5), A)
case("var_about", lambda a: a.var(1), A)
case("std_about", lambda a: a.std(0), A)
case("mean_about", lambda a: torch.var_mean(a, 1), A)
case("gelu.tanh", lambda a: F.gelu(a, approximate="tanh"), A)
case("gelu_backward.tanh", lambda a, b: aten.gelu_backward(b, a, approximate="tanh"), A, B)
case("elu_backward.result", lambda a, b: aten.elu_backward(b, 1.0, 1.0, 1.0, True, a), A, B)
case("pow.inverse_square", lambda a: a**-2, POSITIVE)
case("norm.ScalarOpt_dim_dtype", lambda a: aten.norm.ScalarOpt_dim_dtype(a, 2, [1], False, dtype=torch.float64), A)
case("median.dim", lambda a: a.median(1), A)
case("remainder.Scalar_Tensor", lambda a: aten.remainder.Scalar_Tensor(5.5, a), POSITIVE)
case("conj_physical", torch.conj_physical, A)
case("_int_mm", torch._int_mm, whole(32, 16, low=-9, dtype=torch.int8), whole(16, 24, low=-9, dtype=torch.int8))
case("_addmm_activation", lambda a, b, c: aten._addmm_activation(a, b, c), real(7), real(5, 6), real(6, 7))

# ---- moving ----
case("scatter.reduce", lambda a, i, b: aten.scatter.reduce(a, 0, i, b, reduce="multiply"), A, INDEX, B)
case("scatter.value_reduce", lambda a, i: aten.scatter.value_reduce(a, 0, i, 2.5, reduce="add"), A, INDEX)
case("masked_fill.Tensor", lambda a, m, v: a.masked_fill(m, v), A, MASK, torch.tensor(3.0))
case("fill.Tensor", lambda a, v: a.clone().fill_(v), A, torch.tensor(3.0))
case("eye.m", lambda a: torch.eye(5, 7, device=a.device) + a, A)
case("_index_put_impl", lambda a, i, v: aten._index_put_impl_(a.clone(), [i], v, True), A, INDEX[0], real(7, 7))
case("sort.stable", lambda a: aten.sort.stable(a, stable=True, dim=1), A)
case("searchsorted.Scalar", lambda a: torch.searchsorted(a, 0.25), real(9).sort().values)
case("searchsorted.Tensor", torch.searchsorted, real(9).sort().values, A)
case("isin.Tensor_Scalar", lambda a: torch.isin(a, 3), whole(5, 7))
case("isin.Scalar_Tensor", lambda a: torch.isin(3, a), whole(5, 7))
case("repeat_interleave.Tensor", lambda r: aten.repeat_interleave.Tensor(r, output_size=9), torch.tensor([2, 0, 3, 4]))
case("logspace", lambda a: torch.logspace(-1, 2, 7, device=a.device) + a, A)
case("tril_indices", lambda a: torch.tril_indices(5, 7, device=a.device), A)
case("triu_indices", lambda a: torch.triu_indices(5, 7, device=a.device), A)
case("nonzero.places", torch.nonzero, MASK)
case("_nonzero_count", torch.nonzero, A)

# ---- images ----
case("im2col", lambda a: aten.im2col(a, [3, 2], [1, 1], [1, 0], [2, 1]), IMAGE)
case("im2col.windows", lambda a: aten.im2col(a, [2, 2], [1, 1], [0, 0], [1, 1]), IMAGE)
case("col2im", lambda a: aten.col2im(a, [6, 5], [2, 2], [1, 1], [0, 0], [1, 1]), real(2, 12, 20))
case("col2im.windows", lambda a: aten.col2im(a, [6, 6], [2, 2], [1, 1], [0, 0], [2, 2]), real(2, 12, 9))
for name, a, padding in (("reflection_pad2d", IMAGE, [1, 2, 2, 1]), ("reflection_pad3d", VOLUME, [1, 2, 2, 1, 1, 1]),
                         ("replication_pad3d", VOLUME, [1, 2, 2, 1, 1, 1])):  # fmt: skip
    case(name, lambda a, f=getattr(aten, name), p=padding: f(a, p), a)
    grown = list(a.shape)
    for i in range(len(padding) // 2):
        grown[-1 - i] += padding[2 * i] + padding[2 * i + 1]
    case(f"{name}_backward", lambda g, a, f=getattr(aten, f"{name}_backward"), p=padding: f(g, a, p), real(*grown), a)
for exact in ("", "_exact"):
    for rank, a, sizes in ((2, IMAGE, [9, 4]), (3, VOLUME, [6, 4, 9])):
        name = f"{'_' * bool(exact)}upsample_nearest{exact}{rank}d"
        case(name, lambda a, f=getattr(aten, name), s=sizes: f(a, s), a)
        case(f"{name}_backward", lambda g, f=getattr(aten, f"{name}_backward"), s=sizes, i=list(a.shape): f(g, s, i), real(2, 3, *sizes))
case("_upsample_bicubic2d_aa", lambda a: aten._upsample_bicubic2d_aa(a, [4, 3], False), IMAGE)
case("_upsample_bicubic2d_aa_backward", lambda g: aten._upsample_bicubic2d_aa_backward(g, [4, 3], [2, 3, 6, 5], False), real(2, 3, 4, 3))
case("resample", lambda a: F.interpolate(a, size=(9, 4), mode="bilinear"), IMAGE)
case("_adaptive_avg_pool3d", lambda a: F.adaptive_avg_pool3d(a, (2, 3, 4)), VOLUME)
case("_adaptive_avg_pool3d_backward", aten._adaptive_avg_pool3d_backward, real(2, 3, 2, 3, 4), VOLUME)
case("replication_pad2d", lambda a: aten.replication_pad2d(a, [1, 2, 2, 1]), IMAGE)
case("replication_pad2d_backward", lambda g, a: aten.replication_pad2d_backward(g, a, [1, 2, 2, 1]), real(2, 3, 9, 8), IMAGE)

# ---- losses, norms ----
LABELS = whole(2, 6, 5, high=3)
case("nll_loss2d_forward", lambda a, t: aten.nll_loss2d_forward(a, t, None, 1, -100), IMAGE, LABELS)
case("nll_loss2d_backward", lambda g, a, t, w: aten.nll_loss2d_backward(g, a, t, None, 1, -100, w), torch.tensor(1.5), IMAGE, LABELS, torch.tensor(60.0))
STATISTICS = real(3), real(3, low=1, high=2)
case("_native_batch_norm_legit.no_stats", lambda a, w, b: aten._native_batch_norm_legit.no_stats(a, w, b, True, 0.1, 1e-5), IMAGE, *STATISTICS)
case("batch_norm_stats", lambda a: aten.batch_norm_stats(a, 1e-5), IMAGE)
case("batch_norm_elemt", lambda a, m, s: aten.batch_norm_elemt(a, s, m, m, s, 1e-5), IMAGE, *STATISTICS)
MEANS, INVERSES = real(4, 3), real(4, 3, low=1, high=2)
case("batch_norm_gather_stats", lambda a, m, s: aten.batch_norm_gather_stats(a, m, s, None, None, 0.1, 1e-5, 60), IMAGE, MEANS, INVERSES)
case("batch_norm_gather_stats_with_counts", lambda a, m, s, c: aten.batch_norm_gather_stats_with_counts(a, m, s, None, None, 0.1, 1e-5, c),
     IMAGE, MEANS, INVERSES, torch.tensor([60.0, 30.0, 10.0, 20.0]))  # fmt: skip
case("batch_norm_backward_reduce", lambda g, a, m, s: aten.batch_norm_backward_reduce(g, a, m, s, s, True, True, True), real(2, 3, 6, 5), IMAGE, *STATISTICS)
case("batch_norm_backward_elemt", lambda g, a, m, s, c: aten.batch_norm_backward_elemt(g, a, m, s, s, m, s, c),
     real(2, 3, 6, 5), IMAGE, *STATISTICS, torch.tensor([60], dtype=torch.int32))  # fmt: skip
BAG = whole(12, high=8), torch.tensor([0, 5, 7])
case("_embedding_bag_forward_only", lambda w, i, o: aten._embedding_bag_forward_only(w, i, o)[0], real(8, 4), *BAG)


def bag_gradient(weight, indices, offsets, g):
    _, bags, sizes, maxima = aten._embedding_bag(weight, indices, offsets)
    return aten._embedding_bag_dense_backward(g, indices, bags, sizes, maxima, 8, False, 0, None)


case("_embedding_bag_dense_backward", bag_gradient, real(8, 4), *BAG, real(3, 4))

# ---- optimizers: a list of parameters, gradients and states ----
STEP = torch.tensor(3.0)


def updated(function):
    """Returns a call that updates copies of its operands and returns them."""

    def run(*operands):
        copies = [x.clone() for x in operands]
        function(*copies)
        return copies

    return run


ADAM = dict(lr=0.01, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
SGD = dict(weight_decay=0.1, momentum=0.9, lr=0.01, dampening=0.0, nesterov=True, maximize=False, is_first_step=False)
for name in ("_fused_adam", "_fused_adam_", "_fused_adamw"):
    kind = getattr(aten, name.rstrip("_") + "_")
    case(name, updated(lambda p, g, m, v, s, f=kind: f([p], [g], [m], [v], [], [s], **ADAM)), A, B, real(5, 7), POSITIVE, STEP)
for name in ("_fused_sgd", "_fused_sgd_"):
    case(name, updated(lambda p, g, m: aten._fused_sgd_([p], [g], [m], **SGD)), A, B, real(5, 7))
for name in ("_fused_adagrad", "_fused_adagrad_"):
    case(name, updated(lambda p, g, m, s: aten._fused_adagrad_([p], [g], [m], [s], lr=0.01, lr_decay=0.1, weight_decay=0.1, eps=1e-8, maximize=False)),
         A, B, POSITIVE, STEP)  # fmt: skip
for name in ("_amp_foreach_non_finite_check_and_unscale_", "_amp_unscale_"):
    case(name, updated(lambda a, f, s: aten._amp_foreach_non_finite_check_and_unscale_([a], f, s)), A, torch.zeros(1), torch.full((1,), 0.5))
case("_amp_update_scale_", updated(lambda s, t, f: aten._amp_update_scale_(s, t, f, 2.0, 0.5, 10)),
     torch.full((1,), 8.0), torch.zeros(1, dtype=torch.int32), torch.zeros(1))  # fmt: skip

# ---- random numbers ----
case("randperm", lambda a: torch.randperm(50, device=a.device), A)
case("bernoulli.p", lambda a: torch.empty_like(a).bernoulli_(0.4), A)
case("bernoulli.Tensor", lambda a, p: torch.empty_like(a).bernoulli_(p), A, real(5, 7, low=0, high=1))
case("normal.Tensor_float", lambda a: torch.normal(a, 2.0), A)
case("normal.float_Tensor", lambda a: torch.normal(1.0, a), POSITIVE)

# ---- recurrent cells, attention ----
case("_thnn_fused_lstm_cell", lambda a, b, c: aten._thnn_fused_lstm_cell(a, b, c), real(3, 16), real(3, 16), real(3, 4))
case("_thnn_fused_lstm_cell_backward_impl", lambda g, h, c, d, w: aten._thnn_fused_lstm_cell_backward_impl(g, h, c, d, w, False),
     real(3, 4), real(3, 4), real(3, 4), real(3, 4), real(3, 16, low=0.1, high=0.9))  # fmt: skip
case("_thnn_fused_gru_cell", lambda a, b, h: aten._thnn_fused_gru_cell(a, b, h), real(3, 12), real(3, 12), real(3, 4))
case("_thnn_fused_gru_cell_backward", lambda g, w: aten._thnn_fused_gru_cell_backward(g, w, False), real(3, 4), real(3, 20, low=0.1, high=0.9))
LSTM = real(16, 5), real(16, 4), real(16), real(16)
case("lstm.input", lambda x, h, c, *p: aten.lstm.input(x, [h, c], list(p), True, 1, 0.0, False, False, False), real(6, 3, 5), real(1, 3, 4), real(1, 3, 4), *LSTM)
HEADS = [real(2, 4, 6, 8) for _ in range(3)]
case("_scaled_dot_product_fused_attention_overrideable", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *HEADS)


def attention_gradients(q, k, v):
    operands = [x.detach().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        return torch.autograd.grad(F.scaled_dot_product_attention(*operands, is_causal=True).square().sum(), operands)


case("_scaled_dot_product_fused_attention_overrideable_backward", attention_gradients, *HEADS)
LAYER = real(24, 8), real(24), real(8, 8), real(8)
case("_native_multi_head_attention", lambda q, *p: aten._native_multi_head_attention(q, q, q, 8, 2, *p)[0], real(2, 6, 8), *LAYER)
case("_transformer_encoder_layer_fwd", lambda q, *p: aten._transformer_encoder_layer_fwd(q, 8, 2, *p[:4], True, False, 1e-5, *p[4:]), real(2, 6, 8), *LAYER,
     real(8), real(8), real(8), real(8), real(16, 8), real(16), real(8, 16), real(8))  # fmt: skip
ROWS, STARTS = [real(10, 2, 8) for _ in range(3)], torch.tensor([0, 4, 10], dtype=torch.int32)
case("_flash_attention_forward", lambda q, k, v, s: aten._flash_attention_forward(q, k, v, s, s, 6, 6, 0.0, True, False)[:2], *ROWS, STARTS)
case("_flash_attention_forward_no_dropout_inplace",
     updated(lambda o, q, k, v, s: aten._flash_attention_forward_no_dropout_inplace(o, q, k, v, s, s, 6, 6, 0.0, True, False)), real(10, 2, 8), *ROWS, STARTS)


def flash_gradients(g, q, k, v, s):
    out, sums, state, unused, _ = aten._flash_attention_forward(q, k, v, s, s, 6, 6, 0.0, True, False)
    return aten._flash_attention_backward(g, q, k, v, out, sums, s, s, 6, 6, 0.0, True, state, unused)


case("_flash_attention_backward", flash_gradients, real(10, 2, 8), *ROWS, STARTS)

# ---- low precision ----
BYTES, NUMBERS = whole(8, 32, high=256, dtype=torch.uint8), real(2, 8, 2, low=0.1, high=1)
case("_weight_int8pack_mm", torch._weight_int8pack_mm, real(3, 64), whole(8, 64, low=-9, dtype=torch.int8), real(8, low=0.1, high=1))
case("_convert_weight_to_int4pack", lambda b: torch._convert_weight_to_int4pack(b, 2), BYTES)
case("_weight_int4pack_mm", lambda x, b, n: torch._weight_int4pack_mm(x, torch._convert_weight_to_int4pack(b, 2), 32, n), real(3, 64), BYTES, NUMBERS)
CALLS["_packed_weight_mm"] = CALLS["_weight_int4pack_mm"]
case("_weight_int4pack_mm_with_scales_and_zeros", lambda x, b, s, z: torch._weight_int4pack_mm_with_scales_and_zeros(
    x, torch._convert_weight_to_int4pack(b, 2), 32, s, z), real(3, 64), BYTES, real(2, 8, low=0.1, high=1), torch.full((2, 8), 8.0))  # fmt: skip
GROUPS = torch.tensor([3, 7], dtype=torch.int32)
case("_grouped_mm", lambda a, b, o: torch._grouped_mm(a, b, offs=o), real(7, 16).bfloat16(), real(2, 16, 8).bfloat16(), GROUPS)


# ---- comparison ----
def run(function, operands):
    torch.manual_seed(0)
    return [x.detach() for x in tree_leaves(function(*operands)) if isinstance(x, torch.Tensor)]


def reference_of(function, operands, moved):
    """Returns the CPU's results, or those of the portable kernels if the CPU lacks the operator or has other random numbers."""
    torch.manual_seed(0)
    state = torch.get_rng_state()
    try:
        results = run(function, [x.clone() for x in operands])
        if torch.equal(state, torch.get_rng_state()):
            return results
    except (IndexError, NotImplementedError, RuntimeError):
        pass
    return run(function, moved)


def exact(function, operands):
    """Returns the CPU's results in double precision; [] if it has none."""
    try:
        return run(function, [x.double() if x.is_floating_point() else x.clone() for x in operands])
    except (IndexError, NotImplementedError, RuntimeError):
        return []


def call(name, device, observer):
    """Compares a call in lazy mode with its reference. Returns the difference, or None."""
    from torch_backend import lazy

    function, operands = CALLS[name]
    expected = reference_of(function, operands, tree_map(lambda x: x.to(device), operands))
    moved = [x.to(device) for x in operands]
    torch.accelerator.synchronize()
    with lazy.record(device), observer:
        results = run(function, moved)
    if len(results) != len(expected):
        return f"{len(results)} results instead of {len(expected)}"
    return same_values([x.cpu() for x in results], [x.cpu() for x in expected], lambda: exact(function, operands))
