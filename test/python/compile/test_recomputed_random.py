"""Random operators that a compiled backward pass computes again: the mask of a dropout is the one of the forward pass,
which the outputs show."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

WAYS = {
    "aot_eager": {"backend": "aot_eager"},
    "cudagraphs": {"backend": "cudagraphs"},
    "inductor": {"backend": "inductor"},
    "reduce-overhead": {"mode": "reduce-overhead"},
}


@pytest.fixture(params=WAYS)
def block(request, device):
    """A compiled layer and dropout with a checkpoint, and its weight."""
    layer = torch.nn.Linear(4, 4).to(device)

    def function(x):
        return checkpoint(lambda y: torch.nn.functional.dropout(layer(y), 0.5), x, use_reentrant=False)

    return torch.compile(function, **WAYS[request.param]), layer.weight


def forward(run, device):
    x = torch.ones(16, 4, device=device, requires_grad=True)
    return x, run(x)


def check(x, output, weight):
    expected = (output != 0).float().cpu() * 2 @ weight.cpu()
    torch.testing.assert_close(x.grad.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_the_backward_pass_has_the_mask_of_its_forward_pass(device, block):
    run, weight = block
    outputs = []
    for _ in range(5):
        x, output = forward(run, device)
        output.sum().backward()
        check(x, output, weight)
        outputs.append(output.detach())
    assert not torch.equal(outputs[-1] != 0, outputs[-2] != 0)


def test_two_forward_passes_before_their_backward_passes(device, block):
    run, weight = block
    first, second = forward(run, device), forward(run, device)
    for x, output in (second, first):
        output.sum().backward()
        check(x, output, weight)


def test_the_generator_continues_after_the_backward_pass(device, module, block):
    run, _ = block
    _, output = forward(run, device)
    state = module.get_rng_state()
    output.sum().backward()
    assert torch.equal(module.get_rng_state(), state)


def test_a_backward_pass_that_keeps_its_graph_runs_twice(device, block):
    from torch._functorch import config

    run, weight = block
    with config.patch(donated_buffer=False):
        forward(run, device)
        x, output = forward(run, device)
        for _ in range(2):
            x.grad = None
            output.sum().backward(retain_graph=True)
            check(x, output, weight)


@pytest.mark.parametrize("block", ["cudagraphs", "reduce-overhead"], indirect=True)
def test_regions_with_graphs_are_replayed(device, module, block):
    run, weight = block
    replays, masks = [], []
    handle = module.register_graph_replay_start_hook(lambda *_: replays.append(1))
    for _ in range(16):
        x, output = forward(run, device)
        output.sum().backward()
        check(x, output, weight)
        masks.append(output != 0)
        del output
    handle.remove()
    assert len(replays) >= 16, "both passes are graphs"
    assert not any(torch.equal(one, other) for number, one in enumerate(masks) for other in masks[:number])
