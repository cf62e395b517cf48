"""Saving, loading, pickling and copying tensors of the device."""

import copy
import io
import pickle

import pytest
import torch


def saved(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return stream


@pytest.mark.parametrize("weights_only", [True, False])
def test_save_and_load_keep_value_and_device(device, weights_only):
    tensor = torch.randn(3, 4).to(f"{device}:1")
    loaded = torch.load(saved({"a": tensor}), weights_only=weights_only)["a"]
    assert loaded.device == torch.device(device, 1)
    assert torch.equal(loaded.cpu(), tensor.cpu())


@pytest.mark.parametrize("target", ["cpu", "{0}", "{0}:0", "{0}:1"])
def test_map_location(device, target):
    target = target.format(device)
    tensor = torch.arange(6.0).to(f"{device}:1")
    loaded = torch.load(saved(tensor), map_location=target)
    assert loaded.device.type == torch.device(target).type
    assert torch.device(target).index in (None, loaded.device.index)
    assert loaded.tolist() == [0, 1, 2, 3, 4, 5]


def test_cpu_to_device_and_callables(device):
    stream = saved(torch.arange(4.0))
    assert torch.load(stream, map_location=f"{device}:1").device == torch.device(device, 1)
    stream.seek(0)
    assert torch.load(stream, map_location={"cpu": device}).device.type == device
    stream.seek(0)
    assert torch.load(stream, map_location=torch.device(device, 0)).device == torch.device(device, 0)


def test_views_share_their_storage_after_loading(device):
    base = torch.zeros(4, 4, device=device)
    first, second = torch.load(saved((base, base[1].t())))
    second.fill_(5)
    assert first[1].tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.bool, torch.int8])
def test_dtypes_survive(device, dtype):
    tensor = torch.tensor([0, 1, 1, 0]).to(dtype).to(device)
    loaded = torch.load(saved(tensor))
    assert loaded.dtype == dtype and torch.equal(loaded.cpu(), tensor.cpu())


def test_state_dict_and_optimizer_round_trip(device):
    network = torch.nn.Linear(3, 3).to(device)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(2, 3, device=device)).sum().backward()
    optimizer.step()
    state = torch.load(saved({"net": network.state_dict(), "opt": optimizer.state_dict()}), map_location="cpu")
    twin = torch.nn.Linear(3, 3)
    twin.load_state_dict(state["net"])
    assert torch.equal(twin.weight, network.weight.cpu())
    assert state["opt"]["state"][0]["exp_avg"].device.type == "cpu"


def test_pickle_and_deepcopy(device):
    tensor = torch.randn(5, device=device, requires_grad=True)
    for twin in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert twin.device == tensor.device and twin.requires_grad
        assert torch.equal(twin.detach().cpu(), tensor.detach().cpu())
        assert twin.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("index", [2, 99])
def test_a_hostile_location_raises_torchs_error(device, index):
    content = saved(torch.ones(2, device=f"{device}:1"))
    with pytest.raises(RuntimeError, match=f"device {index} but"):
        torch.load(content, map_location=f"{device}:{index}")


def test_a_location_that_is_no_device_is_refused(device):
    with pytest.raises(RuntimeError):
        torch.load(saved(torch.ones(2, device=device)), map_location=f"{device}:abc")


def test_a_checkpoint_with_a_hostile_tag_is_refused(device, tmp_path):
    """A file whose storages claim to come from device 99 of this type."""
    path = tmp_path / "hostile.pt"
    storage_tag = torch.serialization.location_tag
    try:
        torch.serialization.location_tag = lambda storage: f"{device}:99"
        torch.save(torch.ones(2), path)
    finally:
        torch.serialization.location_tag = storage_tag
    with pytest.raises(RuntimeError, match="99.*2"):
        torch.load(path)
    assert torch.load(path, map_location="cpu").tolist() == [1, 1]
