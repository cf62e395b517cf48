"""Operators as programs of the plugin pjrt, compared with the portable kernels on the same device: run in a separate process by
test_pjrt.py. Prints the operators that differ, and those that no program contained."""

import json
import sys

import torch
import torch.nn.functional as F
import torch_backend
from torch_backend import lazy

torch_backend.use("pjrt")
D = "pjrt"


def real(*sizes, low=-2.0, high=2.0, dtype=torch.float32):
    return (torch.rand(*sizes, dtype=torch.float64) * (high - low) + low).to(dtype)


def whole(*sizes, low=-9, high=9, dtype=torch.int64):
    return torch.randint(low, high, sizes).to(dtype)


A, B, C = real(5, 7), real(5, 7), real(5, 7)
POSITIVE, UNIT = real(5, 7, low=0.1, high=3), real(5, 7, low=-0.95, high=0.95)
MASK, INDEX = whole(5, 7) > 0, torch.tensor([0, 2, 1, 4, 2])
IMAGE, WEIGHT = real(2, 4, 9, 8), real(6, 4, 3, 3)
INF = float("inf")
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, float("nan"), 0.5, 1.5, 2.5, -2.5, 1e-3])

UNARY = {  # ATen's name: operand
    **dict.fromkeys("abs sgn sign exp expm1 sin cos tan tanh sigmoid erf erfc floor ceil trunc frac round neg sinh cosh asinh atan exp2 square relu "
                    "signbit isposinf isneginf isnan logical_not nan_to_num angle sinc".split(), A),
    **dict.fromkeys("log log1p log2 log10 sqrt rsqrt reciprocal lgamma digamma".split(), POSITIVE),
    **dict.fromkeys("asin acos atanh erfinv logit".split(), UNIT), "acosh": POSITIVE + 1,
}  # fmt: skip
SPECIAL_FUNCTIONS = ("entr erfcx i0 i0e i1 i1e log_ndtr ndtri bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_k0 "
                     "modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai").split()  # fmt: skip
BINARY = {
    **dict.fromkeys("add sub mul div maximum minimum atan2 eq ne lt le gt ge fmod remainder floor_divide copysign hypot logaddexp logaddexp2 fmax "
                    "fmin logical_and logical_or logical_xor heaviside nextafter".split(), (A, B)),
    "pow": (POSITIVE, B), "xlogy": (A, POSITIVE),
}  # fmt: skip
CASES = {}


def case(name, function, *operands):
    CASES[name] = (function, operands)


for name, operand in UNARY.items():
    case(name, getattr(torch, name), operand)
for name in "abs sign exp tanh sigmoid floor ceil trunc round neg signbit nan_to_num relu log sqrt".split():
    case(f"{name} of special numbers", getattr(torch, name), SPECIAL)
for name, operands in BINARY.items():
    case(name, getattr(torch, name), *operands)
for name in "maximum minimum fmax fmin remainder fmod floor_divide copysign".split():
    case(f"{name} of special numbers", lambda a, b, f=getattr(torch, name): f(a[:, None], b[None]), SPECIAL, SPECIAL)
REALS = torch.cat([torch.tensor([0.0, INF, 1e-9, 1e-3, 0.3, 0.999, 1.0, 2.0, 2.1, 24.9, 25.1, 300.0]), torch.linspace(0.05, 40, 60)]).double()
for name in SPECIAL_FUNCTIONS:
    case(f"special.{name}", getattr(torch.special, name), torch.cat([REALS, -REALS, torch.tensor([float("nan")]).double()]))
    case(f"special.{name} of float32", getattr(torch.special, name), torch.cat([REALS, -REALS]).float())
case("gcd and lcm", lambda a, b: torch.gcd(a, b) + torch.lcm(a, b), whole(5, 7, low=-90, high=90), whole(5, 7, low=-90, high=90))
case("ldexp", torch.ldexp, A, whole(5, 7, low=-140, high=140).float())
case("ldexp of float64", torch.ldexp, A.double(), whole(5, 7, low=-1060, high=1000).double())
for name in "add sub mul maximum floor_divide remainder fmod bitwise_and bitwise_or bitwise_xor eq lt".split():
    case(f"{name} of int64", getattr(torch, name), whole(5, 7), whole(5, 7, low=1))
    case(f"{name} of int32", getattr(torch, name), whole(5, 7, dtype=torch.int32), whole(5, 7, low=1, dtype=torch.int32))
for dtype in (torch.float64, torch.bfloat16, torch.float16):
    case(f"add of {dtype}", torch.add, A.to(dtype), B.to(dtype))
    case(f"mm of {dtype}", torch.mm, real(6, 5).to(dtype), real(5, 7).to(dtype))
    case(f"softmax of {dtype}", lambda a: a.softmax(1), A.to(dtype))
    case(f"sum of {dtype}", lambda a: a.sum(0), A.to(dtype))
    case(f"tanh of {dtype}", torch.tanh, A.to(dtype))
case("bitwise_not", torch.bitwise_not, whole(5, 7))
case("bitwise_not of bool", torch.bitwise_not, MASK)
case("shifts", lambda a, b: (a << b) + (a >> b), whole(5, 7), whole(5, 7, low=0))
case("add a number", lambda a: a + 2.5, A)
case("subtract from a number", lambda a: 3 - a, A)
case("add with alpha", lambda a, b: torch.add(a, b, alpha=3), A, B)
case("divide with modes", lambda a, b: torch.div(a, b, rounding_mode="trunc") + torch.div(a, b, rounding_mode="floor"), A, B)
case("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), A, B, C)
case("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), A, B, POSITIVE)
case("lerp", lambda a, b, c: a.lerp(b, 0.3) + a.lerp(b, c), A, B, C)
case("where", torch.where, MASK, A, B)
case("clamp", lambda a: a.clamp(-0.5, 0.7) + a.clamp_min(0.1) + a.clamp_max(0.2), A)
case("pow of a number", lambda a: a**2 + a**3 + a**0.5, POSITIVE)
case("atan of many elements", torch.atan, real(20, 20, low=-20, high=20))
case("pad with negative sizes", lambda a: F.pad(a, (-1, 2, 1, -2), "replicate") + F.pad(a, (-1, 2, 1, -2), "reflect"), IMAGE)
case("flip", lambda a: a.flip(0, 1) + a.flip(1).t().flip(0)[0, 0], A)
case("copy to reversed rows", lambda a: torch.zeros_like(a).copy_(a.flip(0)).rot90(2), A)
for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
    case(f"{dtype}", lambda a, d=dtype: (a * 300).to(d).float() + a.half().to(d).half().float(), A)
case("broadcast", lambda a, b: a[:, None] * b[None, :, :1], A, B)
for name in ("gelu silu mish elu leaky_relu hardswish hardsigmoid hardtanh softplus logsigmoid softshrink hardshrink selu celu").split():
    case(name, lambda a, f=getattr(F, name): f(a), A)
case("gelu by tanh", lambda a: F.gelu(a, approximate="tanh"), A)
case("threshold", lambda a: F.threshold(a, 0.1, 20.0), A)
for name in "gelu silu mish elu leaky_relu hardswish hardsigmoid softplus logsigmoid tanh sigmoid".split():
    case(f"{name} backward", lambda a, f=getattr(F, name, None) or getattr(torch, name): torch.autograd.grad(f(a.requires_grad_()).sum(), a)[0], A)
case("mse_loss backward", lambda a, b: torch.autograd.grad(F.mse_loss(a.requires_grad_(), b), a)[0], A, B)
case("losses", lambda a, b: F.mse_loss(a, b) + F.smooth_l1_loss(a, b) + F.huber_loss(a, b) + F.l1_loss(a, b), A, B)
case("binary_cross_entropy", lambda a, b: F.binary_cross_entropy(a, b), real(5, 7, low=0.1, high=0.9), MASK.float())
for name in "sum mean amax amin prod any all argmax argmin var std logsumexp nansum count_nonzero".split():
    case(f"{name} of a dimension", lambda a, f=getattr(torch, name): f(a, 1), A)
    case(f"{name} of dimension 0", lambda a, f=getattr(torch, name): f(a, 0), A)
case("sum", torch.sum, A)
case("sum of dimensions", lambda a: a.sum((0, 2), keepdim=True), real(3, 4, 5))
case("sum of int32", torch.sum, whole(5, 7, dtype=torch.int32))
case("max of a dimension", lambda a: torch.cat([t.double() for t in a.max(1)]), A)
case("min of a dimension", lambda a: torch.cat([t.double() for t in a.min(0)]), A)
case("argmax of all", torch.argmax, A)
case("argmax with NaN", lambda a: a.argmax(0) + a.argmin(0), SPECIAL)
for name in "amax amin argmax argmin".split():
    case(f"{name} of int64", getattr(torch, name), torch.tensor([[3, -(2**63), 2**63 - 1], [5, 5, 2]]))
case("var_mean", lambda a: sum(torch.var_mean(a, 1)), A)
for order in (2, 1, 0, 3.5, -1, INF, -INF):  # numbers of a run: one program has all norms
    case(f"norm {order}", lambda a, o=order: torch.linalg.vector_norm(a, o, 1), A)
case("cdist", lambda a, b: torch.cdist(a, b) + torch.cdist(a, b, 1.5), A, B)
case("softmax", lambda a: a.softmax(1) + a.log_softmax(0), A)
case("softmax backward", lambda a, b: torch.autograd.grad((a.requires_grad_().softmax(1) * b).sum(), a)[0], A, B)
case("log_softmax backward", lambda a, b: torch.autograd.grad((a.requires_grad_().log_softmax(1) * b).sum(), a)[0], A, B)
case("mm", torch.mm, real(6, 5), real(5, 7))
case("_int_mm", torch._int_mm, whole(32, 16, low=-99, high=99, dtype=torch.int8), whole(16, 24, low=-99, high=99, dtype=torch.int8))
case("mm of transposed", lambda a, b: a.t() @ b.t(), real(5, 6), real(7, 5))
case("bmm", torch.bmm, real(3, 6, 5), real(3, 5, 7))
case("addmm", lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2), real(7), real(6, 5), real(5, 7))
case("addmm without bias", lambda a, b, c: torch.addmm(a, b, c, beta=0), torch.full((6, 7), float("nan")), real(6, 5), real(5, 7))
case("baddbmm", lambda a, b, c: torch.baddbmm(a, b, c, alpha=0.5), real(3, 6, 7), real(3, 6, 5), real(3, 5, 7))
case("linear", F.linear, real(2, 3, 5), real(7, 5), real(7))
for stride, padding, dilation, groups in ((1, 1, 1, 1), (2, 1, 1, 1), (1, 0, 2, 1), (1, 1, 1, 2), (2, 2, 1, 2)):
    weight = real(6, 4 // groups, 3, 3)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    case(f"conv2d {options}", lambda a, w, b, o=options: F.conv2d(a, w, b, **o), IMAGE, weight, real(6))
    case(f"conv2d backward {options}", lambda a, w, b, o=options: torch.cat([g.flatten() for g in torch.autograd.grad(
        F.conv2d(a.requires_grad_(), w.requires_grad_(), b.requires_grad_(), **o).square().sum(), (a, w, b))]), IMAGE, weight, real(6))
for stride, padding, output_padding, dilation, groups in ((1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (3, 2, 0, 2, 1), (2, 0, 1, 1, 2), (1, 1, 1, 2, 2)):
    options = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation, "groups": groups}
    operands = (IMAGE, real(4, 6 // groups, 3, 2), real(6))
    case(f"conv_transpose2d {options}", lambda a, w, b, o=options: F.conv_transpose2d(a, w, b, **o), *operands)
    case(f"conv_transpose2d backward {options}", lambda a, w, b, o=options: torch.cat([g.flatten() for g in torch.autograd.grad(
        F.conv_transpose2d(a.requires_grad_(), w.requires_grad_(), b.requires_grad_(), **o).square().sum(), (a, w, b))]), *operands)  # fmt: skip
case("conv1d", lambda a, w: F.conv1d(a, w, stride=2), real(2, 4, 9), real(6, 4, 3))
case("conv2d of channels last", lambda a, w: F.conv2d(a.to(memory_format=torch.channels_last), w, padding=1), IMAGE, WEIGHT)
for shared in (4, 2):
    case(f"attention with {shared} heads", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
         real(2, 4, 6, 8), real(2, shared, 6, 8), real(2, shared, 6, 8))  # fmt: skip
case("attention with a mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), *(real(2, 4, 6, 8) for _ in range(3)), real(6, 6))
case("attention backward", lambda q, k, v: torch.cat([g.flatten() for g in torch.autograd.grad(
    F.scaled_dot_product_attention(q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), is_causal=True).square().sum(), (q, k, v))]),
     *(real(2, 4, 6, 8) for _ in range(3)))  # fmt: skip
case("layer_norm", lambda a, w, b: F.layer_norm(a, (7,), w, b), A, real(7), real(7))
case("layer_norm backward", lambda a, w, b, g: torch.cat([x.flatten() for x in torch.autograd.grad(
    (F.layer_norm(a.requires_grad_(), (7,), w.requires_grad_(), b.requires_grad_()) * g).sum(), (a, w, b))]), A, real(7), real(7), B)
for training in (True, False):
    case(f"batch_norm, training {training}", lambda a, m, v, w, b, t=training: F.batch_norm(a, m, v, w, b, t), IMAGE, real(4), real(4, low=1, high=2), real(4), real(4))
    case(f"batch_norm backward, training {training}", lambda a, m, v, w, b, g, t=training: torch.cat([x.flatten() for x in torch.autograd.grad(
        (F.batch_norm(a.requires_grad_(), m, v, w.requires_grad_(), b.requires_grad_(), t) * g).sum(), (a, w, b))]),
         IMAGE, real(4), real(4, low=1, high=2), real(4), real(4), real(2, 4, 9, 8))  # fmt: skip
TARGET = torch.tensor([0, 6, -100, 3, 2])
for reduction in ("mean", "sum", "none"):
    case(f"nll_loss, {reduction}", lambda a, t, w, r=reduction: F.nll_loss(a, t, w, reduction=r), A, TARGET, POSITIVE[0])
    case(f"nll_loss backward, {reduction}", lambda a, t, r=reduction: torch.autograd.grad(F.nll_loss(a.requires_grad_(), t, reduction=r).sum(), a)[0], A, TARGET)
case("cross_entropy of images", lambda a, t: F.cross_entropy(a, t), IMAGE, torch.randint(0, 4, (2, 9, 8)))
case("index_select", lambda a, i: a.index_select(0, i) , A, INDEX)
case("gather", lambda a, i: a.gather(1, i), A, torch.randint(0, 7, (5, 3)))
case("index", lambda a, i: a[i] + a[i - 5], A, INDEX)
case("index by several", lambda a, i, j: a[i, j] + a[i - 5, j], A, INDEX, INDEX + 2)
case("index_put by several", lambda a, i, j, b: a.index_put((i, j), b), A, torch.tensor([0, 2, -1]), torch.tensor([1, -3, 0]), B[0, :3])
case("index_put with sums", lambda a, i, j, b: a.index_put((i, j), b, accumulate=True), A, INDEX, torch.tensor([1, 1, 0, 3, 1]), B[0, :5])
case("take and put", lambda a, i, b: a.take(i) + a.put(i, b).flatten()[:5] + a.put(i, b, accumulate=True).flatten()[5:10], A, torch.tensor([3, -1, 8, 20, 5]), B[0, :5])
case("embedding_bag", lambda i, w: F.embedding_bag(i.view(1, 5), w, mode="mean"), INDEX, A)
case("embedding", F.embedding, INDEX, A)
case("embedding backward", lambda i, w: torch.autograd.grad(F.embedding(i, w.requires_grad_()).square().sum(), w)[0], INDEX, A)
case("scatter", lambda a, i, b: a.scatter(1, i, b), A, torch.stack([torch.randperm(7)[:3] for _ in range(5)]), B[:, :3])
case("scatter_add", lambda a, i, b: a.scatter_add(1, i, b), A, torch.randint(0, 7, (5, 3)), B[:, :3])
case("index_add", lambda a, i, b: a.index_add(0, i, b), A, INDEX, B)
case("index_copy", lambda a, b: a.index_copy(0, torch.tensor([3, 0], device=a.device), b), A, B[:2])
case("tril", lambda a: a.tril(1) + a.triu(-1), A)
case("arange", lambda a: a + torch.arange(0, 14, 2, device=a.device), A)
case("cat", lambda a, b: torch.cat([a, b], 1), A, B)
case("stack", lambda a, b: torch.stack([a, b], 1), A, B)
case("flip and roll", lambda a: a.flip(0) + a.roll(2, 1), A)
case("transposed", lambda a: (a.t() + 1).contiguous(), A)
case("slices with steps", lambda a: a[::2, 1::3] * 2, A)
case("expanded", lambda a: a[:1].expand(4, 7) + a[:4], A)
case("diagonal", lambda a: a.diagonal() + 1, A)
case("as_strided", lambda a: a.as_strided((3, 3), (2, 3)) * 2, A)
case("unfolded windows", lambda a: a.unfold(1, 3, 1).sum(-1), A)


def written(a, b):
    c = a * 2
    c[1:3] = b[1:3] + 1
    c[:, 2] = 5
    c[::2, 1::2] += b[::2, 1::2]
    c.t()[0] *= 3
    return c + c.sum()


case("writes to parts", written, A, B)
case("casts", lambda a: a.to(torch.int32).to(torch.bool).to(torch.float64) + a.double().to(torch.uint8), POSITIVE)
case("fills", lambda a: torch.full_like(a, 2.5) + torch.zeros_like(a) + torch.ones_like(a), A)
case("dropout", lambda a: F.dropout(a, 0.3), A)
case("bernoulli", lambda a: torch.empty_like(a).bernoulli_(0.3), A)
case("uniform", lambda a: torch.empty_like(a).uniform_(-1, 3), A)
for options in ((2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2)):
    case(f"max_pool2d {options}", lambda a, o=options: sum(t.double().sum() for t in F.max_pool2d(a, *o, return_indices=True)), IMAGE)
    case(f"max_pool2d backward {options}", lambda a, o=options: torch.autograd.grad(F.max_pool2d(a.requires_grad_(), *o).square().sum(), a)[0], IMAGE)
for options in ((3, 2, 1), (2, 2, 0), (3, 2, 1, True), (3, 1, 1, False, False), (3, 2, 0, False, True, 5)):
    case(f"avg_pool2d {options}", lambda a, o=options: F.avg_pool2d(a, *o), IMAGE)
    case(f"avg_pool2d backward {options}", lambda a, o=options: torch.autograd.grad(F.avg_pool2d(a.requires_grad_(), *o).square().sum(), a)[0], IMAGE)
LINE, VOLUME = real(2, 3, 9), real(2, 3, 4, 5, 6)
for mode, images in (("nearest", (LINE, IMAGE, VOLUME)), ("nearest-exact", (LINE, IMAGE, VOLUME)), ("linear", (LINE,)), ("bilinear", (IMAGE,)),
                     ("trilinear", (VOLUME,)), ("bicubic", (IMAGE,))):  # fmt: skip
    for image in images:
        spatial = image.dim() - 2
        for options in ({"scale_factor": 2}, {"scale_factor": 1.7}, {"size": (5, 11, 3)[:spatial]}, {"size": (4,) * spatial, "align_corners": True}):
            if "nearest" in mode and "align_corners" in options:
                continue
            call = lambda a, m=mode, o=options: F.interpolate(a, mode=m, **o)  # noqa: E731
            case(f"interpolate {mode} {spatial} {options}", call, image)
            case(f"interpolate {mode} {spatial} backward {options}", lambda a, f=call: torch.autograd.grad(f(a.requires_grad_()).square().sum(), a)[0], image)
for mode in ("bilinear", "bicubic"):
    for options in ({"scale_factor": 0.6}, {"size": (3, 4)}, {"size": (12, 5)}):
        call = lambda a, m=mode, o=options: F.interpolate(a, mode=m, antialias=True, **o)  # noqa: E731
        case(f"interpolate {mode} antialiased {options}", call, IMAGE)
        case(f"interpolate {mode} antialiased backward {options}", lambda a, f=call: torch.autograd.grad(f(a.requires_grad_()).square().sum(), a)[0], IMAGE)
case("interpolate infinite numbers", lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), torch.tensor([[[[1.0, INF], [-INF, 2.0]]]]))
for size in ((4, 3), (9, 8), (1, 5), (1, 1), (3, 4)):
    case(f"adaptive_avg_pool2d {size}", lambda a, s=size: F.adaptive_avg_pool2d(a, s), IMAGE)
    case(f"adaptive_avg_pool2d backward {size}", lambda a, s=size: torch.autograd.grad(F.adaptive_avg_pool2d(a.requires_grad_(), s).square().sum(), a)[0], IMAGE)
    case(f"adaptive_max_pool2d {size}", lambda a, s=size: torch.cat([t.double().flatten() for t in F.adaptive_max_pool2d(a, s, return_indices=True)]), IMAGE)
    case(f"adaptive_max_pool2d backward {size}", lambda a, s=size: torch.autograd.grad(F.adaptive_max_pool2d(a.requires_grad_(), s).square().sum(), a)[0], IMAGE)
case("adaptive pools of volumes", lambda a: F.adaptive_avg_pool3d(a, (2, 3, 4)) + F.adaptive_max_pool3d(a, (2, 3, 4)), VOLUME)
case("adaptive pools of volumes backward", lambda a: torch.autograd.grad((F.adaptive_avg_pool3d(a.requires_grad_(), (2, 3, 4)) * F.adaptive_max_pool3d(
    a, (2, 3, 4))).sum(), a)[0], VOLUME)  # fmt: skip
case("max_pool3d", lambda a: F.max_pool3d(a, 2, 1, 1), VOLUME)
case("max_pool1d of NaN", lambda a: torch.cat([t.double().flatten() for t in F.max_pool1d(a[None], 4, 3, return_indices=True)]), SPECIAL)
for options in ((3, 1, 0, 1), (2, 2, 1, 3), ((3, 2), (1, 2), (0, 1), (2, 1))):
    case(f"unfold {options}", lambda a, o=options: F.unfold(a, *o), IMAGE)
    case(f"fold {options}", lambda a, o=options: F.fold(F.unfold(a, *o), (9, 8), *o), IMAGE)
case("pixel_shuffle", lambda a: F.pixel_shuffle(a, 2) + F.pixel_shuffle(F.pixel_unshuffle(F.pixel_shuffle(a, 2), 2), 2), IMAGE)
GATES, STATE = real(3, 24), real(3, 6)
for name, cell in (("lstm", torch.nn.LSTMCell(6, 6)), ("gru", torch.nn.GRUCell(6, 6)), ("gru without bias", torch.nn.GRUCell(6, 6, bias=False))):
    weights = [p.detach() for p in cell.parameters()]
    case(f"{name} cell", lambda x, h, *w, n=name: torch.cat(torch.lstm_cell(x, (h, h * 2), *w)) if n == "lstm" else torch.gru_cell(x, h, *w), STATE, STATE * 0.5, *weights)
    case(f"{name} cell backward", lambda x, h, *w, n=name: torch.cat([g.flatten() for g in torch.autograd.grad(
        (torch.cat(torch.lstm_cell(x.requires_grad_(), (h.requires_grad_(), h * 2), *w)) if n == "lstm" else torch.gru_cell(x.requires_grad_(), h.requires_grad_(), *w)
         ).square().sum(), (x, h))]), STATE, STATE * 0.5, *weights)  # fmt: skip
case("a layer of LSTM", lambda x, h, *w: torch.lstm(x, (h, h), w, True, 1, 0.0, True, False, False)[0], real(4, 3, 6), real(1, 3, 6), *(
    p.detach() for p in torch.nn.LSTM(6, 6).parameters()))  # fmt: skip
for mode in ("reflect", "replicate", "constant"):
    case(f"pad {mode}", lambda a, m=mode: F.pad(a, (1, 2, 3, 0), m), IMAGE)
    case(f"pad backward {mode}", lambda a, m=mode: torch.autograd.grad(F.pad(a.requires_grad_(), (1, 2, 3, 0), m).square().sum(), a)[0], IMAGE)
case("cumsum", lambda a: a.cumsum(1) + a.cumprod(0), A)
case("cumsum of long rows", lambda a: a.cumsum(0), whole(300, low=-9))
for special in (A, torch.stack([SPECIAL, SPECIAL.flip(0)])):
    case(f"logcumsumexp of {special.shape[0]} rows", lambda a: a.logcumsumexp(1), special)
    case(f"cummax and cummin of {special.shape[0]} rows", lambda a: torch.cat([t.double() for t in (*a.cummax(1), *a.cummin(0))]), special)
case("scans of long rows", lambda a: torch.cat([a.logcumsumexp(0).double(), *(t.double() for t in (*a.cummax(0), *a.cummin(0)))]), real(700))
case("cummax of int64", lambda a: torch.cat([*a.cummax(0), *a.cummin(0)]), whole(5, 7, low=-3, high=3))
case("searchsorted", lambda a, b: torch.searchsorted(a.sort(1).values, b) + torch.searchsorted(a.sort(1).values, b, right=True), A.round(), B.round())
case("bucketize", lambda a, b: torch.bucketize(a, b.flatten().sort().values) * 2 + torch.bucketize(a, b[0].sort().values, right=True), A.round(), B.round())
case("linspace", lambda a: a + torch.linspace(-1, 3, 7, device=a.device) + torch.linspace(2, 5, 1, device=a.device), A)
case("logspace", lambda a: a + torch.logspace(-1, 2, 7, base=3, device=a.device), A)
for offset in (-2, 0, 3):
    case(f"tril_indices {offset}", lambda a, o=offset: torch.cat([torch.tril_indices(5, 7, o, device=a.device), torch.triu_indices(5, 4, o, device=a.device)], 1), A)
case("diff and trace", lambda a: a.diff(dim=1).sum() + a.trace(), A)
case("sort", lambda a: torch.cat([t.double() for t in a.sort(1)]), A)
case("sort descending", lambda a: torch.cat([t.double() for t in a.sort(0, descending=True)]), SPECIAL)
case("argsort of int64", lambda a: a.argsort(dim=1, stable=True), whole(5, 7))
case("topk", lambda a: torch.cat([t.double() for t in a.topk(3, 1)]), A)
case("smallest of special numbers", lambda a: torch.cat([t.double() for t in a.topk(5, largest=False)]), SPECIAL)
DISTRIBUTIONS = {"uniform": lambda a: a.uniform_(-1, 3), "normal": lambda a: a.normal_(1, 2), "exponential": lambda a: a.exponential_(0.7),
                 "geometric": lambda a: a.geometric_(0.3), "cauchy": lambda a: a.cauchy_(1, 2).clamp_(-50, 50), "log_normal": lambda a: a.log_normal_(0.1, 0.5),
                 "bernoulli": lambda a: a.bernoulli_(0.4)}  # fmt: skip
for name, fill in DISTRIBUTIONS.items():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        case(f"{name} of {dtype}", lambda a, f=fill, d=dtype: f(torch.empty(33, dtype=d, device=a.device)), A)
case("bernoulli of int64", lambda a: torch.empty(33, dtype=torch.int64, device=a.device).bernoulli_(0.4), A)
case("random", lambda a: torch.empty(33, dtype=torch.int64, device=a.device).random_(-5, 40), A)
case("random of all numbers", lambda a: torch.empty(33, dtype=torch.int64, device=a.device).random_(-(2**63), None), A)
case("random of large ranges", lambda a: torch.empty(33, dtype=torch.int64, device=a.device).random_(0, 2**50), A)
case("randint", lambda a: torch.randint(3, 90, (5, 7), device=a.device), A)
case("randperm", lambda a: torch.randperm(500, device=a.device), A)
case("normal", lambda a: torch.empty(33, device=a.device).normal_(1, 2), A)
case("native dropout", lambda a: sum(t.float() for t in torch.native_dropout(a, 0.3, True)), real(33, 7))


def run(function, operands):
    torch.manual_seed(7)
    return function(*(operand.to(D) for operand in operands)).detach().cpu()


def compare(result, expected):
    """Returns the difference as text; "" if there is none beyond that of other roundings."""
    limit = 2e-2 if expected.dtype in (torch.bfloat16, torch.float16) else 2e-5
    most = max(1.0, expected.double().nan_to_num(0, 0, 0).abs().max().item())
    try:
        torch.testing.assert_close(result, expected, equal_nan=True, rtol=limit, atol=limit * most)
    except AssertionError as error:
        return str(error)
    return ""


def main():
    wrong, separate = {}, []
    for name, (function, operands) in CASES.items():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        expected = run(function, operands)
        before = lazy.metrics()["programs"]
        with lazy.record():
            result = run(function, operands)
        if difference := compare(result, expected):
            wrong[name] = difference
        if lazy.metrics()["programs"] == before:
            separate.append(name)
    print(json.dumps({"cases": len(CASES), "wrong": wrong, "separate": separate}))


if __name__ == "__main__":
    main()
