"""Convolutions and recurrent cells, whose ATen entry points only raise an error for out-of-tree backends: forward and
backward compared with the CPU."""

import contextlib
import copy

import pytest
import torch
import torch_backend
from torch_backend.fallback import force, strict


def compare(make, inputs, device, rtol=1e-4, atol=1e-5):
    """Runs a module on the CPU and on the device from the same weights; compares result and all gradients."""
    torch.manual_seed(0)
    model = make()
    places = {}
    for place in ("cpu", device):
        model.zero_grad(set_to_none=True)
        model.to(place)
        leaves = [x.detach().to(place).requires_grad_() for x in inputs]
        result = model(*leaves)
        result = result[0] if isinstance(result, tuple) else result
        result.sin().sum().backward()
        assert result.device.type == place
        places[place] = [x.detach().cpu() for x in (result, *(leaf.grad for leaf in leaves),
                                                    *(p.grad for p in model.parameters()))]  # fmt: skip
    for ours, theirs in zip(places[device], places["cpu"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


CONVOLUTIONS = {
    "plain": lambda: torch.nn.Conv2d(4, 6, 3),
    "no bias": lambda: torch.nn.Conv2d(4, 6, 3, bias=False),
    "stride and padding": lambda: torch.nn.Conv2d(4, 6, 3, stride=2, padding=1),
    "dilated": lambda: torch.nn.Conv2d(4, 6, 3, dilation=2),
    "groups": lambda: torch.nn.Conv2d(4, 8, 3, groups=2),
    "depthwise": lambda: torch.nn.Conv2d(4, 4, 3, groups=4),
    "one by one": lambda: torch.nn.Conv2d(4, 6, 1),
    "transposed": lambda: torch.nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1),
    "transposed with groups": lambda: torch.nn.ConvTranspose2d(4, 6, 3, groups=2),
}


@pytest.mark.parametrize("make", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolution_2d(device, make):
    compare(make, [torch.randn(2, 4, 9, 10)], device)


def test_convolution_1d_and_3d(device):
    compare(lambda: torch.nn.Conv1d(3, 5, 3, padding="same"), [torch.randn(2, 3, 12)], device)
    compare(lambda: torch.nn.Conv3d(2, 3, 2), [torch.randn(1, 2, 4, 5, 6)], device)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_rank_with_stride_groups_and_dilation(device, dim, transposed):
    name = f"Conv{'Transpose' if transposed else ''}{dim}d"
    compare(lambda: getattr(torch.nn, name)(4, 6, 3, stride=2, padding=1, dilation=2, groups=2),
            [torch.randn(2, 4, *(8, 7, 6)[:dim])], device)  # fmt: skip


@pytest.mark.parametrize("name", ["plain", "depthwise", "transposed"])
def test_convolution_of_channels_last(device, name):
    x = torch.randn(2, 4, 9, 10).contiguous(memory_format=torch.channels_last)
    compare(CONVOLUTIONS[name], [x], device)
    convolution = CONVOLUTIONS[name]().to(memory_format=torch.channels_last)
    theirs = convolution(x)
    assert convolution.to(device)(x.to(device)).stride() == theirs.stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128])
def test_dtypes_of_convolutions(device, dtype):
    """The reference is double precision, rounded once: some CPUs sum gradients of half precision in half precision."""
    torch.manual_seed(0)
    x, weight, bias = (t.to(dtype) for t in (torch.randn(2, 4, 6, 6), torch.randn(6, 2, 3, 3), torch.randn(6)))
    places = []
    for place, computed in (("cpu", torch.promote_types(dtype, torch.float64)), (device, dtype)):
        leaves = [t.to(place, computed, copy=True).requires_grad_() for t in (x, weight, bias)]
        result = torch.nn.functional.conv2d(*leaves, stride=2, padding=1, groups=2)
        assert result.dtype == computed and result.device.type == place
        result.backward(torch.ones_like(result))
        places.append([result.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)])
    for exact, ours in zip(*places, strict=True):
        torch.testing.assert_close(ours, exact.to(dtype))


@pytest.mark.parametrize("transposed", [False, True])
def test_the_gradient_of_a_convolutions_gradient(device, transposed):
    """conv -> grad -> grad, in double precision, compared with finite differences."""
    function = torch.nn.functional.conv_transpose1d if transposed else torch.nn.functional.conv1d
    torch.manual_seed(0)
    x, weight = torch.randn(1, 2, 5), torch.randn(2, 2, 2)
    leaves = [t.double().to(device).requires_grad_() for t in (x, weight)]
    assert torch.autograd.gradgradcheck(lambda x, weight: function(x, weight, stride=2, padding=1), leaves)


def test_convolutions_without_elements_and_without_a_batch(device):
    convolution = torch.nn.Conv2d(4, 6, 3)
    for shape in ((0, 4, 5, 5), (4, 5, 5)):
        compare(lambda: convolution, [torch.ones(shape)], device)


def test_only_the_gradients_that_are_wanted_are_computed(device):
    convolution = torch.nn.Conv2d(2, 3, 2).to(device).requires_grad_(False)
    convolution.bias.requires_grad_()
    convolution(torch.ones(1, 2, 4, 4, device=device)).sum().backward()
    assert convolution.weight.grad is None and convolution.bias.grad.tolist() == [9, 9, 9]


def test_convolution_in_double_precision_passes_gradcheck(device):
    convolution = torch.nn.Conv2d(2, 2, 2).double().to(device)
    x = torch.randn(1, 2, 3, 3, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(convolution, (x,))


def test_wrong_channels_are_refused(device):
    with pytest.raises(RuntimeError, match="channels"):
        torch.nn.Conv2d(3, 4, 3).to(device)(torch.ones(1, 5, 8, 8, device=device))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_networks(device, kind, bias):
    compare(lambda: kind(5, 7, num_layers=2, bias=bias, bidirectional=True), [torch.randn(6, 3, 5)], device)


def test_lstm_with_given_state_and_gradient_of_the_cell_state(device):
    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(4, 3)
    grads = []
    for place in ("cpu", device):
        cell.to(place)
        torch.manual_seed(1)
        x, h, c = (torch.randn(2, n).to(place).requires_grad_() for n in (4, 3, 3))
        hy, cy = cell(x, (h, c))
        (cy.sum() * 3 + hy.mul(hy).sum()).backward()
        grads.append([t.grad.cpu() for t in (x, h, c)])
    for ours, theirs in zip(*grads):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_gru_cell_in_each_dtype(device, dtype, bias):
    """Results and gradients of a step compared with the CPU's own implementation in float64."""
    torch.manual_seed(0)
    cell, found = torch.nn.GRUCell(4, 3, bias=bias), []
    operands = torch.randn(2, 4), torch.randn(2, 3)
    for place, computing in (("cpu", torch.float64), (device, dtype)):
        ours = copy.deepcopy(cell).to(dtype).to(place, computing)
        leaves = [t.to(dtype).to(place, computing).requires_grad_() for t in operands]
        with strict() if place == device else contextlib.nullcontext():
            result = ours(*leaves)
            result.sin().sum().backward()
        found.append([t.detach().cpu().double() for t in (result, *(leaf.grad for leaf in leaves), *(p.grad for p in ours.parameters()))])
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=40 * torch.finfo(dtype).eps, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("shape", [(4, 9), (1, 9)], ids=str)
def test_gru_cell_of_gates_that_broadcast(device, shape):
    """The kernel computes gates with the state's sample layout; pointwise operators compute others, and those on
    devices without the kernel."""
    torch.manual_seed(0)
    gates, hidden, state = torch.randn(shape), torch.randn(4, 9), torch.randn(4, 3)
    (a, b, c), (d, e, f) = gates.chunk(3, 1), hidden.chunk(3, 1)
    reset, update = torch.sigmoid(a + d), torch.sigmoid(b + e)
    new = torch.tanh(c + reset * f)
    for without in ((), ("_thnn_fused_gru_cell",)):
        with strict(), force(*without):
            result = torch.ops.aten._thnn_fused_gru_cell(*(t.to(device) for t in (gates, hidden, state)))[0]
        torch.testing.assert_close(result.cpu(), (state - new) * update + new)


def test_lstm_with_projections(device):
    compare(lambda: torch.nn.LSTM(5, 7, num_layers=2, proj_size=3, bidirectional=True), [torch.randn(6, 3, 5)], device)


@pytest.mark.parametrize("options", [{"batch_first": True}, {"num_layers": 3}, {"num_layers": 2, "dropout": 1.0}, {"bias": False}], ids=str)
def test_lstm_from_a_given_state(device, options):
    torch.manual_seed(0)
    network, places = torch.nn.LSTM(5, 7, **options), {}
    samples, state = (3, 6, 5), torch.randn(2, options.get("num_layers", 1), 3 if "batch_first" in options else 6, 7)
    for place in ("cpu", device):
        network.zero_grad(set_to_none=True)
        network.to(place)
        x, h, c = (leaf.to(place).detach().requires_grad_() for leaf in (torch.linspace(-1, 1, 90).view(samples), *state))
        results, (last_h, last_c) = network(x, (h, c))
        (results.sin().sum() + last_h.cos().sum() + last_c.square().sum()).backward()
        places[place] = [results, last_h, last_c, x.grad, h.grad, c.grad, *(p.grad for p in network.parameters())]
    for ours, theirs in zip(places[device], places["cpu"], strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5, check_stride=True)


def test_lstm_multiplies_by_the_weights_of_the_input_once(device):
    network, x = torch.nn.LSTM(5, 7).to(device), torch.randn(6, 3, 5, device=device)
    torch_backend.ops.reset()
    network(x)
    products = {row.op: row.native for row in torch_backend.ops.report() if "mm" in row.op}
    assert products == {"mm": 6, "addmm": 1}


def test_lstm_passes_gradgradcheck(device):
    network = torch.nn.LSTM(2, 2).double().to(device)
    x = torch.randn(2, 1, 2, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: network(x)[0], (x,))


@pytest.mark.parametrize("wanted", ["input", "state", "weights", "hidden weight"])
@pytest.mark.parametrize("loss", [lambda o, h, c: c[0].sum(), lambda o, h, c: h[-1].square().sum(), lambda o, h, c: o[2].sin().sum()],
                         ids=["cell", "state", "step"])  # fmt: skip
def test_lstm_with_gradients_of_some_operands(device, wanted, loss):
    torch.manual_seed(0)
    network, state, x = torch.nn.LSTM(5, 7, bidirectional=True), torch.randn(2, 2, 3, 7), torch.randn(6, 3, 5)
    found = []
    for place in ("cpu", device):
        network.to(place).requires_grad_(wanted == "weights")
        leaf, h, c = x.to(place).detach(), *state.to(place).detach().unbind()
        of = {"input": [leaf], "state": [h, c], "weights": [*network.parameters()], "hidden weight": [network.weight_hh_l0]}[wanted]
        for tensor in of:
            tensor.requires_grad_()
        results, (last_h, last_c) = network(leaf, (h, c))
        found.append(torch.autograd.grad(loss(results, last_h, last_c), of, allow_unused=True, materialize_grads=True))
        network.requires_grad_(False)
    for ours, theirs in zip(*reversed(found), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-6)


def test_second_gradients_of_lstm_are_the_cpus(device):
    torch.manual_seed(0)
    network, x, found = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True).double(), torch.randn(5, 2, 3).double(), []
    for place in ("cpu", device):
        network.to(place).zero_grad(set_to_none=True)
        leaf = x.to(place).detach().requires_grad_()
        first = torch.autograd.grad(network(leaf)[0].sin().sum(), [leaf, *network.parameters()], create_graph=True)
        sum(grad.square().sum() for grad in first).backward()
        found.append([grad.cpu().clone() for grad in (leaf.grad, *(p.grad for p in network.parameters()))])
    for ours, theirs in zip(*reversed(found), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("backward", ["outside", "inside", "second"])
def test_recurrent_networks_under_autocast_are_cast_as_a_whole(device, kind, dtype, backward):
    torch.manual_seed(0)
    network, x, h = kind(5, 7, num_layers=2, bidirectional=True), torch.randn(6, 3, 5), torch.randn(4, 3, 7)
    cast = copy.deepcopy(network).to(dtype).double()
    leaf, state = x.to(dtype).double().requires_grad_(), h.to(dtype).double()
    result, _ = cast(leaf, (state, state) if kind is torch.nn.LSTM else state)
    network.to(device)
    leaves, expected, state = [x.to(device).requires_grad_(), *network.parameters()], [leaf, *cast.parameters()], h.to(device)
    with torch.autocast(device, dtype=dtype):
        ours, last = network(leaves[0], (state, state) if kind is torch.nn.LSTM else state)
        assert ours.dtype is dtype and all(one.dtype is dtype for one in (last if isinstance(last, tuple) else [last]))
        loss = ours.float().square().sum()
        inside = torch.autograd.grad(loss, leaves, retain_graph=True) if backward == "inside" else None
    second = backward == "second"
    found = inside or torch.autograd.grad(loss, leaves, create_graph=second)
    truth = torch.autograd.grad(result.square().sum(), expected, create_graph=second)
    if second:
        found, truth = (torch.autograd.grad(sum(g.square().sum() for g in first), of) for first, of in ((found, leaves), (truth, expected)))
    torch.testing.assert_close(ours.cpu().double(), result, rtol=0.03, atol=0.03)
    for mine, theirs in zip(found, truth, strict=True):
        assert mine.dtype is torch.float32
        assert (mine.cpu().double() - theirs).norm() <= 0.03 * theirs.norm()


def test_lstm_outside_autocast_has_its_backward_pass_inside(device):
    network, x = torch.nn.LSTM(5, 7).to(device), torch.randn(6, 3, 5, device=device)
    loss = network(x)[0].square().sum()
    expected = torch.autograd.grad(loss, [*network.parameters()], retain_graph=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        found = torch.autograd.grad(loss, [*network.parameters()])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.03, atol=0.3)


def test_backward_of_lstm_runs_twice_and_finds_changed_weights(device):
    network, x = torch.nn.LSTM(5, 7).to(device), torch.randn(6, 3, 5, device=device)
    loss = network(x)[0].square().sum()
    first, second = (torch.autograd.grad(loss, [*network.parameters()], retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    with torch.no_grad():
        network.weight_hh_l0.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_backward_of_lstm_multiplies_once_per_step_and_once_for_the_weight(device):
    network, x = torch.nn.LSTM(5, 7).to(device), torch.randn(6, 3, 5, device=device)
    result = network(x)[0]
    torch_backend.ops.reset()
    result.backward(torch.ones_like(result))
    assert sum(row.native for row in torch_backend.ops.report() if row.op == "mm") == 6 + 1 + 1  # steps, weight, input's weight


def test_lstm_without_steps_is_refused_and_without_samples_is_not(device):
    network = torch.nn.LSTM(5, 7).to(device)
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        network(torch.ones(0, 3, 5, device=device))
    assert network(torch.ones(2, 0, 5, device=device))[0].shape == (2, 0, 7)


def lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    """The definition of a step of an LSTM: hy, cy and the activated gates."""
    gates = sum(part for part in (input_gates, hidden_gates, input_bias, hidden_bias) if part is not None)
    i, f, c, o = gates.chunk(4, 1)
    i, f, c, o = i.sigmoid(), f.sigmoid(), c.tanh(), o.sigmoid()
    cy = f * cx + i * c
    return o * cy.tanh(), cy, torch.cat([i, f, c, o], 1)


LSTM_OPERANDS = {
    "dense": lambda a, b, c, p, q: (a, b, c, p, q),
    "no bias": lambda a, b, c, p, q: (a, b, c),
    "one bias": lambda a, b, c, p, q: (a, b, c, None, q),
    "views": lambda a, b, c, p, q: (a.t().contiguous().t(), b.repeat(1, 2)[:, ::2], c.flip(0), p.repeat(2)[::2], q),
    "state of one sample": lambda a, b, c, p, q: (a, b, c[:1], p, q),
    "gates of one sample": lambda a, b, c, p, q: (a[:1], b, c, p, q),
    "no sample": lambda a, b, c, p, q: (a[:0], b[:0], c[:0], p, q),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LSTM_OPERANDS)
def test_lstm_cell_of_any_operands(device, name, dtype):
    torch.manual_seed(0)
    operands = LSTM_OPERANDS[name](*(torch.randn(*shape).to(dtype) for shape in ((3, 20), (3, 20), (3, 5), (20,), (20,))))
    results = torch.ops.aten._thnn_fused_lstm_cell(*(x if x is None else x.to(device) for x in operands))
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6}.get(dtype, 2e-2)
    for ours, exact in zip(results, lstm_cell(*(x if x is None else x.double() for x in operands)), strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.cpu().double(), exact, rtol=tolerance, atol=tolerance)


def test_lstm_cell_refuses_gates_that_do_not_fit(device):
    gates, state = torch.ones(3, 20, device=device), torch.ones(3, 5, device=device)
    for operands in ((gates, gates[:2], state), (gates, gates, state[:, :4]), (gates, gates, state, gates[0, :7], gates[0, :7])):
        with pytest.raises(RuntimeError, match="must match the size"):
            torch.ops.aten._thnn_fused_lstm_cell(*operands)


@pytest.mark.parametrize("kind", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell])
def test_cells_that_start_from_nothing(device, kind):
    compare(lambda: kind(4, 3), [torch.randn(2, 4)], device)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_dtypes_of_recurrent_networks(device, kind, dtype):
    tolerance = 1e-10 if dtype == torch.float64 else 5e-2  # half precision rounds after each of the pointwise steps
    compare(lambda: kind(5, 7).to(dtype), [torch.randn(4, 3, 5).to(dtype)], device, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_networks_pass_gradcheck(device, kind):
    network = kind(2, 2).double().to(device)
    x = torch.randn(3, 1, 2, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: network(x)[0], (x,))


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences(device, kind, bidirectional):
    lengths = torch.tensor([2, 4, 1])
    compare(lambda: _Packed(kind(5, 3, batch_first=True, bidirectional=bidirectional), lengths), [torch.randn(3, 4, 5)], device)


class _Packed(torch.nn.Module):
    def __init__(self, rnn, lengths):
        super().__init__()
        self.lengths, self.rnn = lengths, rnn

    def forward(self, x):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, self.lengths, batch_first=True, enforce_sorted=False)
        return torch.nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


def test_pooling_and_normalization(device):
    compare(
        lambda: torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.BatchNorm2d(6), torch.nn.ReLU(),
                                    torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.LayerNorm(6 * 3 * 4)),
        [torch.randn(2, 4, 9, 10)],
        device,
        rtol=1e-3,
        atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("make", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolutions_run_on_the_device(device, make, dtype):
    torch.manual_seed(1)
    model = make().to(device, dtype)
    x = torch.randn(2, 4, 9, 10, dtype=dtype).to(device).requires_grad_()
    with strict():
        model(x).sum().backward()
    assert x.grad is not None and all(p.grad is not None for p in model.parameters())


def test_large_batches_go_through_the_columns_in_parts(device):
    """More images than the columns' buffer holds, with a shorter last part; the weight's gradient sums over the batch.
    """
    compare(lambda: torch.nn.Conv2d(16, 8, 3, padding=1), [torch.randn(11, 16, 60, 61)], device, rtol=1e-3, atol=1e-3)
    compare(lambda: torch.nn.ConvTranspose2d(8, 16, 3, stride=2), [torch.randn(9, 8, 40, 41)], device, rtol=1e-3, atol=1e-3)


def test_a_window_that_steps_over_places_leaves_them_without_gradient(device):
    compare(lambda: torch.nn.Conv2d(2, 3, 1, stride=3), [torch.randn(2, 2, 8, 8)], device)
    compare(lambda: torch.nn.ConvTranspose2d(2, 3, 1, stride=3, output_padding=2), [torch.randn(2, 2, 4, 4)], device)
    compare(lambda: torch.nn.ConvTranspose2d(2, 3, 1, dilation=2, output_padding=1), [torch.randn(2, 2, 4, 4)], device)


@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("step", [1, 2])
def test_an_infinite_pixel_reaches_the_windows_that_see_it_and_no_others(device, groups, step):
    torch.manual_seed(0)
    image, weight = torch.randn(2, 6, 7, 9), torch.randn(6, 6 // groups, 3, 3)
    image[1, 2, 3, 0] = float("inf")

    def run(place):
        x, w = (tensor.to(place).requires_grad_() for tensor in (image, weight))
        result = torch.nn.functional.conv2d(x, w, None, step, 1, 1, groups)
        result.backward(torch.ones_like(result))
        return [part.detach().cpu() for part in (result, x.grad, w.grad)]

    for ours, theirs in zip(run(device), run("cpu"), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_a_bias_or_weight_of_another_device_is_refused(device):
    x, weight, bias = torch.randn(1, 2, 4, 4), torch.randn(3, 2, 3, 3), torch.randn(3)
    here, there = f"{device}:0", f"{device}:1"
    for operands in ((x.to(here), weight.to(here), bias.to(there)), (x.to(here), weight.to(there), bias.to(here))):
        with pytest.raises(RuntimeError, match=f"same device.*{here} and {there}"):
            torch.nn.functional.conv2d(*operands)


@pytest.mark.parametrize("padding", [1, 3])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_transposed_convolution_without_places_is_refused(device, dim, padding):
    function = getattr(torch.nn.functional, f"conv_transpose{dim}d")
    x, weight = torch.randn(1, 2, *[1] * dim), torch.randn(2, 2, *[2] * dim)
    with pytest.raises(RuntimeError):
        function(x, weight, padding=padding)
    with pytest.raises(RuntimeError, match=r"size per channel is \[.*Output size is too small"):
        function(x.to(device), weight.to(device), padding=padding)
