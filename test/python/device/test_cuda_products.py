"""Matrix products of the CUDA plugin by cuBLASLt, on a mock library: results equal those of the CPU in all types,
layouts and sums. The portable kernels run products that the library cannot compute exactly. A missing, too old, too new
or broken library is reported in one message."""

import driver_scripts
import pytest

HEAD = driver_scripts.BY_LIBRARY + """
def check(call, by_library, *tensors, tolerance=1e-5, **more):
    ops.reset()
    expected = call(*tensors, **more)
    torch.testing.assert_close(call(*map(alike, tensors), **more).cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    ran(("mm", "bmm", "addmm", "baddbmm"), by_library)
"""
settings = driver_scripts.cuda_fixture(libraries=True, HAL_LAYERS="validate")


def test_the_library_computes_products_in_all_its_types_and_layouts_as_the_cpu(run):
    run("""
for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float64, 1e-12)):
    a, b = torch.randn(6, 8, dtype=dtype), torch.randn(8, 4, dtype=dtype)
    for x in (a, a.t().contiguous().t(), torch.randn(6, 11, dtype=dtype)[:, 3:], torch.randn(12, 8, dtype=dtype)[::2], a[:1], a[1:2]):
        for y in (b, b.t().contiguous().t(), torch.randn(8, 9, dtype=dtype)[:, 5:], b[:, :1], b[:, 2:3]):
            check(torch.mm, True, x, y, tolerance=tolerance)
    check(torch.mm, True, a[:, :1], b[:1], tolerance=tolerance)
    p, q = torch.randn(3, 6, 8, dtype=dtype), torch.randn(3, 8, 4, dtype=dtype)
    for x in (p, p.transpose(1, 2).contiguous().transpose(1, 2), p.transpose(0, 1).contiguous().transpose(0, 1), a.expand(3, 6, 8)):
        for y in (q, q.transpose(1, 2).contiguous().transpose(1, 2), torch.randn(3, 8, 9, dtype=dtype)[:, :, 5:], q[:, :, :1]):
            check(torch.bmm, True, x, y, tolerance=tolerance)
""")


def test_what_is_added_is_a_bias_or_a_matrix_and_nothing_that_is_multiplied_by_zero(run):
    run("""
a, b, p, q = torch.randn(6, 8), torch.randn(8, 4), torch.randn(3, 6, 8), torch.randn(3, 8, 4)
nan = float("nan")
for added in (torch.randn(4), torch.randn(1, 4), torch.randn(6, 4), torch.randn(6, 9)[:, 2:6], torch.randn(8)[3:7]):
    check(torch.addmm, True, added, a, b)
    check(torch.addmm, True, added, a, b, alpha=0.5)
    check(torch.addmm, True, added * nan, a, b, beta=0)
    check(torch.baddbmm, True, added, p, q)
for added in (torch.randn(6, 4), torch.randn(3, 6, 4)):
    check(torch.baddbmm, True, added, p, q, beta=-1.5, alpha=2)
for added in (torch.randn(3, 1, 4), torch.randn(3, 6, 4)):
    check(torch.baddbmm, True, added, p, q)
check(torch.addmm, True, torch.randn(6, 4), a, b, beta=2, alpha=3)
# Those that the library has no words for.
for added in (torch.randn(6, 1), torch.randn(1, 1), torch.randn(8)[::2], torch.randn(4, 6).t()):
    check(torch.addmm, False, added, a, b)
check(torch.addmm, False, torch.randn(4), a, b, beta=2)
""")


def test_results_may_lie_column_by_column_and_with_gaps(run):
    run("""
a, b = torch.randn(6, 8), torch.randn(8, 4)
expected = a @ b
for make in (lambda: torch.zeros(4, 6, device=d).t(), lambda: torch.zeros(6, 7, device=d)[:, 2:6]):
    out = make()
    ops.reset()
    torch.mm(a.to(d), b.to(d), out=out)
    assert [row.plugin for row in ops.report() if row.op == "mm"] == [1]
    torch.testing.assert_close(out.cpu(), expected)
column = torch.randn(6, 1)
out = torch.zeros(4, 6, device=d).t()
torch.addmm(column.to(d), a.to(d), b.to(d), out=out)
torch.testing.assert_close(out.cpu(), torch.addmm(column, a, b))
gaps = torch.full((6, 7), 5.0, device=d)
torch.mm(a.to(d), b.to(d), out=gaps[:, 2:6])
assert bool((gaps[:, :2] == 5).all()) and bool((gaps[:, 6:] == 5).all())
""")


def test_products_that_the_library_cannot_compute_exactly_do_not_reach_it(run):
    run("""
a, b = torch.randn(6, 8), torch.randn(8, 4)
check(torch.mm, False, a.to(torch.complex64), b.to(torch.complex64), tolerance=1e-4)
check(torch.mm, False, torch.randn(8).as_strided((6, 3), (1, 1)), torch.randn(3, 4))      # rows overlap
check(torch.mm, False, torch.randn(6, 16)[:, ::2], b)
assert torch.equal(torch.mm(torch.ones(6, 0, device=d), torch.ones(0, 4, device=d)).cpu(), torch.zeros(6, 4))
assert torch.mm(torch.ones(0, 5, device=d), torch.ones(5, 4, device=d)).shape == (0, 4)
x = torch.full((2, 3), float("nan"), device=d)
relu = torch._addmm_activation(torch.zeros(4, device=d), x, torch.ones(3, 4, device=d))
assert bool(relu.isnan().all())                                                            # the library's ReLU makes 0 of NaN
gelu = torch._addmm_activation(torch.zeros(4), a[:, :3], b[:3], use_gelu=True)
torch.testing.assert_close(torch._addmm_activation(torch.zeros(4, device=d), a[:, :3].to(d), b[:3].to(d), use_gelu=True).cpu(), gelu)
""")


def test_a_graph_replays_the_librarys_products_with_new_operands(run):
    run("""
x, w, bias = torch.randn(6, 8, device=d), torch.randn(4, 8, device=d), torch.randn(4, device=d)
torch.nn.functional.linear(x, w, bias)
graph = torch.accelerator.Graph()
with graph:
    y = torch.nn.functional.linear(x, w, bias)
for _ in range(3):
    x.copy_(torch.randn(6, 8))
    graph.replay()
    torch.testing.assert_close(y.cpu(), torch.nn.functional.linear(x.cpu(), w.cpu(), bias.cpu()))
""")


def test_a_network_trains_with_it_as_on_the_cpu(run):
    run(driver_scripts.train_as_on_the_cpu("nvgpu")
        + "\nrows = {row.op: row for row in ops.report()}\nassert rows['addmm'].plugin == rows['addmm'].native > 0, rows")


def test_the_coverage_reports_that_the_plugin_runs_the_operators(run):
    run("""
for row in ops.coverage("mm", "bmm", "addmm", "baddbmm"):
    if row.kind == "native":
        assert row.by == "plugin, portable" and set(row.plugin) == {"float16", "bfloat16", "float32", "float64"}, row
""")
    run("assert {row.by for row in ops.coverage('mm')} <= {'', 'portable'}", **driver_scripts.cuda_libraries(False))


SUM = """
a, b = torch.randn(6, 8), torch.randn(8, 4)
torch.testing.assert_close((a.to(d) @ b.to(d)).cpu(), a @ b)
rows = {row.op: row for row in ops.report()}
assert rows["mm"].native == 1 and rows["mm"].plugin == %d
"""


def test_without_the_library_the_portable_kernels_compute_and_only_the_info_log_reports_it(run):
    none = driver_scripts.cuda_libraries(False)
    assert "cuBLAS" not in run(SUM % 0, **none).stderr
    logged = "HAL_CUDA_CUBLASLT=none" if "HAL_CUDA_CUBLASLT" in none else "no libcublasLt.so was found"
    assert logged in run(SUM % 0, HAL_LOG="info", **none).stderr
    left_out = "cuBLAS is not used (HAL_CUDA_CUBLASLT=none); the portable kernels compute matrix products"
    assert left_out in run(SUM % 0, HAL_LOG="info", HAL_CUDA_CUBLASLT="none").stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"CUBLASLT_MOCK_VERSION": "110300"}, "is cuBLAS 11.3, too old"),
        ({"CUDA_MOCK_VERSION": "12040", "HAL_CUDA_CUBLASLT": str(driver_scripts.CUDA_LIBRARIES / "libraries/libcublasLt.so.13")}, "is cuBLAS 13.1 of CUDA 13, and the driver is made for CUDA 12.4"),
        ({"CUBLASLT_MOCK_CREATE": "1"}, "CUBLAS_STATUS_NOT_INITIALIZED"),
        ({"HAL_CUDA_CUBLASLT": "/nowhere/libcublasLt.so"}, "/nowhere/libcublasLt.so cannot be loaded"),
        ({"HAL_CUDA_CUBLASLT": "libm.so.6"}, "lacks cublasLtGetProperty"),
    ],
)
def test_an_unusable_library_is_reported_once_and_the_portable_kernels_compute(run, setting, message):
    stderr = run(SUM % 0 + "torch.bmm(torch.ones(1, 2, 2, device=d), torch.ones(1, 2, 2, device=d))", **setting).stderr
    assert stderr.count(message) == 1, stderr


def test_types_that_the_device_lacks_are_the_portable_kernels(run):
    run("a, b = torch.randn(6, 8).bfloat16(), torch.randn(8, 4).bfloat16()\ncheck(torch.mm, False, a, b, tolerance=2e-2)\n"
        "check(torch.mm, True, a.half(), b.half(), tolerance=2e-3)", CUBLASLT_MOCK_LACKS="14")  # fmt: skip


def test_a_call_that_fails_is_an_error_that_names_operator_and_status(run):
    run("""
try:
    torch.ones(6, 8, device=d) @ torch.ones(8, 4, device=d)
except RuntimeError as error:
    assert "cuBLAS refused mm" in str(error) and "CUBLAS_STATUS_EXECUTION_FAILED" in str(error), error
else:
    raise AssertionError("no error")
""", CUBLASLT_MOCK_FAILS="1")


def test_products_of_a_captured_step_are_in_the_drivers_graph_with_memory_of_their_own(run):
    done = run("""
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)).to(d)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(6, 8).to(d)

def step():
    optimizer.zero_grad(set_to_none=False)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss

def train(replay):
    torch.manual_seed(1)
    losses, before = [], [p.detach().clone() for p in model.parameters()]
    for i in range(6):
        x.copy_(torch.full((6, 8), float(i)))
        losses.append((replay or step)())
        losses[-1] = losses[-1].item()
        torch.randn(1 << 16, device=d)  # an allocation that reuses free memory
    for p, was in zip(model.parameters(), before):
        p.data.copy_(was)
    return losses

for _ in range(3):
    step()
eager = train(None)
graph = torch.accelerator.Graph()
with torch.nvgpu.graph(graph):
    loss = step()

def replay():
    graph.replay()
    return loss

torch.testing.assert_close(train(replay), eager, rtol=1e-5, atol=0)
model.eval()
held = torch.accelerator.memory_allocated()
with torch.nvgpu.graph(other := torch.accelerator.Graph()):
    y = model(x)
captured = torch.accelerator.memory_allocated()
other.replay()
assert torch.accelerator.memory_allocated() == captured
other.replay()
assert torch.accelerator.memory_allocated() > captured, "the products' workspaces are the graph's"
torch.accelerator.synchronize()  # the memory of a program is released when its last run is done
del y, other
assert torch.accelerator.memory_allocated() == held
print("done")
""", HAL_LAYERS="trace,validate", HAL_LOG="info")
    assert done.stdout.endswith("done\n")
    assert "validate: " not in done.stderr
    recorded, *replays = done.stderr.split("> nvgpu.graph_launch(")
    assert "addmm(" in recorded and len(replays) >= 5
    assert not any("mm(" in replay for replay in replays[:5]), "products are in the graph"
