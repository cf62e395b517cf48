"""Nested tensors of the strided layout, and the fast path of torch.nn's transformer layers that creates them, compared
with the CPU."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_backend.fallback import strict

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
PARTS = [torch.linspace(-1, 1, 8).view(2, 4), torch.linspace(2, -3, 12).view(3, 4)]
WEIGHT = torch.linspace(-1, 2, 20).view(5, 4)

FUNCTIONS = {
    "add": lambda n, w: n + n,
    "mul": lambda n, w: n * 2,
    "relu": lambda n, w: n.relu(),
    "gelu": lambda n, w: F.gelu(n),
    "linear": lambda n, w: F.linear(n, w),
    "layer_norm": lambda n, w: F.layer_norm(n, (4,), w[0], w[1]),
    "softmax": lambda n, w: n.softmax(-1),
    "sum": lambda n, w: n.sum(-1, keepdim=True),
    "bmm": lambda n, w: torch.bmm(n, n.transpose(1, 2)),
    "clone": lambda n, w: n.clone(),
    "select": lambda n, w: n.select(0, 1),
    "unbind": lambda n, w: n.unbind()[0],
    "dtype": lambda n, w: n.double().float(),
    "a copy on its device": lambda n, w: n.to(w.device),
}


def value_and_gradient(function, device):
    nested = torch.nested.nested_tensor([part.clone() for part in PARTS], device=device, requires_grad=True)
    result = function(nested, WEIGHT.to(device))
    dense = torch.nested.to_padded_tensor(result, 0.0) if result.is_nested else result
    dense.square().sum().backward()
    return dense.detach().cpu(), torch.nested.to_padded_tensor(nested.grad, 0.0).cpu()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_a_nested_tensor_and_its_gradient(device, name):
    ours, theirs = (value_and_gradient(FUNCTIONS[name], where) for where in (device, "cpu"))
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b)


def test_tensors_that_require_gradients_become_a_nested_one(device):
    parts = [part.clone().to(device).requires_grad_() for part in PARTS]
    nested = torch.nested.as_nested_tensor(parts)
    torch.nested.to_padded_tensor(nested, 0.0).sum().backward()
    assert nested.device.type == device and all(torch.equal(part.grad.cpu(), torch.ones(part.shape)) for part in parts)


def test_a_nested_tensor_is_on_a_device_that_is_not_current(device):
    nested = torch.nested.nested_tensor(PARTS, device=f"{device}:1")
    result = F.layer_norm(nested * 2, (4,), *WEIGHT[:2].to(nested.device)).relu()
    assert result.device == torch.device(device, 1)
    expected = torch.nested.to_padded_tensor(F.layer_norm(torch.nested.nested_tensor(PARTS) * 2, (4,), *WEIGHT[:2]).relu(), 0.0)
    torch.testing.assert_close(torch.nested.to_padded_tensor(result, 0.0).cpu(), expected)


def test_what_only_the_cpu_has_is_refused_with_a_cure(device):
    nested = torch.nested.nested_tensor(PARTS, device=device)
    with pytest.raises(NotImplementedError, match="layout=torch.jagged"):
        torch._transform_bias_rescale_qkv(nested, torch.zeros(12, device=device), 1)


PADDING = torch.tensor([[False, False, False, True, True], [False] * 5])
CAUSAL = torch.ones(5, 5).triu(1).bool()
MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": PADDING},
    "causal": {"src_mask": CAUSAL},
    "both": {"src_key_padding_mask": PADDING, "src_mask": CAUSAL},
}


@pytest.mark.parametrize("layer", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_encoder_layer_in_evaluation(device, layer, mask):
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **layer).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        expected = model(x, **MASKS[mask])
        with strict():
            ours = model.to(device)(x.to(device), **{key: value.to(device) for key, value in MASKS[mask].items()})
    torch.testing.assert_close(ours.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_encoder_in_evaluation_with_a_padding_mask(device, dtype):
    """The encoder creates a nested tensor of the unpadded elements."""
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval().to(dtype)
    x = torch.randn(2, 5, 16, dtype=dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model(x, src_key_padding_mask=PADDING)
        ours = model.to(device)(x.to(device), src_key_padding_mask=PADDING.to(device))
    torch.testing.assert_close(ours.cpu(), expected)


@pytest.mark.parametrize("need_weights, average", [(True, True), (True, False), (False, True)])
def test_multi_head_attention_in_evaluation(device, need_weights, average):
    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(16, 4, batch_first=True).eval(), torch.randn(2, 5, 16)
    arguments = {"need_weights": need_weights, "average_attn_weights": average}
    with torch.no_grad():
        expected, weights = model(x, x, x, key_padding_mask=PADDING, **arguments)
        y = x.to(device)
        with strict():
            ours, our_weights = model.to(device)(y, y, y, key_padding_mask=PADDING.to(device), **arguments)
    torch.testing.assert_close(ours.cpu(), expected)
    assert (weights is None) == (our_weights is None)
    if weights is not None:
        torch.testing.assert_close(our_weights.cpu(), weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_attention_of_jagged_sequences(device, dtype):
    """The other layout: PyTorch's own Python class over a buffer of the device."""
    parts = [part.view(-1, 2, 2).to(dtype) for part in PARTS]

    def attend(where):
        leaves = [part.clone().to(where).requires_grad_() for part in parts]
        heads = torch.nested.as_nested_tensor(leaves, layout=torch.jagged).transpose(1, 2)
        result = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)
        result.values().square().sum().backward()
        return [result.detach().values().cpu(), *(leaf.grad.cpu() for leaf in leaves)]

    limit = 2e-3 if dtype == torch.float16 else 1e-5
    for a, b in zip(attend(device), attend("cpu")):
        torch.testing.assert_close(a, b, rtol=limit, atol=limit)


@pytest.mark.parametrize("average", [True, False])
def test_attention_of_nested_tensors_returns_its_weights(device, average):
    """The weights have the size of the longest sequence, with rows and columns padded with zeros."""
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()

    def attended(place):
        nested = torch.nested.nested_tensor([part.clone() for part in PARTS], device=place)
        weights = [p.detach().to(place) for p in (attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight, attention.out_proj.bias)]
        result, shares = torch._native_multi_head_attention(nested, nested, nested, 4, 2, *weights, need_weights=True, average_attn_weights=average)
        return torch.nested.to_padded_tensor(result, 0.0).cpu(), shares.cpu()

    ours, theirs = attended(device), attended("cpu")
    torch.testing.assert_close(ours[0], theirs[0])
    for shares, expected, part in zip(ours[1], theirs[1], PARTS):
        torch.testing.assert_close(shares[..., : len(part), : len(part)], expected[..., : len(part), : len(part)])
        assert not shares[..., len(part) :].any()
