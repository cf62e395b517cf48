"""Functions that ATen leaves to the device, or for which it raises an error unless the device implements more: zero
tensors without memory, parameters that keep their identity, sparse accessors, quantized and nested tensors, autocast
for unlisted operators."""

import copy
import re
from pathlib import Path

import pytest
import torch

# ---- zero tensors without memory (created by forward-mode autograd) ----


def test_efficient_zero_tensors_stand_for_zeros(device):
    zero = torch._efficientzerotensor((2, 3), device=device)
    assert zero._is_zerotensor() and zero.device.type == device
    ones = torch.ones(2, 3, device=device)
    assert (zero + ones).tolist() == [[1] * 3] * 2
    assert (ones - zero).tolist() == [[1] * 3] * 2
    assert (zero * ones)._is_zerotensor() and (ones @ torch._efficientzerotensor((3, 2), device=device)).sum().item() == 0
    for made in (zero.clone(), zero.cpu(), zero.to(torch.float64), zero.contiguous().sum(0)):
        assert not made.cpu().any()
    assert zero.expand(4, 2, 3)._is_zerotensor() and zero[0].tolist() == [0, 0, 0]
    target = torch.ones(2, 3, device=device)
    assert target.copy_(zero).sum().item() == 0
    with pytest.raises(RuntimeError):
        zero.add_(1)


def test_an_operator_of_the_fallback_sees_zeros_in_a_zero_tensor(device):
    zero = torch._efficientzerotensor((3,), device=device)
    assert torch.searchsorted(torch.tensor([-1.0, 1.0], device=device), zero).tolist() == [1, 1, 1]
    assert torch.sgn(zero).tolist() == [0, 0, 0]


def test_forward_mode_autograd_equals_the_cpu(device):
    from torch.autograd import forward_ad

    def tangent(place):
        torch.manual_seed(0)
        x, direction, weight = (torch.randn(3, 3).to(place) for _ in range(3))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, direction)
            result = torch.nn.functional.gelu(dual @ weight).softmax(-1) * weight
            return forward_ad.unpack_dual(result).tangent.cpu()

    torch.testing.assert_close(tangent(device), tangent("cpu"))


# ---- parameters ----


def test_an_optimizer_made_before_the_move_trains_the_moved_parameters(device):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.deepcopy(model.state_dict())
    model.to(device)
    assert all(kept is now for kept, now in zip(optimizer.param_groups[0]["params"], model.parameters()))
    model(torch.ones(1, 3, device=device)).sum().backward()
    optimizer.step()
    assert torch.allclose(model.weight.detach().cpu(), before["weight"] - 0.1)
    model.to("cpu")
    assert all(kept is now for kept, now in zip(optimizer.param_groups[0]["params"], model.parameters()))


@pytest.mark.parametrize("move", ["to", "named method", "half", "channels_last"])
def test_moving_a_module_keeps_its_parameters(device, move):
    model = torch.nn.Conv2d(2, 3, 3)
    parameters = list(model.parameters())
    moves = {"to": lambda: model.to(device), "named method": lambda: getattr(model, device)(), "half": lambda: model.to(device, torch.half),
             "channels_last": lambda: model.to(device).to(memory_format=torch.channels_last)}  # fmt: skip
    moves[move]()
    assert all(old is new and new.device.type == device for old, new in zip(parameters, model.parameters(), strict=True))


def test_gradients_move_with_their_parameters(device):
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    model.to(device)
    assert model.weight.grad.device.type == device and model.weight.grad.tolist() == [[1, 1], [1, 1]]


def test_shallow_copies_between_kinds_of_tensors(device):
    dense, sparse = torch.ones(2, device=device), torch.ones(2, device=device).to_sparse()
    assert torch._has_compatible_shallow_copy_type(torch.ones(2), dense)
    assert not torch._has_compatible_shallow_copy_type(dense, sparse)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        dense.data = sparse


# ---- sparse accessors ----

ACCESSORS = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


@pytest.mark.parametrize("layout", ACCESSORS, ids=str)
def test_accessors_of_compressed_tensors(device, layout):
    dense = torch.tensor([[0.0, 1, 0, 2], [0, 0, 3, 0], [0, 0, 0, 0], [4, 0, 0, 5]])
    options = {"blocksize": (2, 2)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    ours, theirs = dense.to(device).to_sparse(layout=layout, **options), dense.to_sparse(layout=layout, **options)
    for name in ACCESSORS[layout]:
        part = getattr(ours, name)()
        assert part.device.type == device
        torch.testing.assert_close(part.cpu(), getattr(theirs, name)())
    assert (ours._nnz(), ours.sparse_dim(), ours.dense_dim()) == (theirs._nnz(), theirs.sparse_dim(), theirs.dense_dim())
    assert ours.to_dense().tolist() == dense.tolist() and ours.cpu().to_dense().tolist() == dense.tolist()
    other = "ccol_indices" if "crow_indices" in ACCESSORS[layout] else "crow_indices"
    with pytest.raises(RuntimeError, match=other):
        getattr(ours, other)()


def test_accessors_of_coordinate_tensors(device):
    indices, values = torch.tensor([[0, 1, 0], [2, 0, 2]]), torch.tensor([1.0, 2, 3])
    ours, theirs = (torch.sparse_coo_tensor(indices.to(p), values.to(p), (2, 3)) for p in (device, "cpu"))
    assert not ours.is_coalesced() and ours._nnz() == 3 and (ours.sparse_dim(), ours.dense_dim()) == (2, 0)
    assert ours._indices().tolist() == indices.tolist() and ours._values().tolist() == [1, 2, 3]
    with pytest.raises(RuntimeError, match="uncoalesced"):
        ours.indices()
    ours, theirs = ours.coalesce(), theirs.coalesce()
    assert ours.is_coalesced() and ours.indices().tolist() == theirs.indices().tolist() and ours.values().tolist() == [4, 2]
    with pytest.raises(RuntimeError, match="crow_indices"):
        ours.crow_indices()


def test_accessors_of_sparse_tensors_refuse_dense_ones(device):
    for name in ("is_coalesced", "indices", "crow_indices", "col_indices", "ccol_indices", "row_indices", "_nnz", "_indices"):
        messages = []
        for place in ("cpu", device):
            with pytest.raises((RuntimeError, NotImplementedError)) as error:
                getattr(torch.ones(2, 2, device=place), name)()
            messages.append(type(error.value))
        assert issubclass(messages[1], messages[0]), name


def test_a_sparse_gradient_reaches_the_optimizer(device):
    results = []
    for place in ("cpu", device):
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(5, 3, sparse=True).to(place)
        optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
        embedding(torch.tensor([1, 3, 1], device=place)).square().sum().backward()
        assert embedding.weight.grad.is_sparse and embedding.weight.grad.device.type == place
        optimizer.step()
        results.append(embedding.weight.detach().cpu())
    torch.testing.assert_close(*results)


# ---- quantized and nested tensors: refused, never wrong ----


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda x: torch.quantize_per_tensor_dynamic(x, torch.qint8, False),
        lambda x: torch.quantize_per_channel(x, torch.ones(4, device=x.device), torch.zeros(4, device=x.device).long(), 0, torch.qint8),
        lambda x: torch._empty_affine_quantized((3,), scale=0.1, zero_point=1, dtype=torch.quint8, device=x.device),
        lambda x: torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.qint8).to(x.device),
        lambda x: torch._empty_per_channel_affine_quantized((4, 4), scales=torch.ones(4), zero_points=torch.zeros(4), axis=0, dtype=torch.quint8,
                                                            device=x.device),
        lambda x: torch.empty((3,), dtype=torch.quint8, device=x.device),
        lambda x: x.copy_(torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.qint8)),
    ],
)  # fmt: skip
def test_quantized_tensors_are_refused_with_the_device_type(device, call):
    with pytest.raises(NotImplementedError, match=rf"quantized tensor\b.* device type '{device}'") as caught:
        call(torch.ones(4, 4, device=device))
    assert "backend" not in str(caught.value) and "call dequantize() before the copy to the device" in str(caught.value)


@pytest.mark.parametrize("call", [lambda x: torch._cslt_compress(x.half()), torch.ops.aten._sparse_semi_structured_tile])
def test_operators_of_two_of_four_sparse_tensors_are_refused_with_a_cure(device, call):
    with pytest.raises(NotImplementedError, match="2:4 sparse tensors are not supported; use dense tensors"):
        call(torch.ones(4, 4, device=device))


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("name", ["SparseSemiStructuredTensorCUTLASS", "SparseSemiStructuredTensorCUSPARSELT"])
def test_two_of_four_sparse_tensors_are_refused_with_a_cure(device, name, dtype):
    dense = torch.tensor([0, 0, 1, 1]).tile((128, 32)).to(dtype).to(device)
    for call in (torch.sparse.to_sparse_semi_structured, getattr(torch.sparse, name).from_dense):
        with pytest.raises(NotImplementedError, match=f"2:4 sparse tensors are not supported on '{device}': .*Use the dense tensor, .*torchao"):
            call(dense)
    with pytest.raises(RuntimeError, match="Only CUDA tensors"):
        torch.sparse.to_sparse_semi_structured(dense.cpu())


@pytest.mark.filterwarnings("ignore")
def test_errors_name_the_kind_of_a_tensor(device):
    """The layout of a quantized or nested tensor is also Strided: all errors use the names of csrc/core/tensor_kind.h.
    """
    x = torch.ones(4, 4, device=device)
    for call, kind in ((lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "quantized"), (x.to_mkldnn, "Mkldnn")):
        with pytest.raises(NotImplementedError, match=rf"The operator 'aten::\w+' returns a {kind} tensor, which device type '{device}' does not support"):
            call()
    csrc = Path(__file__).resolve().parents[3] / "csrc"
    assert [path.name for path in csrc.rglob("*.*") if re.search(r'" *, *\w+(\.|->)layout\(\)|<< *\w+(\.|->)layout\(\)', path.read_text())] == ["tensor_kind.h"]


def test_accessors_of_quantized_tensors_refuse_dense_ones(device):
    for name in ("q_scale", "q_zero_point", "int_repr", "q_per_channel_scales", "qscheme"):
        with pytest.raises((NotImplementedError, RuntimeError)):
            getattr(torch.ones(2, device=device), name)()


def test_fake_quantization_equals_the_cpu(device):
    x = torch.linspace(-2, 2, 21)
    results = []
    for place in ("cpu", device):
        leaf = x.detach().clone().to(place).requires_grad_()
        result = torch.fake_quantize_per_tensor_affine(leaf, 0.1, 0, -8, 7)
        result.sum().backward()
        results.append([result.detach().cpu(), leaf.grad.cpu()])
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_jagged_tensors(device):
    pieces = [torch.randn(2, 3), torch.randn(4, 3)]
    results = []
    for place in ("cpu", device):
        nested = torch.nested.nested_tensor([p.to(place) for p in pieces], layout=torch.jagged, requires_grad=True)
        result = (nested * 2).sin()
        result.values().sum().backward()
        results.append([result.values().detach().cpu(), nested.grad.values().cpu(), nested.offsets().cpu()])
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore")
# ---- autocast ----


@pytest.mark.filterwarnings("ignore")
def test_operators_of_no_autocast_list_run_as_they_are(device):
    x = torch.arange(6.0, device=device).view(2, 3)
    plain = [x.sort(descending=True)[0], x.cumsum(1), x.fill_(2).clone(), x.unique(), torch.linalg.svdvals(x), x.to_sparse().to_dense()]
    with torch.autocast(device, dtype=torch.bfloat16):
        x = torch.arange(6.0, device=device).view(2, 3)
        cast = [x.sort(descending=True)[0], x.cumsum(1), x.fill_(2).clone(), x.unique(), torch.linalg.svdvals(x), x.to_sparse().to_dense()]
    for ours, theirs in zip(cast, plain, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs)
