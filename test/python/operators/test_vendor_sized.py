"""A plugin's own operators with special calling conventions (docs/own-operators.md). Random operators receive the
generator's state in the call, fills and factories receive only a result, and results whose size depends on the data
have their exact size, or their maximum size with the number of elements. Each receives the user's arguments; the
portable kernels run declined calls."""

from maker import BFLOAT16, BOOL, FLOAT32, INT64, run, tensor  # noqa: F401

# {operator: (program, arguments, results)}: of the only call of the program. It is compared with the CPU or, for random
# numbers, with the fake device, which has the same generator but not the plugin. None: any result.
T, ROW = tensor(FLOAT32, (4, 3), (1, 4)), tensor(FLOAT32, (4,), (1,))
HALF = tensor(BFLOAT16, (4, 3), (1, 4))
STRIDED = "x = torch.zeros(3, 4, dtype=torch.bfloat16, device=d).t()\n"
DRAWN = {
    "uniform": (STRIDED + "x.uniform_(1, 3)", [1, 3], [HALF]),
    "normal_functional": (STRIDED + "x.normal_(1, 3)", [1, 3], [HALF]),
    "bernoulli.p": (STRIDED + "x.bernoulli_(0.25)", [0.25], [HALF]),
    "exponential": (STRIDED + "x.exponential_(2)", [2], [HALF]),
    "geometric": (STRIDED + "x.geometric_(0.5)", [0.5], [HALF]),
    "cauchy": (STRIDED + "x.cauchy_(1, 2)", [1, 2], [HALF]),
    "log_normal": (STRIDED + "x.log_normal_(1, 2)", [1, 2], [HALF]),
    "random.from": ("x = torch.zeros(3, 4, device=d).t()\nx.random_(2, 9)", [2, 7], [T]),
    "randperm": ("x = torch.randperm(5, device=d)", [], [tensor(INT64, (5,), (1,))]),
    "bernoulli.Tensor": ("x = torch.zeros(3, 4, device=d).t()\nx.bernoulli_(torch.full((3,), 0.5, device=d))", [tensor(FLOAT32, (3,), (1,))], [T]),
    "normal.Tensor_float": ("x = torch.normal(torch.zeros(3, 4, device=d).t(), 2.0)", [T, 2], [tensor(FLOAT32, (4, 3), (3, 1))]),
    "normal.float_Tensor": ("x = torch.normal(1.0, torch.ones(3, 4, device=d).t())", [1, T], [tensor(FLOAT32, (4, 3), (3, 1))]),
    "normal.Tensor_Tensor": ("x = torch.normal(torch.zeros(4, 1, device=d), torch.ones(3, device=d))",
                             [tensor(FLOAT32, (4, 1), (1, 1)), tensor(FLOAT32, (3,), (1,))], [tensor(FLOAT32, (4, 3), (3, 1))]),
    "multinomial": ("x = torch.multinomial(torch.ones(3, 4, device=d).t(), 2)", [T, 2, False], [tensor(INT64, (4, 2), (2, 1))]),
    "native_dropout": ("x, y = torch.native_dropout(torch.ones(3, 4, device=d).t(), 0.5, True)", [T, 0.5, True], None),
}  # fmt: skip
GIVEN = {
    "fill.Scalar": ("x = torch.zeros(3, 4, device=d).t()\nx.fill_(2.5)", [2.5], [T]),
    "fill.Tensor": ("x = torch.zeros(3, 4, device=d).t()\nx.fill_(torch.tensor(7).to(d))", [tensor(INT64, (), ())], [T]),
    "zero": ("x = torch.ones(3, 4, device=d).t()\nx.zero_()", [], [T]),
    "arange.start_step": ("x = torch.arange(1, 9, 2, device=d)", [1, 2], [tensor(INT64, (4,), (1,))]),
    "linspace": ("x = torch.linspace(0, 1, 4, device=d)", [0, 1], [ROW]),
    "logspace": ("x = torch.logspace(0, 1, 4, device=d)", [0, 1, 10], [ROW]),
    "eye.m": ("x = torch.eye(3, 4, device=d)", [], [tensor(FLOAT32, (3, 4), (4, 1))]),
    "tril_indices": ("x = torch.tril_indices(3, 3, device=d)", [3, 3, 0], [tensor(INT64, (2, 6), (6, 1))]),
    "triu_indices": ("x = torch.triu_indices(3, 2, 1, device=d)", [3, 2, 1], [tensor(INT64, (2, 1), (1, 1))]),
    "nonzero": ("x = torch.eye(3, device=d).bfloat16().t().nonzero()", [tensor(BFLOAT16, (3, 3), (1, 3))], [tensor(INT64, (3, 2), (1, 3))]),
    "masked_select": ("a = torch.arange(12.0).view(3, 4).to(d).t()\nx = a.masked_select(a[0] > 3)",
                      [T, tensor(BOOL, (3,), (1,))], [tensor(FLOAT32, (8,), (1,))]),
    "bincount": ("x = torch.tensor([1, 3, 1]).to(d).bincount(minlength=2)", [tensor(INT64, (3,), (1,)), None, 2], [tensor(INT64, (4,), (1,))]),
    "repeat_interleave.Tensor": ("x = torch.repeat_interleave(torch.tensor([2, 0, 3]).to(d))", [tensor(INT64, (3,), (1,))], [tensor(INT64, (5,), (1,))]),
    "_unique2": ("x = torch.tensor([[3, 1], [1, 2]]).to(d).t().unique(return_counts=True)[1]", [tensor(INT64, (2, 2), (1, 2)), True, False, True],
                 [tensor(INT64, (4,), (1,)), None, tensor(INT64, (4,), (1,)), tensor(INT64, (), ())]),
    "unique_consecutive": ("x = torch.tensor([3, 3, 1, 3]).to(d).unique_consecutive(return_inverse=True)[1]",
                           [tensor(INT64, (4,), (1,)), True, False, None],
                           [tensor(INT64, (4,), (1,)), tensor(INT64, (4,), (1,)), None, tensor(INT64, (), ())]),
    "equal": ("a = torch.ones(3, 4, device=d).t()\nx = torch.tensor(torch.equal(a, a + 0)).to(d)", [T, T], [tensor(BOOL, (), ())]),
    "mode": ("x = torch.tensor([[1., 2, 2], [3, 3, 1]]).to(d).t().mode(0)[0]", [tensor(FLOAT32, (3, 2), (1, 3)), 0, False],
             [tensor(FLOAT32, (2,), (1,)), tensor(INT64, (2,), (1,))]),
    "_cummax_helper": ("x = torch.arange(12.).view(3, 4).to(d).t().cummax(0)[1]", [T, 0], None),
    "_adaptive_avg_pool2d": ("x = torch.empty(0, device=d)\ntorch._C._nn.adaptive_avg_pool2d(torch.ones(1, 4, 4, device=d), (2, 2), out=x)",
                             [tensor(FLOAT32, (1, 4, 4), (16, 4, 1)), [2, 2]], [tensor(FLOAT32, (1, 2, 2), (4, 2, 1))]),
    "_adaptive_avg_pool3d_backward": ("x = torch.empty(0, device=d)\na = torch.ones(1, 2, 4, 4, device=d)\n"
                                      "torch.ops.aten.adaptive_avg_pool3d_backward.grad_input(a[:, :1, :2, :2].contiguous(), a, grad_input=x)",
                                      [tensor(FLOAT32, (1, 1, 2, 2), (4, 4, 2, 1)), tensor(FLOAT32, (1, 2, 4, 4), (32, 16, 4, 1))],
                                      [tensor(FLOAT32, (1, 2, 4, 4), (32, 16, 4, 1))]),
    "lstm.input": ("torch.manual_seed(1)\nm, a = torch.nn.LSTM(3, 2), torch.randn(4, 1, 3)\nm = m.to(d)\nwith torch.no_grad(): x = m(a.to(d))[0]",
                   None, [tensor(FLOAT32, (4, 1, 2), (2, 2, 1))] + [tensor(FLOAT32, (1, 1, 2), (2, 2, 1))] * 2),
}  # fmt: skip


def functions_of(table):
    """The programs of a table as functions of a device, and the result of each on the plugin's device."""
    lines = ["ours, d = {}, 'maker'"]
    for number, (program, *_) in enumerate(table.values()):
        lines += [f"def program{number}(d):", "    torch.manual_seed(3)", *(f"    {line}" for line in program.split("\n")), "    return x",
                  f"ours[{number}] = program{number}('maker')"]
    return "\n".join(lines) + "\n"


def check(seen, table):
    for op, (_, arguments, results) in table.items():
        calls = [call for call in seen if call["op"] == op]
        fits = [call for call in calls if arguments in (None, call["args"]) and results in (None, call["results"])]
        assert fits and all(call["declined"] for call in calls), (op, calls)
        yield op, fits[0]


def test_calls_without_operands_or_with_sized_results_are_passed_as_the_user_made_them(run):  # noqa: F811
    compare = "for number, x in ours.items(): torch.testing.assert_close(x.cpu(), globals()[f'program{number}']('cpu'))"
    assert dict(check(run(functions_of(GIVEN) + compare, MAKER_WATCHES=",".join(GIVEN)), GIVEN))


def test_random_operators_receive_the_result_and_the_generators_state(run, tmp_path):  # noqa: F811
    """A declined call generates the same numbers as without the plugin: the state was not advanced."""
    drawn = {}
    for watched in (",".join(DRAWN), ""):
        out = tmp_path / "numbers"
        seen = run(functions_of(DRAWN) + f"open({str(out)!r}, 'w').write(str([x.double().tolist() for x in ours.values()]))", MAKER_WATCHES=watched)
        drawn[watched] = out.read_text()
        if watched:
            assert all(call["state"] == [3, 0] for op, call in check(seen, DRAWN))
    assert len(set(drawn.values())) == 1


# Operators of the plugin that run their calls (maker_sized.c).
ANSWERED = """
x, mask = torch.tensor([[3., 0, 1], [1, 1, 0]]).to("maker"), torch.tensor([[True, False, True], [False, True, False]]).to("maker")
c, cm = x.cpu(), mask.cpu()
with strict():
    same(x.t().nonzero(), c.t().nonzero())
    out = torch.empty(0, dtype=torch.int64, device="maker")
    torch.nonzero(x, out=out)
    expected = torch.nonzero(c, out=torch.empty(0, dtype=torch.int64))
    assert torch.equal(out.cpu(), expected) and out.stride() == expected.stride()  # column by column
    whole = torch.empty(expected.shape, dtype=torch.int64, device="maker")  # what need not be resized lies as it did
    assert torch.equal(torch.nonzero(x, out=whole).cpu(), expected) and whole.is_contiguous()
    same(x.masked_select(mask), c.masked_select(cm))
    same(torch.masked_select(x, mask, out=torch.empty(0, device="maker")), c.masked_select(cm))
    n, w = torch.tensor([1, 4, 1]), torch.tensor([0.5, 2, 1])
    same(n.to("maker").bincount(w.to("maker")), n.bincount(w))
    same(torch.repeat_interleave(n.to("maker")), torch.repeat_interleave(n))
    for inverse in (False, True):
        for counts in (False, True):
            same(x.t().unique(return_inverse=inverse, return_counts=counts), c.t().unique(return_inverse=inverse, return_counts=counts))
            same(x.unique_consecutive(return_inverse=inverse, return_counts=counts), c.unique_consecutive(return_inverse=inverse, return_counts=counts))
    assert torch.equal(x, x.clone()) and not torch.equal(x, x + 1)
    y = torch.ones(3, 2).to("maker").t()
    assert y.fill_(2.5).tolist() == [[2.5] * 3] * 2 and y.fill_(x[0, 0]).tolist() == [[3.0] * 3] * 2
    assert y.zero_().tolist() == [[0.0] * 3] * 2 and y.uniform_(1, 5).tolist() == [[2.0] * 3] * 2
rows = {row.op: row for row in torch_backend.ops.report()}
for op in ("nonzero", "masked_select", "bincount", "repeat_interleave.Tensor", "_unique2", "unique_consecutive", "equal", "fill.Tensor", "zero", "uniform"):
    assert rows[op].plugin and not rows[op].composed and not rows[op].fallback, rows[op]
"""


def test_a_plugin_returns_results_of_data_dependent_size(run):  # noqa: F811
    names = "nonzero,masked_select,bincount,repeat_interleave.Tensor,unique_consecutive,_unique2,equal,fill.Scalar,fill.Tensor,zero,uniform"
    seen = run(ANSWERED, MAKER_HAS=names)
    assert {call["op"] for call in seen if not call["declined"]} >= set(names.split(","))


ATTENTION = """
q, k, v = (torch.randn(1, 2, n, 4) for n in (3, 5, 5))
theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.3)
d = [x.to("maker").requires_grad_() for x in (q, k, v)]
ours = torch.nn.functional.scaled_dot_product_attention(*d, dropout_p=DROPOUT, scale=0.3)
torch.testing.assert_close(ours.detach().cpu(), theirs)
"""
OP = "_scaled_dot_product_fused_attention_overrideable"


def test_attention_is_passed_as_the_user_made_it_and_its_gradient_may_be_a_portable_kernel(run):  # noqa: F811
    gradients = """
leaves = [x.clone().requires_grad_() for x in (q, k, v)]
torch.nn.functional.scaled_dot_product_attention(*leaves, scale=0.3).sum().backward()
ours.sum().backward()
for a, b in zip(d, leaves): torch.testing.assert_close(a.grad.cpu(), b.grad)
"""
    seen = run(ATTENTION.replace("DROPOUT", "0.0") + gradients, MAKER_HAS=OP, MAKER_WATCHES=f"{OP}_backward")
    forward, backward = (call for call in seen if OP in call["op"])
    q, k = tensor(FLOAT32, (1, 2, 3, 4), (24, 12, 4, 1)), tensor(FLOAT32, (1, 2, 5, 4), (40, 20, 4, 1))
    assert not forward["declined"] and forward["args"] == [q, k, k, None, False, 0.3, 0, False]
    assert forward["results"] == [q, tensor(FLOAT32, (1, 2, 3), (6, 3, 1)), None]
    assert backward["declined"] and backward["op"] == f"{OP}_backward"
    assert backward["args"][1:] == [q, k, k, None, q, tensor(FLOAT32, (1, 2, 3), (6, 3, 1)), False, 0.3, 0]
    assert backward["results"] == [q, k, k, None]


def test_the_gradient_of_a_plugins_dropout_runs_only_on_the_plugin(run):  # noqa: F811
    refused = """
try:
    ours.sum().backward()
except NotImplementedError as error:
    assert "must decline a dropout" in str(error), error
else:
    raise AssertionError("a gradient with another dropout than the result's")
"""
    seen = run(ATTENTION.replace("DROPOUT", "0.25") + refused, MAKER_HAS=OP, MAKER_WATCHES=f"{OP}_backward")
    forward, backward = (call for call in seen if OP in call["op"])
    assert forward["args"][6] == 0.25 and forward["state"] == backward["state"]


def test_a_dropout_that_a_plugin_declines_is_generated_as_without_it(run, tmp_path):  # noqa: F811
    texts = []
    for watched in (f"{OP},{OP}_backward", ""):
        out = tmp_path / "numbers"
        run(ATTENTION.replace("DROPOUT", "0.25").replace("torch.testing.assert_close(ours.detach().cpu(), theirs)", "ours.sum().backward()")
            + f"open({str(out)!r}, 'w').write(str([ours.tolist(), *(x.grad.tolist() for x in d)]))", MAKER_WATCHES=watched)  # fmt: skip
        texts.append(out.read_text())
    assert texts[0] == texts[1]
