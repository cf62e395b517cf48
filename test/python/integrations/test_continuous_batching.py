"""transformers' continuous batching, with keys and values in pages: tokens as on the CPU, directly, as graphs,
compiled, and with asynchronous batches."""

import pytest
import torch

import torch_backend

transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")

PROMPTS = [[3, 5, 7, 9, 11], [2, 4, 6], list(range(1, 30)), [1]]


def model(attention):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    net = transformers.LlamaForCausalLM(config).eval()
    net.set_attn_implementation(attention)
    return net


def tokens(device, attention, net=None, **options):
    """Returns the tokens that follow each prompt."""
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    generation = transformers.GenerationConfig(max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64, **options)
    net = (net or model(attention)).to(device)
    outputs = net.generate_batch(PROMPTS, generation_config=generation, continuous_batching_config=batching, progress_bar=False)
    assert not any(output.error for output in outputs.values())
    return [outputs[name].generated_tokens for name in sorted(outputs)]


ATTENTION = pytest.mark.parametrize("attention", ["paged|eager", "sdpa"])


@ATTENTION
@pytest.mark.parametrize("options", [{}, {"use_cuda_graph": True}, {"use_async_batching": True}], ids=["direct", "graphs", "asynchronous"])
def test_the_tokens_are_those_of_the_cpu(device, native, attention, options):
    expected = tokens("cpu", attention)
    assert len(expected) == len(PROMPTS) and {len(one) for one in expected} == {12}
    with native():
        assert tokens(device, attention, **options) == expected


def test_graphs_replay_operators(device):
    """Fewer operators are called from Python than without graphs."""

    def calls(**options):
        torch.accelerator.synchronize()
        torch_backend.ops.reset()
        tokens(device, "sdpa", **options)
        return sum(row.native for row in torch_backend.ops.report())

    assert calls(use_cuda_graph=True) < 0.7 * calls()


@pytest.mark.host_memory("inductor's C++ kernels read and write device addresses")
def test_compiled_batches(device):
    from transformers.generation.configuration_utils import CompileConfig

    compiled = tokens(device, "sdpa", varlen_compile_config=CompileConfig(mode="default", fullgraph=False))
    assert compiled == tokens("cpu", "sdpa")


def test_the_cache_is_sized_by_the_memory_of_the_device(device):
    from transformers.generation.continuous_batching.utils import get_device_and_memory_breakdown

    place, total, reserved, _ = get_device_and_memory_breakdown()
    assert place.type == device
    assert total == torch.accelerator.get_memory_info()[1] and reserved == torch.accelerator.memory_reserved()
