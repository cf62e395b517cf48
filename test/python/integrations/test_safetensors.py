"""safetensors files are loaded to the device by its name and by its index."""

import pytest
import torch

safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed: make test-integrations")
import safetensors.torch

from torch_backend import integrations

TENSORS = {"a": torch.randn(3, 5), "b": torch.arange(7), "half": torch.randn(4).to(torch.bfloat16), "empty": torch.empty(0, 2)}


@pytest.fixture
def file(tmp_path):
    safetensors.torch.save_file(TENSORS, tmp_path / "tensors.safetensors", metadata={"made": "here"})
    return tmp_path / "tensors.safetensors"


def names(device):
    return [device, f"{device}:0", f"{device}:1", torch.device(device, 1), torch.device(device), 1]


def place(device, wanted):
    return torch.device(device, wanted) if isinstance(wanted, int) else torch.device(device, torch.device(wanted).index or 0)


@pytest.mark.parametrize("which", range(6), ids=["name", "name:0", "name:1", "device:1", "device", "index"])
def test_load_file(device, file, which):
    wanted = names(device)[which]
    loaded = safetensors.torch.load_file(file, device=wanted)
    assert loaded.keys() == TENSORS.keys()
    for name, tensor in loaded.items():
        assert tensor.device == place(device, wanted) and torch.equal(tensor.cpu(), TENSORS[name])


@pytest.mark.parametrize("which", range(6), ids=["name", "name:0", "name:1", "device:1", "device", "index"])
def test_safe_open(device, file, which):
    wanted = names(device)[which]
    with safetensors.safe_open(file, framework="pt", device=wanted) as opened:
        assert opened.metadata() == {"made": "here"} and set(opened.keys()) == set(TENSORS)
        assert opened.get_tensor("a").device == place(device, wanted)
        part = opened.get_slice("a")[1:, :2]
    assert part.device == place(device, wanted) and torch.equal(part.cpu(), TENSORS["a"][1:, :2])


def test_the_name_alone_is_the_current_device(device, module, file):
    with module.device(1):
        assert safetensors.torch.load_file(file, device=device)["a"].device == torch.device(device, 1)


def test_a_model_is_loaded(device, tmp_path):
    net = torch.nn.Linear(3, 2)
    safetensors.torch.save_model(net.to(device), str(tmp_path / "model.safetensors"))
    other = torch.nn.Linear(3, 2).to(device)
    safetensors.torch.load_model(other, tmp_path / "model.safetensors", device=device)
    assert torch.equal(other.weight.cpu(), net.weight.cpu()) and other.weight.device.type == device


def test_other_places_are_as_before(file):
    assert safetensors.torch.load_file(file)["a"].device.type == "cpu"
    with pytest.raises(Exception, match="nowhere"):
        safetensors.torch.load_file(file, device="nowhere")


def test_an_index_that_no_device_has(device, file):
    with pytest.raises(RuntimeError, match=f"there is no '{device}:9'"):
        safetensors.torch.load_file(file, device=f"{device}:9")


def test_modules_that_copied_the_class_before_and_after(device, file):
    """`from safetensors import safe_open` binds the class in many modules; all of them change, and all are restored."""
    import types

    early = types.ModuleType("early_reader")
    integrations.disable("safetensors")
    original = early.safe_open = safetensors.safe_open
    import sys

    sys.modules["early_reader"] = early
    try:
        with pytest.raises(Exception, match="invalid"):
            early.safe_open(file, framework="pt", device=device)
        integrations.enable("safetensors")
        late = types.ModuleType("late_reader")
        late.safe_open = safetensors.safe_open
        sys.modules["late_reader"] = late
        for reader in (early, late):
            with reader.safe_open(file, framework="pt", device=device) as opened:
                assert opened.get_tensor("b").device.type == device
        integrations.disable("safetensors")
        assert early.safe_open is late.safe_open is safetensors.safe_open is safetensors.torch.safe_open is original
    finally:
        sys.modules.pop("early_reader"), sys.modules.pop("late_reader", None)
        integrations.enable("safetensors")
