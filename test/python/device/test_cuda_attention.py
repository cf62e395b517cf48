"""Attention of the CUDA plugin by cuDNN, on a mock library that computes the graphs that it receives. Results equal
those of the CPU in double precision, in all shapes and layouts, forward and backward. The portable kernels run calls
that the library cannot express. test/hal/cuda/cuda_attention.c tests failures of the library."""

import driver_scripts
import pytest

HEAD = driver_scripts.BY_LIBRARY + """
F = torch.nn.functional
torch.manual_seed(0)
NAMES = ("_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_fused_attention_overrideable_backward")
TYPES = ((torch.float16, 4e-3), (torch.bfloat16, 3e-2))

def operands(dtype=torch.float16, batch=2, heads=4, kv_heads=None, queries=5, keys=7, size=8, value_size=None):
    kv_heads = kv_heads or heads
    shapes = (heads, queries, size), (kv_heads, keys, size), (kv_heads, keys, value_size or size)
    return [torch.randn(batch, *shape).to(dtype) for shape in shapes]

# Tokens before heads, the layout that projections produce.
def by_tokens(tensors):
    return [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]

def close(ours, truth, tolerance):
    torch.testing.assert_close(ours.detach().cpu().double(), truth.detach(), rtol=tolerance, atol=tolerance * max(1.0, truth.abs().max().item()))

# Compares a call and its gradients with the CPU in double precision.
def check(by_library, tensors, mask=None, tolerance=4e-3, backward=True, wanted=(True, True, True), names=NAMES, **more):
    ours = [alike(t).requires_grad_(backward and flag) for t, flag in zip(tensors, wanted)]
    theirs = [t.double().requires_grad_(backward and flag) for t, flag in zip(tensors, wanted)]
    ops.reset()
    y = F.scaled_dot_product_attention(*ours, attn_mask=None if mask is None else mask.to(d), **more)
    truth = F.scaled_dot_product_attention(*theirs, attn_mask=mask if mask is None or mask.dtype == torch.bool else mask.double(), **more)
    assert y.dtype == tensors[0].dtype
    close(y, truth, tolerance)
    if backward:
        grad = torch.randn_like(truth).to(y.dtype)
        y.backward(grad.to(d))
        truth.backward(grad.double())
        for a, b in zip(ours, theirs):
            if b.grad is not None:
                close(a.grad, b.grad, 3 * tolerance)     # weights are of the short type, too, before they are multiplied
    ran(names if backward else NAMES[:1], by_library)
"""


settings = driver_scripts.cuda_fixture(libraries=True, HAL_LAYERS="validate")


def test_both_passes_in_both_types_all_shapes_and_layouts_are_the_librarys_and_the_cpus_numbers(run):
    done = run("""
SHAPES = (dict(), dict(queries=1), dict(queries=9, keys=3), dict(size=64, queries=3), dict(size=16, value_size=24), dict(size=128, heads=1, keys=5),
          dict(heads=4, kv_heads=2), dict(heads=4, kv_heads=1, queries=3, keys=12), dict(batch=1, heads=1), dict(batch=3, queries=2, keys=1))
for dtype, tolerance in TYPES:
    for shape in SHAPES:
        tensors = operands(dtype, **shape)
        for lying, more in ((tensors, dict()), (by_tokens(tensors), dict(is_causal=True)), (tensors, dict(scale=0.3, is_causal=True))):
            check(True, lying, tolerance=tolerance, enable_gqa="kv_heads" in shape, **more)
check(True, operands(), scale=-0.3)
packed = torch.randn(2, 5, 3, 4, 8).half()                       # one projection of all three, and every other head of it
check(True, [t.transpose(1, 2) for t in packed.unbind(2)])
check(True, [t.transpose(1, 2)[:, ::2] for t in packed.unbind(2)])
for wanted in ((True, False, False), (False, True, False), (False, False, True), (False, True, True)):
    check(True, operands(kv_heads=2), wanted=wanted, enable_gqa=True)
query, key, value = (t[0].to(d) for t in operands())               # without a batch
ops.reset()
y, *_ = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(query, key, value)
close(y, F.scaled_dot_product_attention(*(t.cpu().double() for t in (query, key, value))), 4e-3)
ran(NAMES[:1], True)
""")
    assert "validate: " not in done.stderr


def test_what_the_library_has_no_words_for_is_the_portable_kernels(run):
    run("""
half = operands()
check(False, [t.float() for t in half], tolerance=1e-5)
check(False, [t.double() for t in half], tolerance=1e-6)
check(False, half, mask=torch.randn(5, 7).half())                  # what a query that sees no key gets
check(False, half, mask=torch.rand(2, 1, 5, 7) > 0.3)
check(False, operands(size=12))
check(False, operands(size=136, heads=1), names=NAMES[1:])         # of Hopper's the gradients alone
check(True, operands(size=136, heads=1), backward=False)
check(False, operands(queries=1, keys=1), names=NAMES[1:])
check(False, [half[0], half[1][:, :1].expand(-1, 4, -1, -1), half[2][:, :1].expand(-1, 4, -1, -1)])
wide = operands(size=16)                                           # addresses that are no multiple of 16 bytes
ops.reset()
close(F.scaled_dot_product_attention(*(t.to(d)[..., 1:9] for t in wide)), F.scaled_dot_product_attention(*(t[..., 1:9].double() for t in wide)), 4e-3)
ran(NAMES[:1], False)
for sizes in ((0, 4, 5, 8), (2, 4, 0, 8)):
    empty = torch.empty(sizes, dtype=torch.float16, device=d)
    assert F.scaled_dot_product_attention(empty, empty, empty).shape == sizes
torch.manual_seed(3)
ops.reset()
F.scaled_dot_product_attention(*(t.to(d) for t in half), dropout_p=0.5)
assert not any(row.plugin for row in ops.report() if row.op in NAMES)
check(False, [half[0], half[1], half[2]], mask=torch.zeros(5, 7).half())
# The portable kernel computes the backward pass of the library's result: the gradient of a sum repeats.
leaves = [t.to(d).requires_grad_() for t in half]
theirs = [t.double().requires_grad_() for t in half]
ops.reset()
for tensors in (leaves, theirs):
    F.scaled_dot_product_attention(*tensors).sum().backward()
for a, b in zip(leaves, theirs):
    close(a.grad, b.grad, 4e-3)
rows = {row.op: row for row in ops.report()}
assert rows[NAMES[0]].plugin == 1 and rows[NAMES[1]].plugin == 0, rows
""")


def test_with_a_library_that_is_too_old_the_portable_kernels_compute_and_the_log_reports_it(run):
    said = run("check(False, operands(), backward=False)", CUDNN_MOCK_VERSION="80907", HAL_LOG="info").stderr
    assert said.count("cuDNN 8.9.7 is too old for it; install 9.0 or later") == 1, said


@pytest.mark.slow
def test_what_versions_and_devices_do_not_compute_is_the_portable_kernels(run):
    assert "cuDNN" not in run("check(False, operands())", CUDNN_MOCK_VERSION="80907").stderr
    for lacking in ({"CUDA_MOCK_CAPABILITY": "75"}, {"CUDNN_MOCK_LACKS": "2"}, driver_scripts.cuda_libraries(False)):
        run("check(False, operands())", **lacking)
    run("check(True, operands(keys=128))\ncheck(False, operands(), names=NAMES[1:])", CUDNN_MOCK_VERSION="90100")
    run("check(True, operands(), backward=False)\ncheck(False, operands(), names=NAMES[1:])", CUDA_MOCK_CAPABILITY="100", CUDNN_MOCK_VERSION="91700")


# Tests little besides attention: each other kernel must be compiled.
BLOCK = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mixed, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x):
        parts = [t.transpose(1, 2) for t in self.mixed(x).view(*x.shape[:2], 3, 2, 8).unbind(2)]
        return self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))

def block():
    torch.manual_seed(3)
    return Block().half()

def step(net, optimizer, x, target):
    optimizer.zero_grad(set_to_none=False)
    loss = F.mse_loss(net(x), target)
    loss.backward()
    optimizer.step()
    return loss
"""


def test_a_block_trains_as_on_the_cpu_and_coverage_and_profile_name_the_implementation(run):
    run(BLOCK + """
x, target = torch.randn(2, 6, 16).half(), torch.randn(2, 6, 16).half()

def train(device, dtype):
    net = block().to(device, dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return torch.stack([step(net, optimizer, x.to(device, dtype), target.to(device, dtype)).detach().cpu().double() for _ in range(5)])

ops.reset()
torch.testing.assert_close(train(d, torch.float16), train("cpu", torch.float64), rtol=5e-3, atol=1e-3)
ran(NAMES, True)
rows = [row for row in ops.coverage(*NAMES) if row.kind == "native"]
assert rows
for row in rows:                                                   # float32: queried because of the logarithms, and declined
    assert row.by.startswith("plugin") and set(row.plugin) == {"float16", "bfloat16", "float32"}, row
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
    train(d, torch.float16)
    torch.accelerator.synchronize()
names = {event.name for event in result.events()}
for name in ("cudnnBackendExecute: attention", "cudnnBackendExecute: attention backward"):
    assert any(name in each for each in names), (name, sorted(names))
""")


def test_a_captured_step_has_the_librarys_attention_in_the_drivers_graph(run):
    done = run(BLOCK + """
net, x, target = block().to(d), torch.randn(2, 6, 16).half().to(d), torch.randn(2, 6, 16).half().to(d)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
tokens = [torch.randn(2, 6, 16).half() for _ in range(4)]
for _ in range(2):
    step(net, optimizer, x, target)
before = {name: t.clone() for name, t in net.state_dict().items()}
eager = []
for each in tokens:
    x.copy_(each)
    eager.append(step(net, optimizer, x, target).item())
graph = torch.accelerator.Graph()
with torch.nvgpu.graph(graph):
    loss = step(net, optimizer, x, target)
net.load_state_dict(before)
replayed = []
for each in tokens:
    x.copy_(each)
    graph.replay()
    replayed.append(loss.item())
torch.testing.assert_close(replayed, eager, rtol=1e-5, atol=1e-6)
print("done")
""", HAL_LAYERS="trace,validate", HAL_LOG="info")
    assert done.stdout.endswith("done\n")
    assert "validate: " not in done.stderr
    recorded, *replays = done.stderr.split("> nvgpu.graph_launch(")
    assert "fused_attention_overrideable(" in recorded and len(replays) >= 3
    assert not any("attention" in replay for replay in replays[:3]), "it is in the graph"
