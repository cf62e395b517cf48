"""Identical training steps of transformers' models have identical programs in lazy mode from the third step on, in both modes of `fake`."""

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")

SIZES = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
         "max_position_embeddings": 64}  # fmt: skip
DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 2}),
    "Qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**SIZES, "num_key_value_heads": 2}),
    "BERT": ("BertForMaskedLM", "BertConfig", {**SIZES, **DROPOUT}),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 256, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 64,
                                                "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
}  # fmt: skip

SCRIPT = """
import sys
sys.path.append({folder!r})
import torch, transformers, repeated_steps
torch.manual_seed(0)
model = transformers.{model}(transformers.{config}(**{options!r})).to("fake")
tokens = torch.randint(0, 256, (1, 32)).to("fake")
repeated_steps.check(model, lambda model: model(input_ids=tokens, labels=tokens).loss, steps=12)
"""


@pytest.mark.parametrize("asynchronous", ["1", "0"])
@pytest.mark.parametrize("name", MODELS)
def test_identical_steps_are_identical_programs(name, asynchronous, run_python):
    model, config, options = MODELS[name]
    script = SCRIPT.format(folder=str(Path(__file__).parents[1]), model=model, config=config, options=options)
    run_python(script, timeout=300, TORCH_BACKEND="fake", HAL_FAKE_ASYNC=asynchronous)
