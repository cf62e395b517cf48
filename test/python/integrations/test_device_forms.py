"""Each form in which the patched libraries accept a device: an index, "fake", "fake:1", torch.device, a device map.
Requested devices are used, and never silently replaced by the CPU."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("fresh_accelerate")

FORMS = ["index 0", "index 1", "type", "first", "second", "device", "device of the type"]


def form_of(device, form):
    """What a user writes, and the torch.device that it means."""
    return {
        "index 0": (0, f"{device}:0"), "index 1": (1, f"{device}:1"), "type": (device, f"{device}:0"), "first": (f"{device}:0", f"{device}:0"),
        "second": (f"{device}:1", f"{device}:1"), "device": (torch.device(device, 1), f"{device}:1"), "device of the type": (torch.device(device), f"{device}:0"),
    }[form]  # fmt: skip


@pytest.fixture(params=FORMS)
def place(request, device):
    given, meant = form_of(device, request.param)
    return given, torch.device(meant)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).eval()


def devices_of(value) -> set:
    if isinstance(value, nn.Module):
        value = [*value.parameters(), *value.buffers()]
    return {tensor.device for tensor in (value.values() if isinstance(value, dict) else value)}


def check(model, where):
    """The model is on it and computes as on the CPU."""
    assert devices_of(model) == {where}
    x = torch.ones(3, 4)
    torch.testing.assert_close(model(x.to(where)).cpu(), network()(x), rtol=1e-4, atol=1e-5)


@pytest.fixture
def accelerate():
    return pytest.importorskip("accelerate", reason="accelerate is not installed: make test-integrations")


@pytest.fixture
def checkpoint(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed: make test-integrations")
    safetensors.save_file(network().state_dict(), tmp_path / "model.safetensors")
    torch.save(network().state_dict(), tmp_path / "model.bin")
    return tmp_path


# ---- accelerate ----


def test_dispatch_model_moves_the_model(accelerate, place):
    given, where = place
    model = accelerate.dispatch_model(network(), {"": given})
    check(model, where)
    assert model.hf_device_map == {"": given}
    accelerate.hooks.remove_hook_from_module(model, recurse=True)


def test_dispatch_model_with_hooks(accelerate, place):
    given, where = place
    check(accelerate.dispatch_model(network(), {"": given}, force_hooks=True), where)


def test_dispatch_model_over_two_devices(accelerate, device, place):
    given, where = place
    other = torch.device(device, 1 - where.index)
    written = {int: other.index, str: str(other), torch.device: other}[type(given)]
    model = accelerate.dispatch_model(network(), {"0": given, "1": given, "2": written}, main_device=given)
    assert devices_of(model[0]) | devices_of(model[1]) == {where} and devices_of(model[2]) == {other}
    torch.testing.assert_close(model(torch.ones(3, 4)).cpu(), network()(torch.ones(3, 4)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("file", ["model.safetensors", "model.bin"])
def test_load_checkpoint_and_dispatch(accelerate, place, checkpoint, file):
    given, where = place
    with accelerate.init_empty_weights():
        model = network()
    check(accelerate.load_checkpoint_and_dispatch(model, str(checkpoint / file), device_map={"": given}), where)


def test_load_checkpoint_in_model_and_load_state_dict(accelerate, place, checkpoint):
    given, where = place
    with accelerate.init_empty_weights():
        model = network()
    accelerate.load_checkpoint_in_model(model, str(checkpoint / "model.safetensors"), device_map={"": given})
    assert devices_of(model) == {where}
    from accelerate.utils.modeling import load_state_dict

    assert devices_of(load_state_dict(str(checkpoint / "model.safetensors"), device_map={"": given})) == {where}
    two = load_state_dict(str(checkpoint / "model.safetensors"), device_map={"0": given, "1": given, "2": "cpu"})
    assert two["0.weight"].device == where and two["2.weight"].is_cpu


def test_offloading_computes_on_the_device(accelerate, place):
    given, where = place
    for offload in (accelerate.cpu_offload, lambda model, execution_device: accelerate.cpu_offload_with_hook(model, execution_device)[0]):
        model = offload(network(), execution_device=given)
        result = model(torch.ones(3, 4))
        assert result.device in (where, torch.device("cpu"))
        torch.testing.assert_close(result.cpu(), network()(torch.ones(3, 4)), rtol=1e-4, atol=1e-5)


def test_a_hook_of_one_layer(accelerate, place):
    given, where = place
    layer, seen = nn.Linear(4, 4), []
    accelerate.hooks.add_hook_to_module(layer, accelerate.hooks.AlignDevicesHook(execution_device=given, offload=True))
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.device))
    layer(torch.ones(1, 4))
    assert seen == [where]


def test_small_functions(accelerate, place):
    from accelerate.utils import send_to_device, set_module_tensor_to_device

    given, where = place
    model = network()
    set_module_tensor_to_device(model, "0.weight", given)
    assert model[0].weight.device == where and model[0].bias.is_cpu
    sent = send_to_device({"a": [torch.ones(2)], "b": (torch.ones(1), 3)}, given)
    assert sent["a"][0].device == sent["b"][0].device == where


@pytest.mark.parametrize("index", [0, 1])
def test_a_device_map_by_memory(accelerate, device, index):
    """accelerate names devices by their indices here, on CUDA, too."""
    from accelerate.utils import get_balanced_memory, infer_auto_device_map

    model = network()
    found = infer_auto_device_map(model, max_memory={index: 1 << 20, "cpu": 1 << 20})
    assert set(found.values()) == {index}
    check(accelerate.dispatch_model(model, found), torch.device(device, index))
    assert set(get_balanced_memory(network(), max_memory={index: 1 << 20, "cpu": 1 << 20})) == {index, "cpu"}
    with pytest.raises(ValueError, match="is not recognized"):
        infer_auto_device_map(model, max_memory={f"{device}:{index}": 1 << 20})


# ---- safetensors ----


def test_files_of_safetensors(checkpoint, place):
    from safetensors import safe_open
    from safetensors.torch import load_file, load_model

    given, where = place
    path = checkpoint / "model.safetensors"
    assert devices_of(load_file(path, device=given)) == {where}
    with safe_open(path, framework="pt", device=given) as file:
        assert file.get_tensor("0.weight").device == where and file.get_slice("0.weight")[:1].device == where
    model = network().to(where)
    load_model(model, path, device=given)
    check(model, where)


# ---- transformers ----


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
    folder = tmp_path_factory.mktemp("llama")
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return transformers, folder


@pytest.mark.parametrize("as_map", [False, True], ids=["device", "map"])
def test_from_pretrained(llama, place, as_map):
    transformers, folder = llama
    given, where = place
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map={"": given} if as_map else given)
    assert devices_of(model) == {where} and model.device == where
    tokens = torch.tensor([[1, 2, 3]])
    expected = transformers.AutoModelForCausalLM.from_pretrained(folder)(tokens).logits
    torch.testing.assert_close(model(tokens.to(where)).logits.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("word", ["auto", "balanced", "sequential"])
def test_from_pretrained_by_memory(llama, device, word):
    transformers, folder = llama
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map=word)
    assert {found.type for found in devices_of(model)} == {device}


def test_a_default_device_and_a_context(llama, place):
    transformers, folder = llama
    given, where = place
    with torch.device(where):
        assert devices_of(transformers.AutoModelForCausalLM.from_pretrained(folder)) == {where}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).to(given)
    assert devices_of(model) == {where}


def test_pipelines(llama, place):
    transformers, folder = llama
    given, where = place
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)

    class Plain(transformers.Pipeline):
        def _sanitize_parameters(self, **options):
            return {}, {}, {}

        def preprocess(self, text):
            return {"input_ids": torch.tensor([[len(text), 2, 3]])}

        def _forward(self, inputs):
            assert inputs["input_ids"].device == where
            return self.model(**inputs)

        def postprocess(self, outputs):
            return outputs.logits

    pipe = Plain(model=model, device=given)
    assert pipe.device in (where, torch.device(where.type)) and devices_of(model) == {where}
    assert pipe("text").is_cpu, "results come back to the host"


# ---- peft ----


@pytest.fixture
def adapter(llama, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed: make test-integrations")
    transformers, folder = llama
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path)
    return peft, transformers, folder, tmp_path


def test_adapters(adapter, place):
    peft, transformers, folder, saved = adapter
    given, where = place
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map={"": given})
    assert devices_of(peft.PeftModel.from_pretrained(model, saved)) == {where}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).to(where)
    assert devices_of(peft.PeftModel.from_pretrained(model, saved, torch_device=given)) == {where}
    assert devices_of(peft.load_peft_weights(str(saved), device=given)) == {where}


def test_adapters_without_a_device(adapter, device):
    peft, *_, saved = adapter
    assert {found.type for found in devices_of(peft.load_peft_weights(str(saved)))} == {device}


# ---- Lightning ----


@pytest.fixture
def first_device(module):
    """Lightning does not change the current device."""
    yield
    module.set_device(0)


@pytest.mark.parametrize("package", ["lightning.pytorch", "lightning.fabric", "pytorch_lightning"])
@pytest.mark.parametrize("devices, index", [(1, 0), ([0], 0), ([1], 1), ("1", 0), ("0,", 0), ("1,", 1), ("auto", 0)])
@pytest.mark.parametrize("accelerator", ["type", "auto", "gpu"])
def test_lightnings_devices(device, first_device, package, devices, index, accelerator):
    module = pytest.importorskip(package, reason="lightning is not installed: make test-integrations")
    word = device if accelerator == "type" else accelerator
    if package == "lightning.fabric":
        made = module.Fabric(accelerator=word, devices=devices)
        assert made.device == torch.device(device, index) and devices_of(made.setup(network())) == {torch.device(device, index)}
    else:
        made = module.Trainer(accelerator=word, devices=devices, logger=False, enable_checkpointing=False, enable_progress_bar=False)
        assert made.strategy.root_device == torch.device(device, index)
