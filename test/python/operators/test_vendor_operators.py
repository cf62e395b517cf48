"""A plugin's own operators take precedence, and receive the user's arguments: operands in their dtype, layout and
shape, before they are cast, copied or made contiguous. Declined calls run on the portable kernel, not on the CPU. The
plugin is C code against the installed header (test/hal/plugins/maker*.c). test_vendor_sized.py tests factories, fills,
random numbers, and results whose size depends on the data."""

import pytest
from maker import BFLOAT16, FLOAT16, FLOAT32, INT8, INT64, run, tensor  # noqa: F401

CONVOLUTION = """
x = torch.randn(2, 3, 8, 6).bfloat16().to(memory_format=torch.channels_last)
w, b = torch.randn(4, 3, 3, 3).bfloat16().to(memory_format=torch.channels_last), torch.randn(4).bfloat16()
with strict():
    y = torch.conv2d(x.to("maker"), w.to("maker"), b.to("maker"), stride=2, padding=1)
same(y, torch.conv2d(x.float(), w.float(), b.float(), stride=2, padding=1).bfloat16().to(memory_format=torch.channels_last), rtol=1e-2, atol=1e-2)
"""

POOLING = """
x = torch.randn(2, 3, 8, 6).bfloat16().to(memory_format=torch.channels_last)
with strict():
    y = torch.nn.functional.avg_pool2d(x.to("maker"), 3, 2, 1, count_include_pad=False)
same(y, torch.nn.functional.avg_pool2d(x.float(), 3, 2, 1, count_include_pad=False).bfloat16().to(memory_format=torch.channels_last),
     rtol=1e-2, atol=1e-2)
"""

CAT = """
a, b = torch.randn(3, 4).t(), torch.randn(4, 2)
with strict():
    y = torch.cat([a.to("maker"), b.to("maker")], 1)
    out = torch.empty(0, device="maker")
    torch.cat([a.to("maker"), b.to("maker")], 1, out=out)
same(y, torch.cat([a, b], 1), rtol=0, atol=0)
same(out, torch.cat([a, b], 1), rtol=0, atol=0)
"""

GROUP_NORM = """
x, w, b = torch.randn(2, 6, 5), torch.randn(6), torch.randn(6)
with strict():
    results = torch.native_group_norm(x.to("maker"), w.to("maker"), b.to("maker"), 2, 6, 5, 3, 1e-5)
same(results, torch.native_group_norm(x, w, b, 2, 6, 5, 3, 1e-5))
"""

LAYER_NORM = """
x, w = torch.randn(5, 2, 4).transpose(0, 1), torch.randn(5, 4)
with strict():
    y = torch.nn.functional.layer_norm(x.to("maker"), (5, 4), w.to("maker"), None)
torch.testing.assert_close(y.cpu(), torch.nn.functional.layer_norm(x, (5, 4), w, None))
"""

SCAN = """
x = torch.randn(3, 4)
with strict():
    y = x.to("maker")
    z = y.cumsum(1)
    y.cumsum_(0)
same(z, x.cumsum(1))
same(y, x.cumsum(0))
"""

PADDING = """
x = torch.randn(2, 3, 5).bfloat16()
with strict():
    y = torch.nn.functional.pad(x.to("maker"), (2, 1), mode="reflect")
same(y, torch.nn.functional.pad(x, (2, 1), mode="reflect"), rtol=0, atol=0)
"""

REDUCTION = """
x = torch.randn(3, 4, 5).bfloat16().transpose(0, 2)
with strict():
    y = x.to("maker").sum((-1, 0), keepdim=True, dtype=torch.float32)
    z = x.to("maker").sum(1)
same(y, x.sum((-1, 0), keepdim=True, dtype=torch.float32))
same(z, x.sum(1), rtol=2e-2, atol=2e-2)
"""

OPTIMIZER = """
parameters = [torch.randn(3, 2), torch.randn(4)]
gradients = [torch.randn(3, 2), torch.randn(4)]
ours = [p.to("maker").requires_grad_() for p in parameters]
for p, g in zip(ours, gradients):
    p.grad = g.to("maker")
with strict():
    torch.optim.SGD(ours, lr=0.5, fused=True).step()
for p, a, g in zip(ours, parameters, gradients):
    torch.testing.assert_close(p.detach().cpu(), a - 0.5 * g)
"""

SUM = """
a, b = torch.randn(3, 4).bfloat16(), torch.arange(3).view(3, 1)
with strict():
    y = a.to("maker") + a.to("maker")
    z = torch.add(a.to("maker"), b.to("maker"), alpha=2)
same(y, a + a, rtol=0, atol=0)
same(z, torch.add(a, b, alpha=2))
"""

RECTIFIER = """
x = torch.randn(3, 4).bfloat16().t()
with strict():
    y = torch.relu(x.to("maker"))
same(y, torch.relu(x), rtol=0, atol=0)
"""

LARGEST = """
x = torch.randn(3, 4).bfloat16().t()
with strict():
    y = x.to("maker").max()
same(y, x.max(), rtol=0, atol=0)
"""

BATCH_NORM = """
x, w, b = torch.randn(2, 3, 4).transpose(0, 2).contiguous().transpose(0, 2), torch.randn(3), torch.randn(3)
statistics = torch.zeros(3), torch.ones(3)
moved = [s.to("maker") for s in statistics]
with strict():
    results = torch._native_batch_norm_legit(x.to("maker"), w.to("maker"), b.to("maker"), *moved, True, 0.1, 1e-5)
for ours, theirs in zip(results, torch._native_batch_norm_legit(x, w, b, *statistics, True, 0.1, 1e-5)):
    torch.testing.assert_close(ours.cpu(), theirs)
same(moved, statistics)
"""

PROGRAMS = {"convolution_overrideable": CONVOLUTION, "avg_pool2d": POOLING, "cat": CAT, "native_group_norm": GROUP_NORM,
            "native_layer_norm": LAYER_NORM, "cumsum": SCAN, "reflection_pad1d": PADDING,
            "sum.dim_IntList": REDUCTION, "_fused_sgd": OPTIMIZER, "add.Tensor": SUM, "relu": RECTIFIER, "max": LARGEST,
            "_native_batch_norm_legit": BATCH_NORM}  # fmt: skip


def test_a_convolution_is_shown_bfloat16_in_channels_last_order(run):
    (call,) = run(CONVOLUTION)
    assert call["op"] == "convolution_overrideable" and not call["declined"]
    x, w, b, *lists = call["args"]
    assert x == tensor(BFLOAT16, (2, 3, 8, 6), (144, 1, 18, 3))
    assert w == tensor(BFLOAT16, (4, 3, 3, 3), (27, 1, 9, 3))
    assert b == tensor(BFLOAT16, (4,), (1,))
    assert lists == [[2, 2], [1, 1], [1, 1], False, [0, 0], 1]
    assert call["results"] == [tensor(BFLOAT16, (2, 4, 4, 3), (48, 1, 12, 4))]


def test_a_pool_of_averages_is_shown_as_a_whole(run):
    (call,) = run(POOLING)
    assert call["op"] == "avg_pool2d"
    assert call["args"] == [tensor(BFLOAT16, (2, 3, 8, 6), (144, 1, 18, 3)), [3, 3], [2, 2], [1, 1], False, False, None]
    assert call["results"] == [tensor(BFLOAT16, (2, 3, 4, 3), (36, 1, 9, 3))]


def test_lists_of_tensors_keep_their_strides(run):
    calls = run(CAT)
    assert [call["op"] for call in calls] == ["cat", "cat"]
    for call in calls:
        assert call["args"] == [[tensor(FLOAT32, (4, 3), (1, 4)), tensor(FLOAT32, (4, 2), (2, 1))], 1]
        assert call["results"] == [tensor(FLOAT32, (4, 5), (5, 1))]


def test_a_group_normalization_is_passed_as_a_whole(run):
    (call,) = run(GROUP_NORM)
    assert call["op"] == "native_group_norm"
    assert call["args"][0] == tensor(FLOAT32, (2, 6, 5), (30, 5, 1)) and call["args"][3:] == [2, 6, 5, 3, 1e-5]
    assert [result["sizes"] for result in call["results"]] == [[2, 6, 5], [2, 3], [2, 3]]


def test_an_operator_with_a_kernel_of_ours_sees_what_the_kernel_is_not_shown(run):
    """The portable kernel requires a contiguous matrix; the plugin receives the user's tensor and the normalized shape.
    """
    (call,) = run(LAYER_NORM)
    x, w, b, eps, shape = call["args"]
    assert x == tensor(FLOAT32, (2, 5, 4), (4, 8, 1)) and w == tensor(FLOAT32, (5, 4), (4, 1))
    assert (b, eps, shape) == (None, 1e-5, [5, 4])


def test_results_in_place_of_an_operand_are_written_after_it_was_read(run):
    calls = run(SCAN)
    assert [call["op"] for call in calls] == ["cumsum", "cumsum"]


@pytest.mark.parametrize("op", PROGRAMS)
def test_calls_that_an_operator_declines_run_on_the_portable_kernels(run, op):
    """In strict mode, in which the CPU must not run the operator: bfloat16 runs on the kernel of float32. The plugin is
    queried once."""
    calls = run(PROGRAMS[op], MAKER_DECLINES=op)
    assert calls and all(call["declined"] for call in calls if call["op"] == op)
    assert len([call for call in calls if call["op"] == op]) == {"cat": 2, "cumsum": 2, "sum.dim_IntList": 2, "add.Tensor": 2}.get(op, 1)


def test_a_reduction_is_shown_the_dtype_before_it_is_promoted(run):
    kept, dropped = run(REDUCTION)
    assert kept["args"] == [tensor(BFLOAT16, (5, 4, 3), (1, 5, 20)), [-1, 0]]
    assert kept["results"] == [tensor(FLOAT32, (1, 4, 1), (4, 1, 1))]
    assert dropped["args"][1] == [1] and dropped["results"][0]["sizes"] == [5, 3]


def test_an_element_wise_operator_is_shown_operands_of_different_dtypes_in_the_results_shape(run):
    alike, mixed = run(SUM)
    assert alike["args"][:2] == [tensor(BFLOAT16, (3, 4), (4, 1))] * 2
    assert mixed["args"] == [tensor(BFLOAT16, (3, 4), (4, 1)), tensor(INT64, (3, 4), (1, 0)), 2]
    assert mixed["results"] == [tensor(BFLOAT16, (3, 4), (4, 1))]


def test_an_optimizer_is_shown_all_parameters_at_once(run):
    (call,) = run(OPTIMIZER)
    assert call["op"] == "_fused_sgd"
    parameters, gradients, buffers, *_ = call["args"]
    assert parameters == gradients == [tensor(FLOAT32, (3, 2), (2, 1)), tensor(FLOAT32, (4,), (1,))] and buffers == []
    assert call["results"] == parameters + gradients  # the lists that the operator may write


@pytest.mark.parametrize("op, program, sizes", [("relu", RECTIFIER, [4, 3]), ("max", LARGEST, [])])
def test_an_operator_without_its_own_kernel_receives_the_users_arguments(run, op, program, sizes):
    (call,) = run(program)
    assert call["op"] == op and call["args"] == [tensor(BFLOAT16, (4, 3), (1, 4))]
    assert call["results"][0]["dtype"] == BFLOAT16 and call["results"][0]["sizes"] == sizes


def test_a_batch_normalization_writes_the_running_statistics_after_its_results(run):
    (call,) = run(BATCH_NORM)
    assert call["op"] == "_native_batch_norm_legit" and call["args"][5:] == [True, 0.1, 1e-5]
    assert [result["sizes"] for result in call["results"]] == [[2, 3, 4], [3], [3], [3], [3]]
    assert call["results"][3:] == call["args"][3:5]


def test_operators_count_as_the_plugins_own(run):
    run(
        POOLING
        + """
rows = {row.op: row for row in torch_backend.ops.report()}
assert rows["avg_pool2d"].native == 1 and rows["avg_pool2d"].fallback == 0, rows
assert "resample" not in rows
"""
    )


def test_composed_operators_are_counted_as_composed(run):
    run(
        GROUP_NORM
        + """
row = {row.op: row for row in torch_backend.ops.report()}["native_group_norm"]
assert (row.native, row.plugin, row.composed, row.fallback) == (0, 0, 1, 0), row
""",
        MAKER_DECLINES="native_group_norm",
    )


# Programs that check their results, and the operands that the plugin's operator receives before it declines the call:
# (program, operator, arguments, shapes of the results).
X, T = "torch.arange(12.0).view(3, 4)", tensor(FLOAT32, (4, 3), (1, 4))
WHOLE = {
    "indexing with a mask's place left out": (
        f"x, i, j = {X}.t(), torch.tensor([[3], [0]]), torch.tensor([2, 1])\n"
        "call = lambda d: x.to(d)[i.to(d), j.to(d)]",
        "index.Tensor", [T, [tensor(INT64, (2, 1), (1, 1)), tensor(INT64, (2,), (1,))]], [[2, 2]]),
    "indexing past a dimension": (
        f"x, i = {X}.t(), torch.tensor([2, 1])\ncall = lambda d: x.to(d)[:, i.to(d)]",
        "index.Tensor", [T, [None, tensor(INT64, (2,), (1,))]], [[4, 2]]),
    "assignment": (
        f"x, i = {X}.t(), torch.tensor([3, 0])\n"
        "call = lambda d: torch.index_put(x.to(d), (i.to(d),), torch.ones(3).to(d), accumulate=True)",
        "_index_put_impl", [tensor(FLOAT32, (4, 3), (1, 4)), [tensor(INT64, (2,), (1,))], tensor(FLOAT32, (3,), (1,)), True], [[4, 3]]),
    "sorting of narrow integers": (
        "x = torch.tensor([[3, -1, 2], [5, 4, 4]], dtype=torch.int8).t()\ncall = lambda d: x.to(d).sort(dim=0, descending=True, stable=True)",
        "sort.stable", [tensor(INT8, (3, 2), (1, 3)), True, 0, True], [[3, 2], [3, 2]]),
    "a search": (
        f"x, y = {X}, torch.tensor([[1.5], [9.0], [5.0]])\ncall = lambda d: torch.searchsorted(x.to(d), y.to(d), right=True)",
        "searchsorted.Tensor", [tensor(FLOAT32, (3, 4), (4, 1)), tensor(FLOAT32, (3, 1), (1, 1)), False, True, None, None], [[3, 1]]),
    "a reduction by an index": (
        f"x, i = {X}, torch.tensor([[0, 1, 1, 2]])\n"
        "call = lambda d: x.to(d).scatter_reduce(0, i.to(d), torch.ones(1, 4).to(d), 'amax', include_self=False)",
        "scatter_reduce.two", [tensor(FLOAT32, (3, 4), (4, 1)), 0, tensor(INT64, (1, 4), (4, 1)), tensor(FLOAT32, (1, 4), (4, 1)), "tag 4", False],
        [[3, 4]]),
    "the gradient of an embedding": (
        "g, i = torch.arange(6.0).view(3, 2).bfloat16(), torch.tensor([1, 0, 1])\n"
        "call = lambda d: torch.ops.aten.embedding_dense_backward(g.to(d), i.to(d), 4, -1, False)",
        "embedding_dense_backward", [tensor(BFLOAT16, (3, 2), (2, 1)), tensor(INT64, (3,), (1,)), 4, -1, False], [[4, 2]]),
    "a gate": (
        f"x = {X}.bfloat16()\ncall = lambda d: torch.nn.functional.glu(x.to(d), 1)",
        "glu", [tensor(BFLOAT16, (3, 4), (4, 1)), 1], [[3, 2]]),
    "windows as columns": (
        "x = torch.arange(16.0).view(1, 1, 4, 4)\ncall = lambda d: torch.nn.functional.unfold(x.to(d), 3, padding=1, stride=2)",
        "im2col", [tensor(FLOAT32, (1, 1, 4, 4), (16, 16, 4, 1)), [3, 3], [1, 1], [1, 1], [2, 2]], [[1, 9, 4]]),
    "cross entropy": (
        "x, y = torch.rand(3, 4).t(), torch.rand(4, 3)\ncall = lambda d: torch.nn.functional.binary_cross_entropy(x.to(d), y.to(d))",
        "binary_cross_entropy", [T, tensor(FLOAT32, (4, 3), (3, 1)), None, 1], [[]]),
    "membership": (
        f"x, y = {X}.t(), torch.tensor([3.0, 5.0])\ncall = lambda d: torch.isin(x.to(d), y.to(d), invert=True)",
        "isin.Tensor_Tensor", [T, tensor(FLOAT32, (2,), (1,)), False, True], [[4, 3]]),
    "a histogram": (
        f"x = {X}.t()\ncall = lambda d: torch.histc(x.to(d), 5, 1, 9)", "histc", [T, 5, 1, 9], [[5]]),
    "samples of an image": (
        "x, g = torch.randn(1, 1, 4, 4).half(), torch.rand(1, 2, 2, 2).half()\n"
        "call = lambda d: torch.nn.functional.grid_sample(x.to(d), g.to(d), align_corners=True).float()",
        "grid_sampler_2d", [tensor(FLOAT16, (1, 1, 4, 4), (16, 16, 4, 1)), tensor(FLOAT16, (1, 2, 2, 2), (8, 4, 2, 1)), 0, 0, True],
        [[1, 1, 2, 2]]),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_an_operator_is_shown_as_a_whole_what_its_kernel_is_given_in_parts(run, name):
    program, op, arguments, shapes = WHOLE[name]
    check = "\nours, theirs = call('maker'), call('cpu')\nsame(ours, theirs, rtol=1e-2, atol=1e-2)\n"
    seen = [call for call in run(program + check, MAKER_WATCHES=op) if call["op"] == op]
    assert seen and seen[0]["declined"]
    assert seen[0]["args"] == arguments
    assert [result["sizes"] for result in seen[0]["results"]] == shapes


def test_a_mask_is_not_passed_because_the_results_size_is_unknown(run):
    program = "x = torch.arange(4.0).to('maker')\nassert x[x > 1].tolist() == [2, 3]"
    assert not [call for call in run(program, MAKER_WATCHES="index.Tensor") if call["op"] == "index.Tensor"]


def test_an_attention_layer_in_evaluation_is_shown_as_a_whole(run):
    (call,) = [call for call in run(
        """
torch.manual_seed(0)
model, x = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 3, 8)
with torch.no_grad():
    theirs = model(x, x, x, need_weights=False)[0]
    y = x.to("maker")
    same(model.to("maker")(y, y, y, need_weights=False)[0], theirs)
""", MAKER_WATCHES="_native_multi_head_attention") if call["op"] == "_native_multi_head_attention"]  # fmt: skip
    assert call["args"][:5] == [tensor(FLOAT32, (2, 3, 8), (24, 8, 1))] * 3 + [8, 2]
