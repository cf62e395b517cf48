"""transformers: Trainer, device_map, pipelines, generation and offloaded caches on the device, with models created from
a configuration."""

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")
pytest.importorskip("accelerate", reason="accelerate is not installed: make test-integrations")
pytestmark = pytest.mark.usefixtures("fresh_accelerate")

VOCABULARY = 64


def model(dropout=0.0):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, attention_dropout=dropout, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


class Tokens(torch.utils.data.Dataset):
    """A sequence that repeats, which a model learns in a few steps."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        tokens = (torch.arange(16) + index) % 16
        return {"input_ids": tokens, "labels": tokens}


def trainer(folder, net=None, **options):
    settings = {"max_steps": 6, "per_device_train_batch_size": 8, "learning_rate": 1e-2, "logging_steps": 1, "report_to": [],
                "save_strategy": "no", "seed": 5, "dataloader_num_workers": 0, **options}  # fmt: skip
    arguments = transformers.TrainingArguments(output_dir=str(folder), **settings)
    return transformers.Trainer(model=net or model(), args=arguments, train_dataset=Tokens())


def losses(done):
    return [row["loss"] for row in done.state.log_history if "loss" in row]


@pytest.mark.parametrize("precision, tolerance", [({}, 2e-4), ({"bf16": True}, 5e-2), ({"fp16": True}, 5e-2)], ids=["float32", "bf16", "fp16"])
def test_trainer_trains_on_the_device_as_on_the_cpu(device, native, tmp_path, precision, tolerance):
    from accelerate.state import AcceleratorState

    ours = trainer(tmp_path, **precision)
    assert ours.args.device == torch.device(device, 0) and ours.args.n_gpu == 1
    with native():
        ours.train()
    assert {parameter.device.type for parameter in ours.model.parameters()} == {device}
    AcceleratorState._reset_state(True)
    theirs = trainer(tmp_path, use_cpu=True)
    theirs.train()
    # The scaler of fp16 skips steps until it has found its scale, which the CPU's float32 does not.
    steps = 1 if "fp16" in precision else 6
    torch.testing.assert_close(torch.tensor(losses(ours)[:steps]), torch.tensor(losses(theirs)[:steps]), rtol=tolerance, atol=tolerance)
    assert losses(ours)[-1] < losses(ours)[0] * 0.9


def test_trainer_resumes_with_the_same_random_numbers(device, tmp_path):
    """With dropout on the device, an interrupted run has the losses of an uninterrupted one."""
    from accelerate.state import AcceleratorState

    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    whole = trainer(tmp_path / "whole", model(dropout=0.3), **options)
    whole.train()
    AcceleratorState._reset_state(True)
    torch.manual_seed(12345)
    resumed = trainer(tmp_path / "again", model(dropout=0.3), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert losses(resumed)[-3:] == losses(whole)[-3:]
    states = torch.load(tmp_path / "whole" / "checkpoint-3" / "rng_state.pth", weights_only=False)
    assert torch.is_tensor(states[device])


def test_trainer_evaluates_and_measures_memory(device, native, tmp_path):
    ours = trainer(tmp_path, skip_memory_metrics=False, per_device_eval_batch_size=8)
    with native():
        metrics = ours.evaluate(Tokens())
    assert metrics["eval_loss"] > 0 and "eval_mem_gpu_peaked_delta" in metrics


def test_bf16_is_known_to_be_there():
    from transformers.utils import is_torch_bf16_gpu_available

    assert is_torch_bf16_gpu_available()


@pytest.fixture
def saved(tmp_path):
    net = model()
    net.save_pretrained(tmp_path / "model")
    return net.eval(), tmp_path / "model"


def load(folder, **options):
    return transformers.LlamaForCausalLM.from_pretrained(folder, **options).eval()


TOKENS = torch.arange(24).reshape(2, 12) % VOCABULARY


@pytest.mark.parametrize("device_map", ["auto", "balanced", "sequential", "balanced_low_0"])
def test_device_maps_choose_the_device(device, native, saved, device_map):
    net, folder = saved
    loaded = load(folder, device_map=device_map)
    places = {parameter.device for parameter in loaded.parameters()}
    assert {place.type for place in places} == {device}
    if device_map == "balanced":
        assert len(places) == 2, "a model is spread over both devices"
    with native(), torch.no_grad():
        result = loaded(TOKENS.to(loaded.device)).logits
    torch.testing.assert_close(result.cpu(), net(TOKENS).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device_map", ["name", {"": 0}, {"": "name:1"}], ids=str)
def test_device_maps_that_name_the_device(device, saved, device_map):
    net, folder = saved
    wanted = device_map.replace("name", device) if isinstance(device_map, str) else {"": str(device_map[""]).replace("name", device)}
    if device_map == {"": 0}:
        wanted = device_map
    loaded = load(folder, device_map=wanted)
    assert {parameter.device.type for parameter in loaded.parameters()} == {device}
    with torch.no_grad():
        torch.testing.assert_close(loaded(TOKENS.to(loaded.device)).logits.cpu(), net(TOKENS).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("limits", [{0: "60KB", "cpu": "10GB"}, {0: "60KB", "cpu": "60KB", "disk": "10GB"}], ids=["host", "disk"])
def test_layers_offloaded_compute_on_the_device(device, native, saved, tmp_path, limits):
    net, folder = saved
    loaded = load(folder, device_map="auto", max_memory=limits, offload_folder=tmp_path / "offload")
    assert ("disk" if "disk" in limits else "cpu") in loaded.hf_device_map.values() and 0 in loaded.hf_device_map.values()
    with native(), torch.no_grad():
        result = loaded(TOKENS.to(device)).logits
    torch.testing.assert_close(result.cpu(), net(TOKENS).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cache", [None, "offloaded", "static", "offloaded_static"])
def test_generation_produces_the_cpus_tokens(device, native, saved, cache):
    net, _ = saved
    options = {"max_new_tokens": 12, "do_sample": False, **({"cache_implementation": cache} if cache else {})}
    expected = net.generate(TOKENS, max_new_tokens=12, do_sample=False)
    net.to(device)
    result = net.generate(TOKENS.to(device), **options)
    assert result.device.type == device
    assert torch.equal(result.cpu(), expected)


def test_generation_with_a_static_cache_is_compiled(device, saved):
    """As on CUDA: transformers lists the devices for which it compiles."""
    from torch._dynamo.utils import counters

    _, saved = saved
    tokens = torch.tensor([[1, 2, 3, 4]])
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    expected = transformers.AutoModelForCausalLM.from_pretrained(saved).generate(tokens, **options)
    torch._dynamo.reset()
    counters.clear()
    net = transformers.AutoModelForCausalLM.from_pretrained(saved, device_map=device)
    found = net.generate(tokens.to(device), compile_config=transformers.CompileConfig(backend="eager"), **options)
    assert torch.equal(found.cpu(), expected) and counters["stats"]["unique_graphs"] >= 1
    torch._dynamo.reset()


def test_an_offloaded_cache_lies_on_the_host(device, saved):
    net, _ = saved
    net.to(device)
    cache = transformers.DynamicCache(config=net.config, offloading=True)
    with torch.no_grad():
        net(TOKENS.to(device), past_key_values=cache, use_cache=True)
    assert "cpu" in {layer.keys.device.type for layer in cache.layers}


@pytest.mark.parametrize("index", [0, 1, None])
def test_pipelines_take_an_index(device, saved, index):
    net, _ = saved

    class Echo(transformers.Pipeline):
        def _sanitize_parameters(self, **options):
            return {}, {}, {}

        def preprocess(self, inputs):
            return {"input_ids": inputs}

        def _forward(self, inputs):
            assert inputs["input_ids"].device == self.device
            return self.model(**inputs)

        def postprocess(self, outputs):
            return outputs.logits

    pipeline = Echo(model=net, **({} if index is None else {"device": index}))
    assert pipeline.device == torch.device(device, index or 0)
    assert net.device == pipeline.device
    torch.testing.assert_close(pipeline(TOKENS), model().eval()(TOKENS).logits, rtol=1e-4, atol=1e-4)


def test_seeds_reach_the_device(device):
    transformers.set_seed(7)
    first = torch.rand(4, device=device)
    transformers.set_seed(7)
    assert torch.equal(first, torch.rand(4, device=device))
