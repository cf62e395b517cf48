"""Calls with edge cases of operators have the CPU's result, or its exception: each line was once a bug."""

import warnings

import pytest
import torch
import torch.nn.functional as F


def outcome(function, device):
    """The values as nested lists, or the type and beginning of the exception."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(device)
            result = [t.cpu().tolist() if isinstance(t, torch.Tensor) else t for t in (result if isinstance(result, tuple) else (result,))]
        return result, [str(warning.message)[:40] for warning in caught]
    except Exception as error:
        return type(error), str(error)[:40]


def long(*values):
    return lambda d: torch.tensor(values, device=d)


def expanded(d):
    return torch.arange(3.0, device=d).view(3, 1).expand(3, 4)


def ones65(d):
    return torch.ones([1] * 64 + [2], device=d)


def embedding_bag_gradient(d, kind, mode):
    weight = torch.arange(15.0, device=d).view(5, 3).requires_grad_()
    words, offsets = (torch.tensor(v, dtype=kind, device=d) for v in ([0, 1, 4, 1], [0, 3]))
    F.embedding_bag(words, weight, offsets, mode=mode).square().sum().backward()
    return weight.grad


def mixed_embedding_bag_gradient(d):
    weight = torch.arange(15.0, device=d).view(5, 3).requires_grad_()
    F.embedding_bag(torch.tensor([0, 1, 4, 1], dtype=torch.int32, device=d), weight, torch.tensor([0, 3], device=d)).square().sum().backward()
    return weight.grad


def nll_gradient(d, sizes, reduction):
    x = torch.ones(sizes, device=d, requires_grad=True)
    loss = F.nll_loss(x, torch.zeros((sizes[0], *sizes[2:]), dtype=torch.long, device=d), reduction=reduction)
    loss.sum().backward()
    return str(loss.tolist()), x.grad


CALLS = {
    "kthvalue of a dimension without elements": lambda d: torch.ones(2, 0, 3, device=d).kthvalue(1, 1),
    "assignment of another dtype and shape": lambda d: torch.ones(4, 4, dtype=torch.long, device=d).index_put_((long(0, 1)(d),), torch.ones(3, device=d)),
    "adaptive pooling of integers": lambda d: F.adaptive_max_pool2d(torch.ones(1, 4, 4, dtype=torch.long, device=d), 2),
    "searchsorted of floats in integers": lambda d: torch.searchsorted(long(1, 2, 3)(d), torch.tensor([2.5, 0.5], device=d)),
    "coordinates that are not in order": lambda d: torch.sparse_coo_tensor(torch.tensor([[1, 0]], device=d), torch.ones(2, device=d), (2,), check_invariants=True, is_coalesced=True),
    "coordinates that are in order": lambda d: torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device=d), torch.ones(2, device=d), (2, 2), check_invariants=True, is_coalesced=True).to_dense(),
    "embedding_bag of indices and offsets of two dtypes": lambda d: mixed_embedding_bag_gradient(d),
    **{f"nll_loss of {sizes}, {reduction}": lambda d, sizes=sizes, reduction=reduction: nll_gradient(d, sizes, reduction)
       for sizes in ((0, 3), (0, 3, 5, 7), (2, 3, 0, 7), (2, 3, 5, 0), (2, 3, 5, 7, 0)) for reduction in ("none", "mean", "sum")},
    "bernoulli with a result": lambda d: torch.bernoulli(torch.tensor([0.0, 1.0], device=d), out=torch.empty(2, device=d)),
    "indices that do not broadcast": lambda d: torch.ones(4, 4, device=d)[long(0, 1)(d), long(0, 1, 2)(d)],
    "assignment to indices that do not broadcast": lambda d: torch.ones(4, 4, device=d).index_put_((long(0, 1)(d), long(0, 1, 2)(d)), torch.ones((), device=d)),
    "index_put_ on an expanded tensor": lambda d: torch.zeros(1, device=d).expand(4).index_put_((long(0)(d),), torch.ones((), device=d)),
    "index_fill_ on an expanded tensor": lambda d: expanded(d).index_fill_(0, long(0)(d), 7.0),
    "threshold_ on an expanded tensor": lambda d: F.threshold_(expanded(d), 0.5, -1.0),
    "addr of integers with a floating beta": lambda d: torch.addr(torch.ones(2, 2, dtype=torch.long, device=d), long(1, 2)(d), long(3, 4)(d), beta=0.5),
    "addr of integers with a bool": lambda d: torch.addr(torch.ones(2, 2, dtype=torch.long, device=d), long(1, 2)(d), long(3, 4)(d), alpha=True),
    "addr with a result": lambda d: torch.addr(torch.ones(2, 2, device=d), torch.ones(2, device=d), torch.ones(2, device=d), beta=0.5, out=torch.empty(2, 2, device=d)),
    "mode with results": lambda d: torch.mode(torch.tensor([[1, 2, 2], [3, 3, 1]], device=d), 1, out=(torch.empty(0, dtype=torch.long, device=d), torch.empty(0, dtype=torch.long, device=d))),
    "a lazy clone": lambda d: torch._lazy_clone(torch.arange(3, device=d)).add_(1),
    "sum of 65 dimensions": lambda d: ones65(d).sum(),
    "arithmetic of 65 dimensions": lambda d: (ones65(d) + ones65(d)).exp().softmax(-1).cumsum(-1),
    "transposed copy of 65 dimensions": lambda d: ones65(d).transpose(0, 64).contiguous(),
    "complex mean with an infinity": lambda d: torch.view_as_real(torch.tensor([complex(float("inf"), 1), complex(1, 2)], device=d).mean()).isnan(),
    "searchsorted in no dimension": lambda d: torch.searchsorted(torch.tensor(1.0, device=d), torch.tensor([1.0], device=d)),
    "searchsorted of a number": lambda d: torch.searchsorted(torch.tensor([1.0, 2.0], device=d), 2.0),
    "bucketize of a scalar": lambda d: torch.bucketize(torch.tensor(1.5, device=d), torch.tensor([1.0, 2.0], device=d)),
    "nll_loss of an empty batch": lambda d: F.nll_loss(torch.ones(0, 3, device=d, requires_grad=True), torch.ones(0, dtype=torch.long, device=d), reduction="none").sum().backward(),
    ".item() of nothing": lambda d: torch.empty(0, device=d).item(),
    **{f"embedding_bag backward of {kind} {mode}": lambda d, kind=kind, mode=mode: embedding_bag_gradient(d, kind, mode)
       for kind in (torch.int32, torch.int64) for mode in ("sum", "mean", "max")},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(device, name):
    theirs, ours = outcome(CALLS[name], "cpu"), outcome(CALLS[name], device)
    assert str(ours) == str(theirs)


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last_3d])
def test_max_pool3d_of_an_image_without_a_batch_keeps_its_layout(device, format):
    x = torch.arange(192.0).view(1, 3, 4, 4, 4).to(memory_format=format)[0]
    ours, theirs = F.max_pool3d(x.to(device), 2), F.max_pool3d(x, 2)
    assert torch.equal(ours.cpu(), theirs) and ours.stride() == theirs.stride()


@pytest.mark.parametrize("normalize", [lambda x: F.layer_norm(x, x.shape[1:]), lambda x: F.group_norm(x, 1),
                                       lambda x: F.instance_norm(x[None]), lambda x: F.batch_norm(x.t(), None, None, training=True)],
                         ids=["layer", "group", "instance", "batch"])  # fmt: skip
def test_constant_rows_are_normalized_to_zero(device, normalize):
    """For any constant: the mean of equal numbers is that number."""
    x = (torch.tensor([3e4 + 0.1, -7e5 - 1 / 3, 1e-3, 16777217.0])).view(4, 1).expand(4, 768)
    assert torch.equal(normalize(x.to(device)).cpu(), torch.zeros_like(normalize(x)))


def test_layer_norm_of_a_row_with_an_infinity(device):
    x = torch.tensor([[float("inf"), 1, 2], [1, float("inf"), 2], [1, 2, 3]])
    assert torch.equal(F.layer_norm(x.to(device), (3,)).cpu().isnan(), F.layer_norm(x, (3,)).isnan())


@pytest.mark.parametrize("dtype, limit", [(torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)])
@pytest.mark.parametrize("dims", [2, 3])
def test_grid_sample_in_half_precision_computes_in_float32(device, dtype, limit, dims):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, *[24] * dims, generator=generator).to(dtype)
    grid = (torch.rand(1, *[9] * dims, dims, generator=generator) * 2 - 1).to(dtype)

    def gradient(x, grid):
        x, grid = x.clone().requires_grad_(), grid.clone().requires_grad_()
        y = F.grid_sample(x, grid, align_corners=False)
        y.sum().backward()
        return y.detach(), x.grad, grid.grad

    for a, b in zip(gradient(x.to(device), grid.to(device)), gradient(x.double(), grid.double())):
        assert a.dtype == dtype
        torch.testing.assert_close(a.cpu().double(), b, rtol=limit, atol=limit * max(1.0, b.abs().max().item()))


def test_sparse_tensors_on_a_device_that_is_not_current(device):
    places, values, second = torch.tensor([[0, 1], [1, 0]]), torch.ones(2), f"{device}:1"
    made = torch.sparse_coo_tensor(places.to(second), values.to(second), (2, 2), check_invariants=True).coalesce()
    moved = torch.sparse_coo_tensor(places, values, (2, 2)).to(second)
    rows = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), values, (2, 2), check_invariants=True).to(second)
    for sparse in (made, moved, rows):
        assert sparse.device == torch.device(second) and torch.equal(sparse.to_dense().cpu(), torch.tensor([[0.0, 1], [1, 0]]))


def test_record_stream_of_memory_that_came_by_dlpack(device, module):
    """The allocator owns the memory: it is reused only after the work of the recorded stream."""
    source, stream = torch.zeros(1 << 16, device=device), module.Stream()
    twin = torch.from_dlpack(source)
    stream.wait_stream(module.current_stream())
    with stream:
        for _ in range(50):
            twin.add_(1)
        result = twin.sum()
    twin.record_stream(stream)
    del source, twin
    # would reuse the twin's memory if it were free
    others = [torch.full((1 << 16,), -1.0, device=device) for _ in range(4)]
    stream.synchronize()
    assert result.item() == 50 * (1 << 16) and all(other.max().item() == -1 for other in others)


def test_many_short_rows_are_sorted_in_little_memory(device, module):
    x = torch.randn(1 << 16, 4, device=device)
    module.synchronize()
    module.reset_peak_memory_stats()
    before = module.memory_allocated()
    values, order = x.sort(1)
    module.synchronize()
    results = values.nbytes + order.nbytes
    # two copies of keys of 8 bytes and indices of 4 bytes
    assert module.max_memory_allocated() - before < results + 8 * x.nbytes
    assert torch.equal(values.cpu(), x.cpu().sort(1)[0])


@pytest.mark.parametrize("module, sizes, format", [
    (lambda: torch.nn.GroupNorm(2, 6), (4, 6, 3, 3), torch.channels_last), (lambda: torch.nn.GroupNorm(2, 6), (2, 6, 3, 3, 3), torch.channels_last_3d),
    (lambda: torch.nn.ReflectionPad3d(1), (2, 3, 4, 4, 4), torch.channels_last_3d), (lambda: torch.nn.ReplicationPad3d(1), (3, 4, 4, 4), torch.channels_last),
    (lambda: torch.nn.ReflectionPad2d(1), (2, 3, 4, 4), torch.channels_last), (lambda: torch.nn.AdaptiveAvgPool3d(2), (2, 3, 4, 4, 4), torch.channels_last_3d),
    (lambda: torch.nn.AdaptiveAvgPool2d(2), (2, 3, 4, 4), torch.channels_last),
])  # fmt: skip
def test_results_lie_in_memory_as_on_the_cpu(device, module, sizes, format):
    made = {}
    for place in ("cpu", device):
        x = torch.arange(float(torch.Size(sizes).numel())).view(sizes).to(place).contiguous(memory_format=format).requires_grad_()
        y = module().to(place)(x)
        y.square().sum().backward()
        made[place] = y.stride(), x.grad.stride(), y.detach().cpu(), x.grad.cpu()
    ours, theirs = made[device], made["cpu"]
    assert ours[:2] == theirs[:2]
    torch.testing.assert_close(ours[2:], theirs[2:])


def test_bincount_of_floats_is_refused_in_the_cpus_words(device):
    with pytest.raises(NotImplementedError, match="\"bincount\" not implemented for 'Float'"):
        torch.bincount(torch.ones(3, device=device))
