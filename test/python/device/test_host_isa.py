"""The setting HAL_HOST_ISA: bfloat16 products are correct in each instruction set, also by AMX on the model of its
instructions, and the log names the set in use."""

import pytest

SCRIPT = """
import torch
import torch_backend

torch_backend.use("fake")
generator = torch.Generator().manual_seed(3)


def check(call, *operands):
    mine = call(*(x.to("fake") for x in operands)).cpu().double()
    want = call(*(x.double() for x in operands))
    # one rounding to bfloat16, and sums of at most 300 products of numbers below 4 in float
    assert ((mine - want).abs() <= want.abs() * 2**-8 + 1e-3).all(), (call, (mine - want).abs().max())


def number(*sizes):
    return torch.randn(*sizes, generator=generator).clamp(-3, 3).bfloat16()


for m, n, k in ((1, 1, 1), (33, 65, 257), (130, 70, 48), (5, 3, 0)):
    check(torch.mm, number(m, k), number(k, n))
    check(lambda a, b: a.t() @ b.t(), number(k, m), number(n, k))
    check(lambda s, a, b: torch.addmm(s, a, b, beta=0.5, alpha=-2), number(n), number(m, k), number(k, n))
    check(torch.bmm, number(3, m, k), number(3, n, k).transpose(1, 2))
    check(lambda a, b: a[::2, 1:] @ b[1:, ::2], number(2 * m, k + 1), number(k + 1, 2 * n))
check(lambda x, w: torch.nn.functional.conv2d(x, w, padding=1), number(2, 3, 9, 9), number(5, 3, 3, 3))
"""


@pytest.mark.parametrize("isa", ["base", "avx512_bf16", "amx_model", "amx"])
def test_products_are_right_in_each_instruction_set(isa, run_python):
    done = run_python(SCRIPT, timeout=300, TORCH_BACKEND="fake", HAL_HOST_ISA=isa, HAL_LOG="info")
    lines = [line for line in done.stderr.splitlines() if "bfloat16 products of the host" in line]
    assert len(lines) == 1, done.stderr
    if isa in ("base", "amx_model"):  # others depend on the processor
        assert lines[0].endswith(f"bfloat16 products of the host use {isa}")


def test_an_invalid_name_is_one_warning(run_python):
    done = run_python(SCRIPT, timeout=300, TORCH_BACKEND="fake", HAL_HOST_ISA="avx1024")
    assert done.stderr.count("HAL_HOST_ISA=avx1024 is not an instruction set") == 1, done.stderr
