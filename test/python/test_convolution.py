"""Convolutions and recurrent cells, whose ATen entry points only throw for devices of other houses: forward and backward
against the CPU."""

import pytest
import torch


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


def test_convolution_of_channels_last(device):
    compare(CONVOLUTIONS["plain"], [torch.randn(2, 4, 9, 10).contiguous(memory_format=torch.channels_last)], device)


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


def test_packed_sequences(device):
    lengths = torch.tensor([4, 2])
    compare(
        lambda: _Packed(lengths),
        [torch.randn(2, 4, 5)],
        device,
    )


class _Packed(torch.nn.Module):
    def __init__(self, lengths):
        super().__init__()
        self.lengths, self.rnn = lengths, torch.nn.LSTM(5, 3, batch_first=True)

    def forward(self, x):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, self.lengths, batch_first=True)
        return torch.nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


def test_pooling_and_normalisation(device):
    compare(
        lambda: torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.BatchNorm2d(6), torch.nn.ReLU(),
                                    torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.LayerNorm(6 * 3 * 4)),
        [torch.randn(2, 4, 9, 10)],
        device,
        rtol=1e-3,
        atol=1e-4,
    )  # fmt: skip
