"""A mixture of experts as libraries build it trains as on the CPU, with a device kernel for each operator."""

import copy
import os

import pytest
import torch

import torch_backend

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model is created from a configuration
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")

# how transformers computes the experts: one after the other, gathered, grouped
EXPERTS = ["eager", "batched_mm", "grouped_mm"]


def train(start, device, dtype=None, steps=2):
    """Trains a copy of `start`; returns the losses and the gradients of the last step."""
    model = copy.deepcopy(start).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    tokens = (torch.arange(32).reshape(2, 16) * 7 % 64).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: parameter.grad.cpu() for name, parameter in model.named_parameters()}


@pytest.fixture(scope="module", params=EXPERTS)
def start(request):
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64, output_router_logits=True,
    )  # fmt: skip
    return transformers.MixtralForCausalLM._from_config(config, experts_implementation=request.param)


def test_a_step_is_the_cpus_without_a_fallback(device, start):
    expected, gradients = train(start, "cpu")
    torch_backend.ops.reset()
    losses, ours = train(start, device)
    rows = torch_backend.ops.report()
    assert sum(row.native for row in rows) > 0 and not [row for row in rows if row.fallback]
    assert losses == pytest.approx(expected, rel=1e-4) and losses[-1] < losses[0]
    for name, theirs in gradients.items():
        assert (ours[name] - theirs).norm() <= 1e-3 * theirs.norm() + 1e-6, name


def test_so_it_is_in_bfloat16(device, start):
    expected, _ = train(start, "cpu")
    torch_backend.ops.reset()
    losses, _ = train(start, device, torch.bfloat16)
    assert not [row for row in torch_backend.ops.report() if row.fallback]
    assert losses == pytest.approx(expected, rel=0.02)
