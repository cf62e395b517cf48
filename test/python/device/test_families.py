"""Each family of portable kernels, in the variants for devices with compilers: for many threads, where an item is one
element or the work of a group, and for few wide cores. One or two samples of each family, large enough for several
items per launch, compared with the CPU."""

import json
from pathlib import Path

import driver_scripts
import pytest

FAMILIES = Path(__file__).resolve().parents[3] / "hal/ops"

HEAD = """
import json, os, torch, torch_backend
from torch_backend import fallback
from torch.nn import functional as F

torch.manual_seed(0)
d = torch_backend.device_name()
N = 70001
x, y, m, index = torch.randn(N), torch.randn(N), torch.randn(67, 131), torch.randint(0, 900, (N,))
image, weight, rows = torch.randn(2, 3, 17, 19), torch.randn(5, 3, 3, 3), torch.randn(6, 40, 33)

def step_of_adam(w, g):
    w = w.clone().requires_grad_()
    w.grad = g
    torch.optim.AdamW([w], lr=0.1, fused=True).step()
    return w.detach()

def unscaled(g):
    g, found = g.clone(), torch.zeros((), device=g.device)
    torch._amp_foreach_non_finite_check_and_unscale_([g], found, torch.full((), 0.5, device=g.device))
    return g, found

def trained(call):
    def run(*operands):
        operands = [t.detach().clone().requires_grad_() if t.is_floating_point() else t for t in operands]
        y = call(*operands)
        (y * y).sum().backward()
        return [y.detach(), *(t.grad for t in operands if t.grad is not None)]
    return run

def packed_products(x, weight, pairs, numbers):
    scales, weights = numbers[0, :, 0].contiguous(), torch.stack([pairs >> 4, pairs & 15], 2).flatten(1)
    int8 = torch._weight_int8pack_mm(x, weight, scales)
    if x.device.type == "cpu":
        zeros, factors = (part.t().repeat_interleave(32, 1) for part in (numbers[..., 1], numbers[..., 0]))
        return int8, x @ ((weights - 8.0) * factors + zeros).t(), x[:1] @ ((weights - zeros) * factors).t()
    pack = torch._convert_weight_to_int4pack
    swapped = (pairs >> 4 | (pairs & 15) << 4).to(torch.uint8)
    return (int8, torch._weight_int4pack_mm(x, pack(pairs, 2), 32, numbers),
            torch._weight_int4pack_mm_with_scales_and_zeros(x[:1], pack(swapped, 2), 32, numbers[..., 0], numbers[..., 1]))

def float4_product(codes, scales):
    if codes.device.type == "cpu":
        numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        a = torch.cat([numbers, -numbers])[codes.long()] * scales.float().repeat_interleave(16, 1)
        return a @ a.t()
    a, kind = (codes[:, ::2] | codes[:, 1::2] << 4).view(torch.float4_e2m1fn_x2), F.ScalingType.BlockWise1x16
    return F.scaled_mm(a, a.t(), scales, kind, scales, kind, output_dtype=torch.float32)

q = torch.randn(2, 3, 37, 16)
CASES = {
    "attention": (trained(lambda q: F.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True)), q),
    "batch_norm": (trained(lambda x: F.batch_norm(x, None, None, training=True)), image),
    "check": (lambda i: i // (i * 0 + 3), index),
    "columns": (trained(lambda x: F.fold(F.unfold(x, 3, padding=1), (17, 19), 3, padding=1)), image),
    "convolution": (trained(lambda x, w: F.conv2d(x, w, stride=2, padding=1)), image, weight),
    "copy": (lambda m, i: (m.t().contiguous(), m.half(), i.float(), torch.cat([m, m], 1)), m, index),
    "dequantize": (float4_product, torch.randint(0, 16, (67, 176), dtype=torch.uint8), torch.rand(67, 11).to(torch.float8_e4m3fn)),
    "elementwise": (lambda x, y: (x + y, torch.where(x > y, x, y), torch.addcmul(x, x, y), x.tanh(), torch.zeros_like(x)), x, y),
    "gemm": (lambda m: (m @ m.t(), torch.addmm(m[:, 0], m, m.t())), m),
    "index": (lambda x, i, m: (x[:900][i], (x > 0.5).nonzero(), x[x > 0.5], torch.zeros(900, device=x.device).index_add(0, i, x),
                               torch.zeros(900, device=x.device).scatter_reduce(0, i, x, "amax"), m[i[:3] % 67, i[3:6] % 131], m.gather(1, i[:67, None] % 131)),
              x, index, m),
    "int_gemm": (lambda a, b: (torch._int_mm(a, b), torch._int_mm(a.to(torch.uint8), b.t().contiguous().t()), torch._int_mm(b.t(), a.t())),
                 torch.randint(-128, 128, (67, 131)).to(torch.int8), torch.randint(-128, 128, (131, 45)).to(torch.int8)),
    "layer_norm": (trained(lambda x: F.layer_norm(x, (33,))), rows),
    "lstm_cell": (trained(lambda x: torch.lstm_cell(x, (x[:, :11], x[:, 11:22]), *WEIGHTS[x.device.type])[1]), rows[0]),
    "max_pool": (trained(lambda x: F.max_pool2d(x, 3, 2)), image),
    "nll": (trained(lambda x, i: F.nll_loss(x, i[:40] % 33)), rows[0], index),
    "optimizer": (step_of_adam, x, y),
    "packed_gemm": (packed_products, torch.randn(9, 160), torch.randint(-128, 128, (40, 160)).to(torch.int8),
                    torch.randint(0, 256, (40, 80)).to(torch.uint8), torch.rand(5, 40, 2)),
    "pad": (lambda x, w: [trained(lambda x: F.pad(x, widths, mode))(z.contiguous(memory_format=f)) for z in (x, w, w.repeat(1, 5, 1, 1)) for f in
                          (torch.contiguous_format, torch.channels_last) for mode in ("reflect", "replicate") for widths in ((2, 1, -1, 2),)], image, weight),
    "random": (lambda x: (F.dropout(x, 0.5) != 0).float().mean().round(decimals=1), x),
    "reduce": (lambda x, m: (x.sum(), m.sum(0), m.sum(1), x.argmax(), m.var(1), m.amax(0), m.norm(), x.median() * 0), x, m),
    "resample": (trained(lambda x: torch.cat([y.flatten() for y in (
        *(F.interpolate(x, size=(23, 11), mode=mode) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")),
        *(F.interpolate(x, scale_factor=1.7, mode=mode, align_corners=True) for mode in ("bilinear", "bicubic")),
        *(F.interpolate(x, size=(9, 30), mode=mode, antialias=True) for mode in ("bilinear", "bicubic")),
        F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), F.adaptive_avg_pool2d(x, 7))])), image),
    "scan": (lambda x, m: (m.cumsum(1), m.cummax(1)[1], x.logcumsumexp(0), m.cumprod(0)), x, m),
    "sequence": (lambda x: torch.arange(3, 40000, 7, device=x.device), x),
    "softmax": (trained(lambda x: F.log_softmax(x, 1)), rows),
    "sort": (lambda x, m, i: (x.sort()[0], i.sort(stable=True)[1], m.topk(5)[0], torch.searchsorted(m[0].sort()[0], x)), x, m, index),
    "triangle": (lambda m: (m.tril(3), torch.triu_indices(30, 41, device=m.device)), m),
    "unscale": (unscaled, x),
}
WEIGHTS = {"cpu": [torch.randn(44, 33), torch.randn(44, 11), torch.randn(44), torch.randn(44)]}
WEIGHTS[d] = [w.to(d) for w in WEIGHTS["cpu"]]

def on_cpu(result):
    return result.cpu() if isinstance(result, torch.Tensor) else [on_cpu(part) for part in result]

for name, (call, *operands) in CASES.items():
    try:
        torch.testing.assert_close(on_cpu(call(*(t.to(d) for t in operands))), on_cpu(call(*operands)), rtol=1e-4, atol=1e-4)
    except Exception as error:
        raise AssertionError(name) from error
assert not fallback.report(), fallback.report()
print(json.dumps(sorted(CASES)))
"""


# Plugin and variant of its kernels. `make test` runs only the first one: the variant for many threads, on the driver
# that compiles fastest.
DEVICES = {
    "cuda": (driver_scripts.cuda_settings, {}),
    "opencl-simt": (driver_scripts.opencl_settings, {"HAL_OPENCL_FORM": "simt"}),
    "opencl-cpu": (driver_scripts.opencl_settings, {"HAL_OPENCL_FORM": "cpu"}),
    "npu-simt": (driver_scripts.npu_settings, {"HAL_NPU_FORM": "simt"}),
    "npu-cpu": (driver_scripts.npu_settings, {"HAL_NPU_FORM": "cpu"}),
}


@pytest.fixture(scope="module", params=[name if name == "cuda" else pytest.param(name, marks=pytest.mark.slow) for name in DEVICES])
def settings(request, tmp_path_factory):
    make, form = DEVICES[request.param]
    return {**make(driver_scripts.kernels(tmp_path_factory, request.param.partition("-")[0])), **form}


def test_each_family_of_kernels_produces_the_cpus_numbers(run):
    families = sorted(folder.name for folder in FAMILIES.iterdir() if folder.is_dir())
    assert json.loads(run("").stdout) == families, "a family of hal/ops without a case"
