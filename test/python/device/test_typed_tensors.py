"""Typed tensors and storages such as torch.fake.FloatTensor, compared with PyTorch's own for the CPU."""

import copy
import pickle

import pytest
import torch

TYPES = ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]


def cpu_type(kind):
    return getattr(torch, f"{kind}Tensor")


@pytest.fixture
def default_types():
    """torch.set_default_tensor_type applies to the process."""
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_tensor_type(torch.FloatTensor)
    torch.set_default_dtype(dtype)
    torch.set_default_device(None)


@pytest.mark.parametrize("kind", TYPES)
def test_construction_is_that_of_the_cpus_type(device, module, kind):
    ours, theirs = getattr(module, f"{kind}Tensor"), cpu_type(kind)
    for arguments in [([1, 0, 1],), ((1, 0),), ([[1], [0]],), ([],)]:
        made, expected = ours(*arguments), theirs(*arguments)
        assert made.dtype == expected.dtype and made.device.type == device and torch.equal(made.cpu(), expected)
    for sizes in [(), (0,), (3,), (2, 3), (torch.Size([4, 1]),)]:
        assert ours(*sizes).shape == theirs(*sizes).shape and ours(*sizes).device.type == device


@pytest.mark.parametrize("kind", TYPES)
def test_isinstance_and_type_distinguish_the_types(device, module, kind):
    ours = getattr(module, f"{kind}Tensor")
    made = ours([1, 0])
    assert isinstance(made, ours) and isinstance(made, torch.Tensor) and not isinstance(made, cpu_type(kind))
    assert not isinstance(made.cpu(), ours) and isinstance(made.cpu(), cpu_type(kind))
    assert made.type() == ours.__name__ == f"torch.{device}.{kind}Tensor" and repr(ours) == f"<class '{ours.__name__}'>"
    assert [other for other in TYPES if isinstance(made, getattr(module, f"{other}Tensor"))] == [kind]
    assert isinstance(made.cpu().type(ours), ours) and isinstance(made.type(module.DoubleTensor), module.DoubleTensor)
    assert isinstance(made.cpu().type(f"torch.{device}.{kind}Tensor"), ours)
    assert ours.dtype == cpu_type(kind).dtype and ours.layout == torch.strided and not ours.is_sparse


def test_a_tensor_of_the_type_is_another_reference_and_others_are_refused(module):
    x = module.FloatTensor([1, 2])
    again = module.FloatTensor(x)
    again.zero_()
    assert x.tolist() == [0, 0]
    with pytest.raises(TypeError, match=r"expected torch\..*FloatTensor \(got torch.FloatTensor\)"):
        module.FloatTensor(torch.ones(2))
    with pytest.raises(RuntimeError, match="expects device type"):
        module.FloatTensor(2, device="cpu")


def test_a_second_device(device, module):
    assert module.FloatTensor([1, 2], device=torch.device(device, 1)).device == torch.device(device, 1)
    with module.device(1):
        assert module.FloatTensor([1, 2]).device.index == module.LongTensor(3).device.index == 1


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages(device, module):
    storage = module.FloatStorage([1, 2, 3])
    assert isinstance(storage, module.FloatStorage) and isinstance(storage, torch.TypedStorage) and not isinstance(storage, module.HalfStorage)
    assert storage.device.type == device and storage.tolist() == [1, 2, 3] and len(module.ComplexFloatStorage(5)) == 5
    x = module.FloatTensor(storage)
    x.mul_(2)
    assert storage.tolist() == [2, 4, 6] and isinstance(x.storage(), module.FloatStorage)
    assert not isinstance(torch.FloatStorage([1.0]), module.FloatStorage)


def test_sparse_types(device, module):
    indices, values = torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0])
    made = module.sparse.FloatTensor(indices.to(device), values.to(device), torch.Size([4]))
    assert isinstance(made, module.sparse.FloatTensor) and not isinstance(made, module.FloatTensor) and made.is_sparse
    assert torch.equal(made.to_dense().cpu(), torch.sparse.FloatTensor(indices, values, torch.Size([4])).to_dense())
    assert not isinstance(made, module.sparse.DoubleTensor) and module.sparse.LongTensor().dtype == torch.int64


def test_types_are_pickled_by_name(module):
    assert pickle.loads(pickle.dumps(module.HalfTensor)) is module.HalfTensor and copy.deepcopy(module.HalfTensor) is module.HalfTensor


@pytest.mark.parametrize("how", ["class", "name"])
def test_the_default_tensor_type(device, module, default_types, how):
    kind = module.DoubleTensor
    torch.set_default_tensor_type(kind if how == "class" else kind.__name__)
    for made in (torch.zeros(2), torch.rand(2), torch.tensor([1.5]), torch.arange(2.0), torch.eye(2)):
        assert isinstance(made, kind)
    assert torch.tensor([1]).type() == f"torch.{device}.LongTensor"
    linear = torch.nn.Linear(2, 2)
    assert linear(torch.ones(1, 2)).type() == kind.__name__
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(2).type() == torch.tensor([1.5]).type() == "torch.FloatTensor"


def test_a_default_type_that_is_not_of_floating_point_is_refused_as_by_torch(module, default_types):
    for kind in (module.IntTensor, module.FloatStorage, module.sparse.FloatTensor):
        with pytest.raises(TypeError):
            torch.set_default_tensor_type(kind)
    with pytest.raises(TypeError, match="only floating-point types") as ours:
        torch.set_default_tensor_type(module.LongTensor)
    with pytest.raises(TypeError, match="only floating-point types") as theirs:
        torch.set_default_tensor_type(torch.LongTensor)
    assert str(ours.value) == str(theirs.value) and torch.zeros(1).is_cpu


def test_a_default_device_of_the_user_stays_when_the_default_type_is_the_cpus(device, default_types):
    torch.set_default_device(device)
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(1).device.type == device
