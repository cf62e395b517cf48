"""A plugin's own operator that declines by shapes, dtypes and numbers alone (HAL_OP_DECLINES_ALIKE): the host remembers
the call. The plugin is maker, which logs each call of its operators, with the portable kernels of fake."""

from textwrap import dedent

from maker import run  # noqa: F401, a fixture

CALLED = ["native_layer_norm", "masked_fill.Scalar", "relu", "native_batch_norm"]
WATCHES = {"MAKER_WATCHES": ",".join(CALLED), "MAKER_DECLINES": "*"}
REPEATED = """
def results(device):
    torch.manual_seed(0)
    x, weight = torch.randn(4, 6).to(device), torch.randn(6).to(device)
    yield torch.nn.functional.layer_norm(x, (6,), weight, weight)
    yield x.masked_fill(x > 0, 2)
    yield x.relu()
    yield torch.batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5, False)

for _ in range(3):
    for ours, theirs in zip(results("maker"), results("cpu")):
        torch.testing.assert_close(ours.cpu(), theirs)
"""


def counts(calls):
    assert all(call["declined"] for call in calls)
    return {name: sum(call["op"] == name for call in calls) for name in CALLED}


def test_a_declined_call_is_not_repeated(run):  # noqa: F811
    assert counts(run(REPEATED, MAKER_ALIKE="*", **WATCHES)) == dict.fromkeys(CALLED, 1)


def test_without_the_flag_each_call_is_passed_to_the_plugin(run):  # noqa: F811
    assert counts(run(REPEATED, **WATCHES)) == dict.fromkeys(CALLED, 3)


def test_calls_that_differ_are_passed_to_the_plugin(run):  # noqa: F811
    """Each line differs from all before it in something on which a decline may depend."""
    calls = run(
        dedent("""
        x = torch.randn(4, 6).to("maker")
        mask = x > 0
        for program in (
            lambda: x.masked_fill(mask, 2),
            lambda: x.masked_fill(mask, 3),  # a number
            lambda: x.masked_fill(mask, 2.0),  # its type
            lambda: x.masked_fill(mask[:, :1], 2),  # a shape
            lambda: x.t().masked_fill(mask.t(), 2),  # strides
            lambda: x.double().masked_fill(mask, 2),  # a dtype
        ):
            for _ in range(2):
                ours = program()
                x, mask, before = x.cpu(), mask.cpu(), (x, mask)
                same(ours, program())
                x, mask = before
        """),
        MAKER_ALIKE="*", **WATCHES,
    )  # fmt: skip
    assert counts(calls)["masked_fill.Scalar"] == 6


def test_unaligned_operands_are_passed_to_the_plugin(run):  # noqa: F811
    """A decline may depend on the alignment, so calls with another one are neither remembered nor found."""
    calls = run(
        dedent("""
        x = torch.randn(65).to("maker")
        for _ in range(3):
            same(x[1:].relu(), x.cpu()[1:].relu())
        same(x[:64].relu(), x.cpu()[:64].relu())
        same(x[1:].relu(), x.cpu()[1:].relu())
        same(x[:64].relu(), x.cpu()[:64].relu())
        """),
        MAKER_ALIKE="*", **WATCHES,
    )  # fmt: skip
    assert counts(calls)["relu"] == 5


def test_what_a_capture_declines_is_not_remembered(run):  # noqa: F811
    """Without a query the host records the portable kernel, whatever the operator would do when it is called."""
    calls = run(
        dedent("""
        x = torch.randn(4, 6).to("maker")
        graph = torch.accelerator.Graph()
        with torch.maker.graph(graph):
            y = x.relu()
        graph.replay()
        same(y, x.cpu().relu())
        same(x.relu(), x.cpu().relu())
        same(x.relu(), x.cpu().relu())
        """),
        MAKER_ALIKE="*", **WATCHES,
    )  # fmt: skip
    assert counts(calls)["relu"] == 1


def test_declined_structured_operators_are_remembered(run):  # noqa: F811
    """cumsum, and softmax in place of a reduction, have ATen's meta functions; results are new, passed or in place. For a
    call in place the layouts are those of the call with a passed result, and a decline depends on nothing else.
    """
    calls = run(
        dedent("""
        x, y = torch.randn(4, 6), torch.randn(4, 6)
        ours, out = x.to("maker"), y.to("maker")
        for _ in range(3):
            same(ours.cumsum(0), x.cumsum(0))
            same(ours.softmax(1), x.softmax(1))
        for _ in range(3):
            torch.cumsum(ours, 0, out=out)
            same(out, x.cumsum(0))
        for _ in range(3):
            same(out.clone().cumsum_(0), x.cumsum(0).cumsum(0))
        """),
        MAKER_ALIKE="*", MAKER_WATCHES="cumsum,_softmax", MAKER_DECLINES="*",
    )  # fmt: skip
    assert [call["op"] for call in calls] == ["cumsum", "_softmax", "cumsum"]


def test_passed_results_that_differ_are_passed_to_the_plugin(run):  # noqa: F811
    """A decline may depend on the layout of a passed result. One that is not dense is never remembered, because a
    temporary replaces it if an operand shares its memory."""
    calls = run(
        dedent("""
        x = torch.randn(4, 6)
        ours, wide = x.to("maker"), torch.zeros(4, 12).to("maker")
        outs = (lambda: torch.zeros(4, 6).to("maker"), lambda: torch.zeros(6, 4).to("maker").t(),
                lambda: torch.zeros(5).to("maker").resize_(4, 6)[:, :], lambda: wide[:, ::2])
        for make in outs:
            for _ in range(2):
                out = make()
                torch.cumsum(ours, 0, out=out)
                torch.testing.assert_close(out.cpu(), x.cumsum(0))
        """),
        MAKER_ALIKE="*", MAKER_WATCHES="cumsum", MAKER_DECLINES="*",
    )  # fmt: skip
    assert [call["results"][0]["strides"] for call in calls] == [[6, 1], [1, 4], [12, 2], [12, 2]]


def test_passed_results_of_other_operators_are_remembered(run):  # noqa: F811
    calls = run(
        dedent("""
        x, index = torch.randn(4, 6), torch.tensor([2, 0])
        ours, ours_index = x.to("maker"), index.to("maker")
        out = torch.zeros(2, 6).to("maker")
        for _ in range(3):
            torch.index_select(ours, 0, ours_index, out=out)
            same(out, x.index_select(0, index))
        """),
        MAKER_ALIKE="*", MAKER_WATCHES="index_select", MAKER_DECLINES="*",
    )  # fmt: skip
    assert len(calls) == 1
