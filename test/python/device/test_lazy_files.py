"""Files of tensors of the device type "lazy": torch.load with map_location, views, the old format,
torch.distributed.checkpoint."""

import pytest
import torch

ENABLE = "import torch, torch_backend, tempfile, os\ntorch_backend.lazy.device.enable()\nplace = os.path.join(tempfile.mkdtemp(), 'file')\n"

TENSORS = """
def tensors():
    base = torch.arange(12.0).reshape(3, 4)
    return {"base": base, "row": base[1], "turned": base.t(), "parameter": torch.nn.Parameter(base[2]), "conj": torch.complex(base, base).conj(),
            "negative": torch._neg_view(base[0]), "scalar": torch.tensor(5.0), "empty": torch.empty(0, 3), "half": torch.ones(3, dtype=torch.bfloat16),
            "short": torch.tensor([1, 2, 65535], dtype=torch.uint16), "bool": torch.tensor([True, False])}
def check(loaded):
    for name, wanted in tensors().items():
        ours = loaded[name]
        assert ours.device == torch.device("lazy", 0), (name, ours.device)
        assert ours.dtype == wanted.dtype and ours.requires_grad == wanted.requires_grad and type(ours) is type(wanted), name
        assert torch.equal(ours.cpu(), wanted.detach()), name
    with torch.no_grad():
        loaded["row"].fill_(7.0)  # tensors of one storage stay views of one
    assert loaded["base"].cpu()[1].tolist() == [7.0] * 4 == loaded["turned"].cpu()[:, 1].tolist()
"""


@pytest.mark.parametrize("options", ["", "mmap=True", "weights_only=False"])
def test_a_file_of_the_host_is_loaded_as_lazy_tensors(run_python, options):
    run_python(f"{ENABLE}{TENSORS}\ntorch.save(tensors(), place)\ncheck(torch.load(place, map_location='lazy', {options}))\n"
        f"check(torch.load(place, map_location=torch.device('lazy', 0), {options}))", TORCH_BACKEND="fake")  # fmt: skip


def test_the_old_format_whose_bytes_come_last(run_python):
    run_python(f"""{ENABLE}
base = torch.arange(6.0).reshape(2, 3)
torch.save({{"base": base, "row": base[1]}}, place, _use_new_zipfile_serialization=False)
loaded = torch.load(place, map_location="lazy")
assert loaded["base"].device.type == "lazy" and loaded["base"].cpu().tolist() == base.tolist() and loaded["row"].cpu().tolist() == [3.0, 4.0, 5.0]
""", TORCH_BACKEND="fake")


@pytest.mark.parametrize("before", ["", "torch.load(place, map_location='cpu', weights_only=True)"], ids=["first", "after another file"])
@pytest.mark.parametrize("options", ["", "weights_only=False"])
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_of_pickles_before_torch_0_4(run_python, zipped, options, before):
    """Such a pickle calls torch._utils._rebuild_tensor directly."""
    run_python(f"""{ENABLE.replace("torch_backend.lazy.device.enable()", "")}
class Old:
    def __init__(self, tensor):
        self.tensor = tensor
    def __reduce__(self):
        t = self.tensor
        return torch._utils._rebuild_tensor, (t.storage(), t.storage_offset(), tuple(t.size()), t.stride())
base = torch.arange(6.0).reshape(2, 3)
torch.save({{"base": Old(base), "row": Old(base[1]), "new": base[0]}}, place, _use_new_zipfile_serialization={zipped})
{before}
torch_backend.lazy.device.enable()
loaded = torch.load(place, map_location="lazy", {options})
assert {{x.device.type for x in loaded.values()}} == {{"lazy"}}
assert torch.equal(loaded["base"].cpu(), base) and torch.equal(loaded["row"].cpu(), base[1]) and torch.equal(loaded["new"].cpu(), base[0])
loaded["row"].fill_(7.0)
assert loaded["base"].cpu()[1].tolist() == [7.0] * 3
assert torch.load(place, map_location="cpu", {options})["base"].device.type == "cpu"
""", TORCH_BACKEND="fake")


def test_a_module_goes_to_a_file_and_back_and_to_the_host(run_python):
    run_python(f"""{ENABLE}
module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("lazy")
module(torch.randn(5, 3, device="lazy")).sum().backward()
torch.save(module.state_dict(), place)
other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("lazy")
other.load_state_dict(torch.load(place))
for name, value in torch.load(place, map_location="cpu").items():
    assert value.device.type == "cpu" and torch.equal(value, other.state_dict()[name].cpu()), name
""", TORCH_BACKEND="fake")


def test_a_device_that_is_not_there_is_named(run_python):
    run_python(f"""{ENABLE}
torch.save(torch.ones(2), place)
for location in ("lazy:99", "lazy:x"):
    try:
        torch.load(place, map_location=location)
    except RuntimeError as error:
        assert location in str(error), error
    else:
        raise AssertionError(location)
""", TORCH_BACKEND="fake")


def test_distributed_checkpoints_are_written_and_read(run_python):
    run_python(f"""{ENABLE}
import torch.distributed.checkpoint as dcp
module = torch.nn.Linear(300, 40).to("lazy")
wanted = {{name: value.cpu().clone() for name, value in module.state_dict().items()}}
for save in (lambda to: dcp.save(module.state_dict(), checkpoint_id=to), lambda to: dcp.async_save(module.state_dict(), checkpoint_id=to).result()):
    folder = tempfile.mkdtemp()
    save(folder)
    other = torch.nn.Linear(300, 40).to("lazy")
    state = other.state_dict()
    dcp.load(state, checkpoint_id=folder)
    other.load_state_dict(state)
    for name, value in other.state_dict().items():
        assert value.device.type == "lazy" and torch.equal(value.cpu(), wanted[name]), name
    on_host = {{name: torch.zeros_like(value) for name, value in wanted.items()}}
    dcp.load(on_host, checkpoint_id=folder)
    assert all(torch.equal(on_host[name], wanted[name]) for name in wanted)
""", TORCH_BACKEND="fake")
