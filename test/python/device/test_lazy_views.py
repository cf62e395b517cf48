"""Views of lazy tensors in a shape or dtype that their element order does not allow: they are copies that behave like
views for readers and autograd."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("lazy_type")

RESHAPED = {
    "reshape": lambda x: x.t().reshape(6), "flatten": lambda x: x.t().flatten(), "expanded": lambda x: x[:1].expand(2, 3).reshape(6),
    "sliced": lambda x: x[:, :2].reshape(4), "contiguous": lambda x: x.t().contiguous().view(3, 2, 1).flatten(),
}  # fmt: skip


def on(where, function):
    torch.manual_seed(2)
    return [value.cpu() for value in function(torch.randn(2, 3).to(where).requires_grad_())]


@pytest.mark.parametrize("shape", RESHAPED.values(), ids=RESHAPED)
def test_a_copy_written_in_place_leaves_its_base_and_the_gradients_of_its_base(shape):
    def written(leaf):
        x = leaf * 1
        y = shape(x)
        y.mul_(2)
        (y.sum() + (x * x).sum()).backward()
        return leaf.grad, x.detach(), y.detach()

    for ours, cpu in zip(on("lazy", written), on("cpu", written)):
        assert torch.equal(ours, cpu)


@pytest.mark.parametrize("shape", [RESHAPED[name] for name in ("reshape", "flatten", "expanded", "sliced")])
def test_a_copy_of_a_leaf_may_be_written_in_place(shape):
    def written(leaf):
        with torch.no_grad():
            unrelated = shape(leaf)
        y = nn.functional.relu_(shape(leaf))
        y.sum().backward()
        return leaf.grad, y.detach(), unrelated.mul_(leaf.sum()).detach()

    for ours, cpu in zip(on("lazy", written), on("cpu", written)):
        torch.testing.assert_close(ours, cpu)


def test_a_view_that_the_order_allows_stays_one_for_autograd():
    leaf = torch.ones(2, 3, 4, device="lazy", requires_grad=True)
    x = leaf * 1
    x.transpose(0, 1).view(3, 2, 2, 2).mul_(3)
    x.sum().backward()
    assert (leaf.grad == 3).all() and (x == 3).all()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        leaf.view(24).add_(1)
    with pytest.raises(RuntimeError, match="invalid for input of size 24"):
        leaf.transpose(0, 1).view(5)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("view", [
    lambda x: torch.view_as_real(torch.view_as_complex(x.t().contiguous()) * 1j), lambda x: x.t().contiguous().view(torch.int16),
    lambda x: x.t().contiguous().view(torch.float64), lambda x: x.t().view(torch.int32),
], ids=["complex", "narrower", "wider", "as wide"])  # fmt: skip
def test_views_as_another_dtype_follow_contiguous_as_on_the_cpu(view, mode):
    x = torch.randn(2, 4)
    with mode():
        assert torch.equal(view(x.to("lazy")).cpu(), view(x))


def test_gradients_go_through_a_copy_as_complex():
    def grad(where):
        x = torch.arange(8.0).view(2, 4).to(where).requires_grad_()
        torch.view_as_complex(x.t().contiguous()).abs().sum().backward()
        return x.grad.cpu()

    torch.testing.assert_close(grad("lazy"), grad("cpu"))


def test_transforms_of_functions_see_their_own_views():
    x = torch.arange(6.0).view(2, 3)

    def values(x):
        return [torch.func.grad(lambda x: (x.t().reshape(6) ** 3).sum())(x), torch.func.vmap(lambda x: x.t().reshape(-1) * 2)(x[None])]

    for ours, cpu in zip(values(x.to("lazy")), values(x)):
        assert torch.equal(ours.cpu(), cpu)


LOSSES = {
    "sum": lambda x, y: x.sum() + y.sum(), "mean": lambda x, y: x.mean() + y.mean(), "part": lambda x, y: x[0].sum() + y.t()[1].mean(),
    "transposed": lambda x, y: (x * y.t()).t().square().sum() + y.t().sum(), "shared": lambda x, y: (x.t() + y).square().sum(),
}  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_gradients_accumulate_and_are_scaled_in_place_separately(loss):
    def gradients(where):
        x = torch.arange(6.0).reshape(2, 3).to(where).requires_grad_()
        y = torch.linspace(-1, 1, 6).reshape(3, 2).to(where).requires_grad_()
        loss(x, y).backward()
        nn.utils.clip_grad_norm_([x], 0.5)
        loss(x, y).backward()
        y.grad.mul_(3)
        torch._foreach_add_([x.grad], 1.0)
        return x.grad.cpu(), y.grad.cpu()

    for ours, cpu in zip(gradients("lazy"), gradients("cpu")):
        torch.testing.assert_close(ours, cpu)


CONTIGUOUS = {  # whose gradient formulas make operands contiguous, or query whether they are
    "det": lambda x, y: (torch.det(x.t()) * torch.logdet(x @ x.t())).backward(),
    "slogdet": lambda x, y: torch.linalg.slogdet(x.t())[1].backward(),
    "weight_norm": lambda x, y: (y @ torch._weight_norm(x, y[:, :1], 0).t()).square().sum().backward(),
    "cdist": lambda x, y: torch.cdist(x.t(), y.t()).square().t().cumsum(0).sum().backward(),
}


@pytest.mark.parametrize("function", CONTIGUOUS.values(), ids=CONTIGUOUS)
def test_gradients_that_depend_on_the_order_of_operands_are_the_cpus(function):
    def gradients(where):
        x = torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).add(torch.eye(3) * 3).to(where).requires_grad_()
        y = torch.linspace(1, 2, 9).reshape(3, 3).to(where).requires_grad_()
        function(x, y)
        return x.grad.cpu(), (x if y.grad is None else y).grad.cpu()

    for ours, cpu in zip(gradients("lazy"), gradients("cpu")):
        torch.testing.assert_close(ours, cpu)


def test_inference_mode_makes_views_of_what_their_bases_are():
    def told(where):
        x, layer = torch.arange(6.0).reshape(2, 3).to(where), nn.Linear(3, 2, device=where)
        with torch.inference_mode():
            row, sum = x[1:], x + 1
            row.add_(1)
            tensors = (x, row, row.view(3), x.detach(), x.data, sum, sum[0], sum.detach(), layer(x))
        row.mul_(2)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            sum[0].add_(1)
        return [tensor.is_inference() for tensor in tensors], x._version, x.cpu().tolist()

    assert told("lazy") == told("cpu")
