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


def test_an_invalid_location_is_refused(device):
    with pytest.raises(RuntimeError):
        torch.load(saved(torch.ones(2, device=device)), map_location=f"{device}:abc")


def test_a_checkpoint_with_a_hostile_tag_is_refused(device, tmp_path):
    """A file whose storages claim to be from device 99 of this type."""
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


# ---- each map_location, each format ----
def tagged(value, tag):
    """Saves with another tag of the storages, as a malicious or foreign program could."""
    original = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: tag
    try:
        return saved(value)
    finally:
        torch.serialization.location_tag = original


PLACES = [
    (None, "{0}:1"), ("cpu", "cpu"), ("{0}", "{0}:0"), ("{0}:1", "{0}:1"), ("meta", "meta"),
    (lambda name: torch.device("cpu"), "cpu"), (lambda name: torch.device(name), "{0}:0"), (lambda name: torch.device(name, 1), "{0}:1"),
    (lambda name: {f"{name}:1": f"{name}:0"}, "{0}:0"), (lambda name: {f"{name}:1": "cpu"}, "cpu"), (lambda name: {"cpu": name}, "{0}:1"),
    (lambda name: lambda storage, location: storage, "cpu"), (lambda name: lambda storage, location: None, "{0}:1"),
    (lambda name: lambda storage, location: getattr(storage, name)(0), "{0}:0"),
    (lambda name: lambda storage, location: storage.to(device=f"{name}:0"), "{0}:0"),
]  # fmt: skip


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("place, expected", PLACES)
def test_every_form_of_map_location(device, place, expected, weights_only, zipped):
    stream = io.BytesIO()
    torch.save(torch.arange(3.0).to(f"{device}:1"), stream, _use_new_zipfile_serialization=zipped)
    stream.seek(0)
    place = place.format(device) if isinstance(place, str) else place and place(device)
    loaded = torch.load(stream, map_location=place, weights_only=weights_only)
    assert str(loaded.device) == expected.format(device)
    assert loaded.is_meta or loaded.tolist() == [0, 1, 2]


def test_without_an_index_the_current_device_is_meant(module, device):
    content = saved(torch.ones(2))
    with module.device(1):
        assert torch.load(content, map_location=device).device == torch.device(device, 1)


def test_loading_by_memory_map(device, tmp_path):
    tensor = torch.randn(1000).to(f"{device}:1")
    torch.save(tensor, tmp_path / "tensor.pt")
    for place, expected in ((None, f"{device}:1"), (f"{device}:0", f"{device}:0"), ("cpu", "cpu")):
        loaded = torch.load(tmp_path / "tensor.pt", map_location=place, mmap=True)
        assert str(loaded.device) == expected and torch.equal(loaded.cpu(), tensor.cpu())


def test_files_of_cuda_come_here_by_map_location(module, device):
    content = tagged(torch.arange(3.0), "cuda:0")
    assert torch.load(content, map_location=device).tolist() == [0, 1, 2]
    content.seek(0)
    with pytest.raises(RuntimeError, match="map_location"):
        torch.load(content)


@pytest.mark.parametrize("tag", ["{}:99", "{}:-1", "{}:abc", "{}99", "{}:", "{}:1:2", "{}:99999999999999999999", "{}ry", "nosuchdevice"])
@pytest.mark.parametrize("weights_only", [True, False])
def test_a_hostile_tag_is_a_runtime_error_that_names_it(device, tag, weights_only):
    content = tagged(torch.ones(2), tag.format(device))
    with pytest.raises(RuntimeError, match=tag.format("").strip(":") or device):
        torch.load(content, weights_only=weights_only)
    content.seek(0)
    assert torch.load(content, map_location="cpu", weights_only=weights_only).tolist() == [1, 1]


# ---- saved properties: by torch.save, pickle and deepcopy, as on the CPU ----
WAYS = {
    "save": lambda value: torch.load(saved(value), weights_only=False),
    "save, weights only": lambda value: torch.load(saved(value)),
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "deepcopy": copy.deepcopy,
}
VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "a column": lambda x: x[:, 1],
    "expanded": lambda x: x[0].expand(4, 3),
    "conjugated": lambda x: x.conj(),
    "imaginary parts": lambda x: x.imag,
    "negated": lambda x: x.conj().imag,
    "empty": lambda x: x[:0],
    "a number": lambda x: x[1, 2],
}
all_ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


@all_ways
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_travel_as_on_the_cpu(device, way, view):
    source = torch.randn(4, 3, dtype=torch.complex64)
    expected, actual = way(view(source)), way(view(source.to(f"{device}:1")))
    assert actual.device == torch.device(device, 1)
    assert (actual.shape, actual.stride(), actual.storage_offset()) == (expected.shape, expected.stride(), expected.storage_offset())
    assert (actual.is_conj(), actual.is_neg()) == (expected.is_conj(), expected.is_neg())
    assert torch.equal(actual.cpu().resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg())


@all_ways
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "uint8", "uint16", "uint32", "uint64",
                                   "int8", "int16", "int32", "int64", "bool", "complex64", "complex128"])  # fmt: skip
def test_dtypes_travel_bit_by_bit(device, way, dtype):
    source = torch.randint(2 if dtype == "bool" else 256, (64,), dtype=torch.uint8).view(getattr(torch, dtype))
    if way is WAYS["pickle"] and dtype.startswith(("float8", "uint16", "uint32", "uint64")):
        with pytest.raises(AttributeError):  # PyTorch's old format does not support them on the CPU either
            way(source)
        return
    actual = way(source.to(device))
    assert actual.dtype is source.dtype and actual.device.type == device
    assert torch.equal(actual.cpu().view(torch.uint8), source.view(torch.uint8))


# pickle separates them on the CPU as well
@pytest.mark.parametrize("way", [way for name, way in WAYS.items() if name != "pickle"])
def test_shared_storages_stay_shared(device, way):
    base = torch.zeros(4, device=device)
    first, second = way([base, base[1:]])
    second.fill_(5)
    assert first.tolist() == [0, 5, 5, 5] and base.tolist() == [0, 0, 0, 0]


@all_ways
def test_modules_parameters_and_gradients_travel(device, way):
    parameter = torch.nn.Parameter(torch.ones(3, device=f"{device}:1"), requires_grad=False)
    twin = way(parameter)
    assert type(twin) is torch.nn.Parameter and twin.device == parameter.device and not twin.requires_grad
    assert twin.data_ptr() != parameter.data_ptr()
    state = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to(device).state_dict()
    assert all(torch.equal(value.cpu(), state[name].cpu()) and value.device.type == device for name, value in way(state).items())


def test_a_module_and_its_optimizer_are_copied_as_on_the_cpu(device):
    def copied(place):
        torch.manual_seed(1)
        net = torch.nn.Linear(3, 1).to(place)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        twin, twin_optimizer = copy.deepcopy((net, optimizer))
        for one, its_optimizer in ((net, optimizer), (twin, twin_optimizer)):
            one(torch.ones(2, 3, device=place)).sum().backward()
            its_optimizer.step()
        assert twin.weight.data_ptr() != net.weight.data_ptr() and torch.equal(twin.weight.cpu(), net.weight.cpu())
        return net.weight.detach().cpu()

    torch.testing.assert_close(copied(device), copied("cpu"))


def test_only_leaves_are_copied(device):
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(torch.ones(2, device=device, requires_grad=True) * 2)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_travel(device):
    for make in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        loaded = torch.load(saved(make(torch.eye(3).to(device))))
        assert loaded.device.type == device and torch.equal(loaded.to_dense().cpu(), torch.eye(3))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_travel(device):
    tensor = torch.arange(4, dtype=torch.uint8).to(f"{device}:1")
    for storage in (tensor.untyped_storage(), tensor.storage()):
        loaded = torch.load(saved(storage), weights_only=False)
        assert loaded.device == torch.device(device, 1) and list(loaded) == [0, 1, 2, 3]


def test_devices_and_generators_travel(device):
    assert torch.load(saved(torch.device(device, 1))) == torch.device(device, 1)
    generator = torch.Generator(device=device).manual_seed(7)
    assert torch.load(saved(generator), weights_only=False).get_state().equal(generator.get_state())


def test_attributes_travel_with_a_tensor(device):
    tensor = torch.ones(2, device=device)
    tensor.note = "kept"
    assert copy.deepcopy(tensor).note == pickle.loads(pickle.dumps(tensor)).note == "kept"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("saved_on", ["cpu", "{}:1"])
@pytest.mark.parametrize("place", ["cpu", "{}:0", "{}:1", None])
def test_scripted_modules_are_loaded_on_the_requested_device(device, saved_on, place):
    net = torch.nn.Linear(3, 2).to(saved_on.format(device))
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(net), stream)
    stream.seek(0)
    loaded = torch.jit.load(stream, map_location=place and place.format(device))
    assert str(loaded.weight.device) == (place or saved_on).format(device) and torch.equal(loaded.weight.cpu(), net.weight.cpu())


def test_state_moves_between_devices_by_load_state_dict(device):
    net, source = torch.nn.Linear(3, 3).to(f"{device}:1"), torch.nn.Linear(3, 3)
    weight = net.weight
    net.load_state_dict(source.state_dict())
    assert net.weight is weight and weight.device.index == 1 and torch.equal(weight.cpu(), source.weight)
    net.load_state_dict({name: value.to(f"{device}:0") for name, value in source.state_dict().items()}, assign=True)
    assert net.weight.device.index == 0


def test_a_file_without_data_is_made_and_filled_later(device, tmp_path):
    with torch.serialization.skip_data():
        torch.save(torch.ones(3, device=device), tmp_path / "empty.pt")
    assert torch.load(tmp_path / "empty.pt").device.type == device


def test_a_module_without_data_gets_memory_on_the_device(device):
    with torch.device("meta"):
        net = torch.nn.Linear(3, 3)
    net.to_empty(device=f"{device}:1").load_state_dict(torch.nn.Linear(3, 3).state_dict())
    assert net.weight.device == torch.device(device, 1) and torch.isfinite(net.weight).all()
