"""bitsandbytes: weights of 4 and 8 bits and 8-bit optimizers compute as on the CPU."""

import os
import subprocess
import sys

import pytest
import torch

bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: make test-integrations")
from bitsandbytes import functional

OPTIMIZERS = ["Adam8bit", "AdamW8bit", "Lion8bit", "Adam"]


def test_the_device_is_among_those_that_it_supports(device):
    assert device in bitsandbytes.supported_torch_devices


def test_a_device_that_becomes_active_later_is_supported():
    program = "import bitsandbytes, torch_backend as b; assert 'fake' not in bitsandbytes.supported_torch_devices; b.use('fake');" \
              "assert 'fake' in bitsandbytes.supported_torch_devices"  # fmt: skip
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCH_BACKEND": ""}
    subprocess.run([sys.executable, "-P", "-c", program], check=True, env=environment)


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_four_bits_are_those_of_the_cpu(device, native, kind):
    x = torch.randn(64, 128).bfloat16()
    expected, state = functional.quantize_4bit(x, quant_type=kind)
    with native():
        ours, our_state = functional.quantize_4bit(x.to(device), quant_type=kind)
        restored = functional.dequantize_4bit(ours, our_state)
    assert torch.equal(ours.cpu(), expected) and torch.equal(restored.cpu(), functional.dequantize_4bit(expected, state))


def linear4(device):
    torch.manual_seed(1)
    return bitsandbytes.nn.Linear4bit(128, 32, compute_dtype=torch.bfloat16, quant_type="nf4").to(device)


@pytest.mark.parametrize("rows", [1, 32])
def test_a_linear_layer_of_four_bits_and_its_gradient(device, native, rows):
    x = torch.randn(rows, 128).bfloat16()
    sides = []
    for place in ("cpu", device):
        operand, layer = x.to(place).requires_grad_(), linear4(place)
        with native() if place != "cpu" else torch.enable_grad():
            result = layer(operand)
            (gradient,) = torch.autograd.grad(result.sum(), operand)
        sides.append((result.detach().cpu(), gradient.cpu()))
    torch.testing.assert_close(sides[1], sides[0], rtol=2**-6, atol=2**-7)


def test_a_linear_layer_of_eight_bits(device, native):
    x, results = torch.randn(16, 128).half(), []
    for place in ("cpu", device):
        torch.manual_seed(1)
        layer = bitsandbytes.nn.Linear8bitLt(128, 32, has_fp16_weights=False).to(place)
        with native() if place != "cpu" else torch.enable_grad():
            results.append(layer(x.to(place)).detach().cpu())
    torch.testing.assert_close(results[1], results[0], rtol=0.02, atol=0.03)  # the CPU's and torch's roundings to 8 bits differ


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_with_states_of_eight_bits(device, name):
    x, weights = torch.randn(16, 128), []
    for place in ("cpu", device):
        torch.manual_seed(2)
        layer = torch.nn.Linear(128, 256).to(place)
        optimizer = getattr(bitsandbytes.optim, name)(layer.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            layer(x.to(place)).pow(2).mean().backward()
            optimizer.step()
        weights.append(layer.weight.detach().cpu())
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=1e-3)


@pytest.mark.parametrize("quantization", [{"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
                                           "bnb_4bit_compute_dtype": torch.bfloat16}, {"load_in_8bit": True}], ids=["nf4", "int8"])  # fmt: skip
@torch.no_grad()
def test_a_model_of_transformers(device, native, tmp_path, quantization):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")
    torch.manual_seed(0)
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).bfloat16().save_pretrained(tmp_path)
    tokens, logits = torch.randint(0, 128, (2, 16)), []
    for place in ("cpu", f"{device}:0"):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, quantization_config=transformers.BitsAndBytesConfig(**quantization), device_map={"": place}, dtype=torch.bfloat16)  # fmt: skip
        with native() if place != "cpu" else torch.enable_grad():
            logits.append(model(tokens.to(place)).logits.float().cpu())
        assert model.model.layers[0].mlp.up_proj.weight.dtype in (torch.uint8, torch.int8)
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=0.02 * float(logits[0].abs().max()))
