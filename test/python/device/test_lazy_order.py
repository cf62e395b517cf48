"""Lazy mode reorders independent operators, and runs operators that compute the same value once, with the results of
eager mode."""

import pytest
import torch

from torch_backend import lazy


@pytest.fixture(autouse=True)
def fresh_metrics():
    lazy.reset_metrics()


def both(function, device):
    """Returns the results of a function, eager and lazy, on the CPU, and the counters of the lazy run."""
    eager = [result.cpu() for result in function(device)]
    lazy.reset_metrics()
    with lazy.record():
        results = function(device)
        lazy.mark_step()
        counts = lazy.metrics()
    put_off = [result.cpu() for result in results]
    assert all(torch.equal(one, other) for one, other in zip(eager, put_off, strict=True))
    return counts


def test_an_optimizer_over_many_parameters_is_a_kernel_of_each(device):
    sizes = [16 * 9 + 3 * i for i in range(20)]

    def train(device):
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(n).to(device)) for n in sizes]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = parameter.detach() * 0.5
            optimizer.step()
        return [parameter.detach() for parameter in parameters]

    counts = both(train, device)
    assert counts["queued"] <= 0.4 * counts["recorded"], counts


def test_a_value_is_read_by_what_stands_between_before_it_changes(device):
    def step(device):
        x, y = torch.full((64, 64), 0.5, device=device), torch.full((64, 64), 0.25, device=device)
        a = x + y
        product = a @ y  # reads it before
        a.mul_(2)
        view = a[1:]
        view.add_(1)  # a part of it
        later = a @ y  # and after
        return product, a, later, a - 1

    both(step, device)


def test_a_product_that_is_computed_twice_is_copied_and_its_copy_is_memory_of_its_own(device):
    def twice(device):
        x = torch.arange(64.0, device=device).reshape(8, 8)
        one, other = x @ x, x @ x
        one.add_(1)
        x.add_(1)
        return one, other, x @ x, x

    assert both(twice, device)["common"] == 1


def test_functions_of_the_same_numbers_are_computed_once(device):
    def twice(device):
        x = torch.linspace(-2, 2, 5000, device=device)
        return torch.sigmoid(x) * 2 + torch.sigmoid(x), torch.sigmoid(x)

    assert both(twice, device)["common"] == 2


def test_random_numbers_are_never_the_same(device):
    def draw(device):
        torch.manual_seed(3)
        x = torch.ones(1000, device=device)
        return torch.nn.functional.dropout(x, 0.5), torch.nn.functional.dropout(x, 0.5), torch.rand_like(x), torch.rand_like(x), torch.bernoulli(x / 2)

    assert both(draw, device)["common"] == 0
    with lazy.record():
        results = draw(device)
    assert not torch.equal(results[0].cpu(), results[1].cpu()) and not torch.equal(results[2].cpu(), results[3].cpu())


UPDATES = {
    "SGD": lambda ps, _: torch.optim.SGD(ps, lr=0.1, momentum=0.9, fused=True).step(),
    "Adam": lambda ps, _: torch.optim.Adam(ps, lr=0.1, fused=True).step(),
    "unscale": lambda ps, one: torch._amp_foreach_non_finite_check_and_unscale_([p.grad for p in ps], one * 0, one / 2),
    "scatter": lambda ps, one: [p.grad.scatter_(0, one.long(), one) for p in ps],
    "index_add": lambda ps, one: [p.grad.index_add_(0, one.long(), one) for p in ps],
}


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_operators_that_update_tensors_of_one_size_are_not_the_same(device, update):
    def step(device):
        parameters = [torch.full((5,), float(value), device=device, requires_grad=True) for value in (1, 2, 3)]
        for parameter, value in zip(parameters, (1, 3, 5)):
            parameter.grad = torch.full((5,), float(value), device=device)
        update(parameters, torch.ones(1, device=device))
        return [parameter.detach() for parameter in parameters] + [parameter.grad for parameter in parameters]

    both(step, device)
    for ours, cpu in zip(step(device), step("cpu")):
        torch.testing.assert_close(ours.cpu(), cpu)


IN_PLACE = {  # a target, two operands of its size, a row, and indices in one of its dimensions
    "addmm_": lambda t, a, b, row, at: t.addmm_(a, b, beta=0.5, alpha=2),
    "addmm.out": lambda t, a, b, row, at: torch.addmm(t, a, b, out=t),
    "addmv_": lambda t, a, b, row, at: t[0].addmv_(a, row),
    "addr_": lambda t, a, b, row, at: t.addr_(row, row),
    "baddbmm_": lambda t, a, b, row, at: t.view(2, 4, 8).baddbmm_(a.view(2, 4, 8), b.expand(2, 8, 8)),
    "batch_norm": lambda t, a, b, row, at: torch.nn.functional.batch_norm(a, t[0], t[1].abs_(), training=True),
    "copy_ of a part": lambda t, a, b, row, at: t[:, ::2].copy_(a[:, ::2]),
    "add_ to a row": lambda t, a, b, row, at: t[1].add_(row),
    "cumsum_": lambda t, *_: t.cumsum_(0),
    "tril_": lambda t, *_: t.tril_(),
    "renorm_": lambda t, *_: t.renorm_(2, 0, 1.0),
    "lerp_": lambda t, a, b, row, at: t.lerp_(a, 0.3),
    "where.out": lambda t, a, b, row, at: torch.where(a > 0, a, t, out=t),
    "index_fill_": lambda t, a, b, row, at: t.index_fill_(0, at, 3.0),
    "index_copy_": lambda t, a, b, row, at: t.index_copy_(0, torch.arange(8, device=t.device), a),
    "index_put_": lambda t, a, b, row, at: t.index_put_((at,), a, accumulate=True),
    "put_": lambda t, a, b, row, at: t.put_(torch.arange(8, device=t.device), row),
    "scatter_": lambda t, a, b, row, at: t.scatter_(0, at.expand(8, 8), 2.0),
    "scatter_reduce_": lambda t, a, b, row, at: t.scatter_reduce_(0, at.expand(8, 8), a, "prod"),
    "masked_scatter_": lambda t, a, b, row, at: t.masked_scatter_(a > 0, b),
    "masked_fill_": lambda t, a, b, row, at: t.masked_fill_(a > 0, 1),
    "embedding, renormed": lambda t, a, b, row, at: torch.nn.functional.embedding(at, t, max_norm=0.5),
}


@pytest.mark.parametrize("update", IN_PLACE.values(), ids=IN_PLACE)
def test_what_is_written_in_place_with_the_same_operands_is_made_of_what_was_there(device, update):
    torch.manual_seed(0)
    targets, operands = [torch.randn(8, 8) for _ in range(3)], (torch.randn(8, 8), torch.randn(8, 8), torch.randn(8), torch.randint(8, (8,)))

    def step(device):
        own, given = [target.to(device, copy=True) for target in targets], [operand.to(device) for operand in operands]
        for target in own:
            update(target, *given)
        return own

    both(step, device)
    for ours, cpu in zip(step(device), step("cpu")):
        torch.testing.assert_close(ours.cpu(), cpu)
