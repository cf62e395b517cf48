"""HAL_FAKE_PROTECT=1: the host cannot access device memory: a process that tries is terminated with a report, and the
fallback works on staged copies."""

import json
import os
import signal
import sys

import pytest
import torch
import warm_interpreter

import without_kernels

PROTECTED = {"TORCH_BACKEND": "fake", "HAL_FAKE_PROTECT": "1", "HAL_FAKE_DEVICES": "2"}

ACCESS = """
import ctypes, sys, torch
import torch_backend
x = torch.ones(1000, device="fake:1")
torch.fake.synchronize()
print(hex(x.data_ptr()), flush=True)
{access}
"""
ACCESSES = {
    "read": "ctypes.string_at(x.data_ptr() + 40, 4)",
    "written": "ctypes.memset(x.data_ptr() + 40, 1, 4)",
}


@pytest.mark.parametrize("asynchronous", ["0", "1"])
@pytest.mark.parametrize("kind, access", ACCESSES.items(), ids=ACCESSES.keys())
def test_a_host_access_dies_and_reports_device_address_allocation_and_work(run_python, kind, access, asynchronous):
    done = run_python(ACCESS.format(access=access), check=False, **PROTECTED, HAL_FAKE_ASYNC=asynchronous)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    address = int(done.stdout, 16) + 40
    assert "fake: memory of device 1 was " in done.stderr and " by the host" in done.stderr
    assert f"address: {address:#x}" in done.stderr
    assert "allocation: 0x" in done.stderr and "the access is at offset " in done.stderr
    assert "last work queued on the device: memory_fill" in done.stderr
    assert ".cpu()" in done.stderr
    if os.uname().machine == "x86_64":
        assert f"was {kind} by" in done.stderr


def test_the_report_comes_before_pythons_own(run_python):
    done = run_python(ACCESS.format(access=ACCESSES["read"]), check=False, arguments=("-X", "faulthandler"), **PROTECTED)
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.index("fake: memory of device 1") < done.stderr.index("Fatal Python error: Segmentation fault")
    assert "script.py" in done.stderr  # the line that did it


# ---- results of the staged fallback: each case produces plain values, compared with the CPU's ----
CASES = {
    "a result": "torch.cumsum(x, 1)",
    "several results": "torch.sort(x, 1)",
    "a list of results": "torch.ops.aten.unsafe_split_with_sizes(x, [1, 2, 1], 1)",
    "a decomposition": "torch.linalg.qr(x[:, :3])",
    "a number": "torch.equal(x, x.clone())",
    "an empty operand": "torch.cumsum(x[:0], 0)",
    "an optional tensor that is missing": "torch.ops.aten.histogram(x.flatten(), 4)",
    "in place": "(x.cumsum_(1), x)",
    "in place on a view": "(x[1:, ::2].cumsum_(1), x)",
    "in place on a transposed view": "(x.t()[1].cumsum_(0), x)",
    "in place on a view of a view": "(x[1][1:].cumsum_(0), x)",
    "in place through unfold": "(x.view(-1).unfold(0, 2, 2).cumsum_(1), x)",
    "out=": "(torch.cumsum(x, 1, out=out), out)",
    "out= that is a view": "(torch.cumsum(x[0], 0, out=x[:, 1][:3].new_zeros(0)), torch.cumsum(x[0, :3], 0, out=x[:, 3]), x)",
    "out= that must grow": "(torch.cumsum(x, 1, out=small), small, small.untyped_storage().nbytes())",
    "out= that grows within its storage": "(torch.cumsum(x.view(-1)[:5], 0, out=large[:0]), large)",
    "out= is an operand": "(torch.cumsum(x, 1, out=x), x)",
    "out= overlaps no operand but shares its storage": "(torch.cumsum(x[0], 0, out=x[1]), x)",
    "several out=": "(torch.sort(x, 1, out=(out, index)), out, index)",
    "two operands of one storage": "torch.kron(x[0], x[1])",
    "the same operand twice": "torch.kron(x, x)",
    "an operand that is not written stays": "(y.index_copy_(0, rows, x[:2].cumsum(0)), x, y)",
    "a mutated list": "(torch._foreach_erf_([x[0], x[2]]), x)[1]",
    "a mutated list of overlapping views": "(torch._foreach_lgamma_([x[0, 1:3], x[1], x[0, 2:]]), x)[1]",
    "a mutated list with an operand of the same storage": "(torch._foreach_lerp_([x[0], x[1]], [x[2], x[2]], 0.5), x)[1]",
    "index lists with gaps": "x[:, rows]",
    "put by index lists": "(torch.ops.aten.index_put_(x, [None, rows], y[:, :2], True), x)[1]",
    "half a storage": "(halves[6:].cumsum_(0), halves)",
    "reinterpreted elements": "(x.view(torch.int32).view(-1)[:3].bitwise_left_shift_(1), x)",
    "complex": "torch.fft.fft(x)",
    "conjugate operand": "torch.cumsum(c.conj(), 1)",
    "in place on a conjugate view": "(c.conj().cumsum_(1), c)",
    "in place on the imaginary part": "(c.imag.cumsum_(1), c)",
    "in place on a negative view": "(c.conj().imag.cumsum_(1), c)",
    "expanded operand": "torch.cumsum(x[0].expand(3, 4), 0)",
    "no dimensions": "(torch.tensor(3.0, device=x.device).erfinv_(), x.sum().lgamma())",
    "no elements": "torch.empty(0, device=x.device).cumsum_(0)",
    "a storage without elements as out=": "torch.cumsum(x, 0, out=torch.empty(0, device=x.device))",
    "running statistics": "(torch.nn.functional.batch_norm(z, mean, var, training=True), mean, var)",
    "sparse": "(s.coalesce().to_dense(), s.sum(), (s + s).to_dense())",
    "sparse in place": "(s.coalesce().mul_(2).to_dense(), s.to_dense())",
    "sparse rows": "torch.mm(x.to_sparse_csr(), x.t()).to_dense()",
    "gradients": "gradients(lambda a: torch.cumprod(a, 1).logcumsumexp(0).sum(), x + 1)",
    "convolution with gradients": "gradients(lambda a, w: torch.conv2d(a, w, padding=1).sin().sum(), z, z[:2])",
    "recurrent": "torch.nn.LSTM(4, 3).to(x.device)(x)[0].shape",
    "an error midway": "(fails(lambda: torch.linalg.cholesky(-torch.eye(3, device=x.device), out=out)), x)",
    "an error before": "(fails(lambda: x.cumsum_(7)), x)",
    "resized afterwards": "torch.cumsum(x, 1).resize_(2, 3)",
    "a view of a result": "torch.sort(x, 1)[0][1:].cumsum_(0)",
    "bigger than a chunk": "torch.cumsum(torch.ones(3_000_000, device=x.device), 0)[-1]",
}
PROGRAM = """
import json, sys, torch
import torch_backend

def plain(value):
    if isinstance(value, torch.Tensor):
        assert value.device.type in (where, "cpu"), value.device
        place = [str(value.dtype), list(value.shape), list(value.stride())] if value.layout == torch.strided else []
        value = value.detach().cpu().resolve_conj().resolve_neg()
        bits = value.to_dense() if value.layout != torch.strided else value
        return [*place, bits.tolist() if not bits.is_complex() else torch.view_as_real(bits).tolist()]
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value

def fails(call):
    try:
        call()
    except (RuntimeError, IndexError) as error:
        return type(error).__name__
    return "no error"

def gradients(function, *operands):
    operands = [one.detach().clone().requires_grad_() for one in operands]
    function(*operands).backward()
    return [one.grad for one in operands]

def values(code):
    x = (torch.arange(12.0).view(3, 4) * 5 % 7).to(where)
    y = torch.full((3, 4), -1.0, device=where)
    z = (torch.arange(96.0) % 11).view(3, 2, 4, 4).to(where)
    c = torch.complex(x.cpu(), x.cpu() + 1).to(where)
    s = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([2.0, 3.0, 4.0]), (2, 2)).to(where)
    rows = torch.tensor([0, 2], device=where)
    out, small, large = (torch.full((n,), 9.0, device=where) for n in (12, 2, 20))
    index = torch.zeros(3, 4, dtype=torch.int64, device=where)
    out = out.view(3, 4)
    halves = torch.arange(12.0, device=where)
    mean, var = torch.zeros(2, device=where), torch.ones(2, device=where)
    return plain(eval(code, {**globals(), **locals()}))

torch.manual_seed(0)
for name, code in json.load(open(sys.argv[1] if len(sys.argv) > 1 else "cases.json")).items():
    results = []
    for where in ("fake", "cpu"):
        try:
            results.append(values(code))
        except Exception as error:
            results.append(f"{type(error).__name__}: {error}")
    print(json.dumps([name, *results]), flush=True)
"""


@pytest.fixture(scope="module", params=[{"HAL_FAKE_ASYNC": "0"}, {"HAL_FAKE_DELAY": "300"}], ids=["inline", "delayed"])
def results(request, tmp_path_factory):
    """{case: (the result of the protected device, the CPU's result)}."""
    folder = tmp_path_factory.mktemp("protected")
    (folder / "cases.json").write_text(json.dumps(CASES))
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_BACKEND"))}
    path = {"HAL_PLUGIN_PATH": os.environ["HAL_PLUGIN_PATH"]} if "HAL_PLUGIN_PATH" in os.environ else {}
    (folder / "program.py").write_text(PROGRAM)
    environment = {**settings, **path, **PROTECTED, **without_kernels.SETTING, **request.param}
    done = warm_interpreter.run([sys.executable, "-P", "program.py"], env=environment, cwd=folder, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return {name: (ours, theirs) for name, ours, theirs in map(json.loads, done.stdout.splitlines())}


def same(ours, theirs):
    """Equal except for the last digits of numbers."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == pytest.approx(theirs, rel=1e-5, abs=1e-6, nan_ok=True)
    return ours == theirs


@pytest.mark.parametrize("case", CASES)
def test_the_staged_fallback_has_the_cpus_result_for(results, case):
    ours, theirs = results[case]
    assert not isinstance(theirs, str), theirs  # the case itself is wrong
    assert same(ours, theirs), f"{CASES[case]}\ndevice: {ours}\ncpu:    {theirs}"
