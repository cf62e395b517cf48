"""Convolutions and batch normalization of the CUDA plugin by cuDNN, on a mock library: results equal those of the CPU
in all types, layouts and directions. The portable kernels run calls that the library cannot express.
test/hal/cuda/cuda_dnn.c tests failures of the library."""

import driver_scripts
import pytest

HEAD = driver_scripts.BY_LIBRARY + """
F = torch.nn.functional
torch.manual_seed(0)
TYPES = ((torch.float32, 2e-5), (torch.float64, 1e-11), (torch.float16, 4e-3), (torch.bfloat16, 3e-2))
FORMATS = {3: (torch.contiguous_format,), 4: (torch.contiguous_format, torch.channels_last), 5: (torch.contiguous_format, torch.channels_last_3d)}

# In float32 at least: what is rounded once at the end is the truth.
def wide(t):
    return t.detach().to(torch.promote_types(t.dtype, torch.float32)).clone() if isinstance(t, torch.Tensor) else t

def close(ours, truth, tolerance):
    torch.testing.assert_close(ours.cpu().to(truth.dtype), truth, rtol=tolerance, atol=tolerance * max(1.0, truth.abs().max().item()))

# Compares a call and the gradients of all operands with the CPU. grad: the result's gradient; by default it has the layout of the result.
def check(call, names, by_library, *operands, tolerance=2e-5, lies_as=None, grad=None, backward=True):
    ours = [alike(t).requires_grad_(backward) if isinstance(t, torch.Tensor) else t for t in operands]
    theirs = [wide(t).requires_grad_(backward) if isinstance(t, torch.Tensor) else t for t in operands]
    ops.reset()
    y, truth = call(*ours), call(*theirs)
    assert y.dtype == ours[0].dtype and (lies_as is None or y.is_contiguous(memory_format=lies_as)), y.stride()
    close(y.detach(), truth.detach(), tolerance)
    if backward:
        grad = torch.randn(truth.shape).to(y.dtype) if grad is None else grad
        y.backward(alike(grad.contiguous(memory_format=lies_as)) if lies_as else alike(grad))
        truth.backward(wide(grad))
        for a, b in zip(ours, theirs):
            if isinstance(a, torch.Tensor):
                close(a.grad, b.grad, tolerance)
    ran(names, by_library)

BOTH = ("convolution_overrideable", "convolution_backward_overrideable")
NORMS = ("native_batch_norm", "native_batch_norm_backward")
"""
settings = driver_scripts.cuda_fixture(libraries=True, HAL_LAYERS="validate")


def test_convolutions_of_all_types_and_layouts_and_their_gradients_are_the_librarys_and_the_cpus_numbers(run):
    done = run("""
CALLS = (
    (F.conv1d, (2, 4, 9), (6, 4, 3), dict(padding=1, stride=2)),
    (F.conv1d, (2, 4, 9), (6, 2, 3), dict(groups=2, dilation=2)),
    (F.conv2d, (2, 4, 7, 8), (6, 4, 3, 2), dict(padding=(1, 0), stride=(2, 1))),
    (F.conv2d, (1, 4, 9, 8), (8, 1, 3, 3), dict(groups=4, dilation=2, padding=2)),
    (F.conv2d, (2, 8, 5, 5), (4, 8, 1, 1), {}),
    (F.conv3d, (1, 2, 4, 5, 6), (4, 2, 2, 3, 2), dict(padding=1, stride=(1, 2, 1))),
    (F.conv_transpose1d, (2, 4, 5), (4, 3, 3), dict(stride=2, output_padding=1)),
    (F.conv_transpose2d, (2, 4, 5, 4), (4, 3, 3, 3), dict(stride=2, padding=1, output_padding=(1, 0), groups=2)),
    (F.conv_transpose3d, (1, 2, 3, 3, 3), (2, 4, 2, 2, 3), dict(dilation=(1, 2, 1))))
for dtype, tolerance in TYPES:
    for f, x, w, more in CALLS:
        outputs = w[1] * more.get("groups", 1) if "transpose" in f.__name__ else w[0]
        for form in FORMATS[len(x)]:
            operands = [torch.randn(s).to(dtype).contiguous(memory_format=form) for s in (x, w)]
            bias = () if form == torch.contiguous_format and dtype == torch.float32 else (torch.randn(outputs).to(dtype),)
            check(lambda *t: f(*t, **more), BOTH, True, *operands, *bias, tolerance=tolerance, lies_as=form)
x, w, b = torch.randn(2, 4, 6, 6, device=d), torch.randn(4, 4, 3, 3, device=d), torch.randn(4, device=d)
for wanted in ((True, False, False), (False, True, False), (False, False, True)):      # one gradient alone
    ours = [t.clone().requires_grad_(flag) for t, flag in zip((x, w, b), wanted)]
    theirs = [t.cpu().clone().requires_grad_(flag) for t, flag in zip((x, w, b), wanted)]
    ops.reset()
    for operands in (ours, theirs):
        F.conv2d(*operands).backward(torch.ones(2, 4, 4, 4, device=operands[0].device))
    ran(BOTH, True)
    close(ours[wanted.index(True)].grad, theirs[wanted.index(True)].grad, 2e-5)
""")
    assert "validate: " not in done.stderr


def test_operands_of_two_orders_with_gaps_repeated_or_at_any_address_are_copied_for_the_library(run):
    done = run("""
x, w, gradient_of_a_sum = torch.randn(2, 4, 7, 8), torch.randn(6, 4, 3, 3), torch.ones(1, 1, 1, 1).expand(2, 6, 5, 6)
last = torch.channels_last
for dtype, tolerance in TYPES:
    check(F.conv2d, BOTH, True, x.to(dtype), w.to(dtype).contiguous(memory_format=last), tolerance=tolerance, lies_as=last)
    check(F.conv2d, BOTH, True, x.to(dtype), w.to(dtype), grad=gradient_of_a_sum.to(dtype), tolerance=tolerance)
check(F.conv2d, BOTH, True, x.contiguous(memory_format=last), w, lies_as=last)
check(F.conv2d, BOTH, True, torch.randn(2, 4, 7, 9)[..., 1:], w)
check(F.conv2d, BOTH, True, torch.randn(7, 4, 8, 2).permute(3, 1, 0, 2), torch.randn(3, 3, 4, 6).permute(3, 2, 0, 1))
check(F.conv2d, BOTH, True, torch.randn(1, 4, 1, 8).expand(2, 4, 7, 8), w, grad=torch.randn(2, 6, 5, 1).expand(2, 6, 5, 6))
check(F.conv1d, BOTH, True, torch.randn(2, 9, 4).transpose(1, 2), torch.randn(6, 4, 3), torch.randn(6))
check(F.conv_transpose3d, BOTH, True, torch.randn(1, 3, 3, 3, 2).permute(0, 4, 1, 2, 3)[..., ::2], torch.randn(2, 4, 2, 2, 3))
odd = torch.randn(x.numel() + 1)
ops.reset()
close(F.conv2d(odd.to(d)[1:].view(2, 4, 7, 8), w.to(d)), F.conv2d(odd[1:].view(2, 4, 7, 8), w), 2e-5)
ran(BOTH[:1], True)
# One memory as two operands, which lie in it in two ways.
x, w = torch.randn(2, 4, 5, 5), torch.randn(4, 4, 1, 1)
backward = lambda x, w: torch.ops.aten.convolution_backward(x.transpose(2, 3), x, w, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3)
ops.reset()
for ours, theirs in zip(backward(x.to(d), w.to(d)), backward(x, w)):
    close(ours, theirs, 2e-5)
ran(BOTH[1:], True)
""")
    assert "validate: " not in done.stderr


def test_what_the_library_has_no_words_for_is_the_portable_kernels(run):
    run("""
x, w = torch.randn(2, 4, 7, 8), torch.randn(6, 4, 3, 3)
check(F.conv2d, BOTH[:1], False, torch.randn(60).as_strided((2, 4, 4, 5), (1, 2, 3, 4)), w, backward=False)  # elements that overlap
assert F.conv2d(torch.empty(0, 4, 7, 8, device=d), w.to(d)).shape == (0, 6, 5, 6)
check(lambda t: F.batch_norm(t, None, None, training=True), NORMS, False, x)
mean, var, p = torch.randn(4), torch.rand(4) + 0.5, [torch.randn(4) for _ in range(2)]
evaluated = lambda t, *p: F.batch_norm(t, mean.to(t.device), var.to(t.device), *p)
check(evaluated, NORMS[1:], False, x, *p)                                                             # backward alone
for dtype in (torch.float16, torch.bfloat16):                                                         # short parameters, by whomever
    check(lambda t, *p: F.batch_norm(t, None, None, *p, training=True), NORMS, None, x.to(dtype), *(t.to(dtype) for t in p), tolerance=5e-2)
""")


def test_norms_of_all_types_and_layouts_and_their_gradients_are_the_librarys_and_the_cpus_numbers(run):
    done = run("""
SHAPES = ((9, 3), (4, 3, 7), (2, 5, 4, 3), (1, 3, 5, 6), (2, 3, 3, 2, 4))
for dtype, tolerance in TYPES:
    parameters = torch.promote_types(dtype, torch.float32)
    for shape in SHAPES:
        for form in FORMATS.get(len(shape), (None,)):
            x = torch.randn(shape).mul(2).add(1).to(dtype)
            x = x.contiguous(memory_format=form) if form else x
            p = [torch.randn(shape[1]).to(parameters) for _ in range(2)]
            for momentum in (None, 0.3):
                running = {kind: [torch.linspace(-1, 1, shape[1]).to(parameters).to(kind), torch.linspace(0.5, 2, shape[1]).to(parameters).to(kind)] for kind in ("cpu", d)}
                def norm(t, *p, training=True):
                    statistics = running[t.device.type] if momentum else (None, None)
                    return F.batch_norm(t, *statistics, *p, training=training, momentum=momentum or 0.0)
                check(norm, NORMS, True, x, *p, tolerance=tolerance, lies_as=form)
                if momentum:
                    for ours, theirs in zip(running[d], running["cpu"]):
                        close(ours, theirs, 1e-5 if parameters == torch.float32 else 1e-12)
                    check(lambda *t: norm(*t, training=False), NORMS[:1], True, x, *p, tolerance=tolerance, lies_as=form, backward=False)
x, p = torch.randn(2, 3, 4, 5, device=d), [torch.randn(3, device=d) for _ in range(2)]
y, mean, rstd = torch.native_batch_norm(x, *p, None, None, True, 0.1, 1e-3)
for wanted in ([True, False, False], [False, True, False], [False, False, True]):      # one gradient alone
    arguments = (x, x, p[0], None, None, mean, rstd, True, 1e-3, wanted)
    ours, theirs = (torch.ops.aten.native_batch_norm_backward(*(a.to(k) if isinstance(a, torch.Tensor) else a for a in arguments)) for k in (d, "cpu"))
    for a, b, flag in zip(ours, theirs, wanted):
        if flag:
            close(a, b, 2e-5)
""")
    assert "validate: " not in done.stderr


# Tests little besides convolutions and norms: each other kernel must be compiled.
NETWORK = """
def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3, stride=2),
                               torch.nn.BatchNorm2d(4))

def train(device, form, steps=4):
    net, x, target = network().to(device, memory_format=form), torch.randn(8, 3, 8, 8), torch.randn(8, 4, 3, 3)
    x, target = (t.to(device).contiguous(memory_format=form) for t in (x, target))
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.05), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    net.eval()
    return torch.cat([torch.stack(losses).cpu(), net(x).detach().flatten().cpu()])
"""


def test_a_network_trains_as_on_the_cpu_and_coverage_and_profile_name_the_implementation(run):
    run(NETWORK + """
for form in (torch.contiguous_format, torch.channels_last):
    ops.reset()
    torch.testing.assert_close(train(d, form), train("cpu", form), rtol=1e-3, atol=1e-4)
    ran(BOTH + NORMS, True)
for row in ops.coverage(*BOTH, *NORMS):
    if row.kind == "native":
        assert row.by == "plugin, portable" and set(row.plugin) == {"float16", "bfloat16", "float32", "float64"}, row
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
    train(d, torch.contiguous_format, 1)
    torch.accelerator.synchronize()
names = {event.name for event in result.events()}
for name in ("cudnnConvolutionForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter", "cudnnBatchNormalizationForwardTraining",
             "cudnnBatchNormalizationForwardInference", "cudnnBatchNormalizationBackward"):
    assert any(name in each for each in names), (name, sorted(names))
""")


def test_a_captured_step_has_the_librarys_work_in_the_drivers_graph(run):
    done = run(NETWORK + """
net, x, target = network().to(d), torch.randn(8, 3, 8, 8).to(d), torch.randn(8, 4, 3, 3).to(d)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

def step():
    optimizer.zero_grad(set_to_none=False)
    loss = F.mse_loss(net(x), target)
    loss.backward()
    optimizer.step()
    return loss

images = [torch.randn(8, 3, 8, 8) for _ in range(4)]
for _ in range(2):
    step()
before = {name: t.clone() for name, t in net.state_dict().items()}
eager = []
for image in images:
    x.copy_(image)
    eager.append(step().item())
after = {name: t.clone() for name, t in net.state_dict().items()}
graph = torch.accelerator.Graph()
with torch.nvgpu.graph(graph):
    loss = step()
net.load_state_dict(before)
replayed = []
for image in images:
    x.copy_(image)
    graph.replay()
    replayed.append(loss.item())
torch.testing.assert_close(replayed, eager, rtol=1e-5, atol=1e-6)
for name, t in net.state_dict().items():
    if t.is_floating_point():
        torch.testing.assert_close(t, after[name], rtol=1e-4, atol=1e-5)
print("done")
""", HAL_LAYERS="trace,validate", HAL_LOG="info")
    assert done.stdout.endswith("done\n")
    assert "validate: " not in done.stderr
    recorded, *replays = done.stderr.split("> nvgpu.graph_launch(")
    assert "convolution_overrideable(" in recorded and "native_batch_norm(" in recorded and len(replays) >= 3
    assert not any("convolution" in replay or "batch_norm" in replay for replay in replays[:3]), "they are in the graph"
