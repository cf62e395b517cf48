"""The device type "lazy": tensors that are opaque and look contiguous, whose work is deferred, and which otherwise
behave like the device's own tensors."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import models
from torch_backend import lazy

pytestmark = pytest.mark.usefixtures("lazy_type")


def test_a_tensor_is_made_printed_and_read():
    x = torch.randn(2, 2, device="lazy")
    assert str(x.device) == "lazy:0" and "device='lazy:0'" in repr(x)
    assert torch.tensor(3.5, device="lazy").item() == 3.5
    assert torch.equal((x + x).cpu(), x.cpu() * 2)


def test_work_is_deferred_until_a_step_is_marked():
    lazy.mark_step(wait=True)
    x = torch.ones(100, device="lazy")
    lazy.mark_step()
    before = lazy.metrics()
    y = (x + 1).relu() * 3
    assert lazy.metrics()["queued"] == before["queued"] and lazy.metrics()["pending"] >= 3
    lazy.mark_step()
    assert lazy.metrics()["pending"] == 0 and lazy.metrics()["queued"] == before["queued"] + 1, "one kernel for all"
    assert (y == 6).all()


def test_a_tensor_is_opaque_and_always_looks_contiguous():
    x = torch.arange(64.0, device="lazy").view(8, 8)
    assert x.t().is_contiguous() and x.t().stride() == (8, 1) and x.data_ptr() == 0
    assert x[:, 3].is_contiguous() and torch.equal(x.t()[1].cpu(), x.cpu().t()[1])
    with pytest.raises((RuntimeError, NotImplementedError), match="storage"):
        x.untyped_storage()


def test_in_place_writes_on_views_are_seen_in_their_base():
    base = torch.zeros(4, 4, device="lazy")
    base[1:3].add_(1)
    assert base.sum() == 8
    base.t()[0].fill_(5)
    assert torch.equal(base.cpu()[:, 0], torch.full((4,), 5.0))
    assert (base.view(16)[:4].cpu() == torch.tensor([5.0, 0, 0, 0])).all()


def test_a_moved_tensor_has_no_relation_to_where_it_came_from(device):
    x = torch.zeros(4, device="lazy")
    there, host = x.to(device), x.cpu()
    x.add_(1)
    assert there.device.type == device and (there == 0).all() and (host == 0).all()
    there.add_(7)
    back = there.to("lazy")
    there.zero_()
    assert (back == 7).all() and (x == 1).all()
    assert (torch.zeros(4, device="lazy").copy_(back) == 7).all() and (there.copy_(x) == 1).all()


@pytest.mark.parametrize("dtype, name", [
    (torch.float32, "torch.FloatTensor"), (torch.float64, "torch.DoubleTensor"), (torch.int64, "torch.LongTensor"), (torch.bool, "torch.BoolTensor"),
    (torch.bfloat16, "torch.BFloat16Tensor"),
])  # fmt: skip
def test_mixing_with_the_cpu_is_refused_with_operator_and_argument(dtype, name):
    with pytest.raises(RuntimeError, match=f"^Input tensor is not a lazy tensor: {name}\noperator aten::add.Tensor|^Input tensor is not a lazy tensor: {name}\noperator aten::add"):
        torch.ones(2, device="lazy") + torch.ones(2, dtype=dtype)


def test_a_layer_on_the_cpu_takes_no_lazy_input_nor_the_other_way_round():
    with pytest.raises(RuntimeError, match="^Input tensor is not a lazy tensor: torch.FloatTensor\n"):
        nn.Linear(10, 20)(torch.randn(10, device="lazy"))
    with pytest.raises(RuntimeError, match="^Input tensor is not a lazy tensor: torch.FloatTensor\n.*'mat1'|^Input tensor is not a lazy tensor: torch.FloatTensor\n"):
        nn.Linear(10, 20).to("lazy")(torch.randn(10))


@pytest.mark.parametrize("call, argument", [
    (lambda: torch.ones(3)[torch.tensor([0], device="lazy")], "self"), (lambda: torch.ones(3, device="lazy").index_put((torch.tensor([0]),), torch.ones(1)), "values"),
    (lambda: torch.ones(3, device="lazy").set_(torch.ones(2)), "source"),
], ids=["indexed", "values", "set_"])
def test_mixing_is_refused_where_the_same_operator_takes_something_else_from_the_cpu(call, argument):
    with pytest.raises(RuntimeError, match=f"^Input tensor is not a lazy tensor: torch.FloatTensor\noperator .*'{argument}'"):
        call()


def test_indices_and_lengths_may_be_on_the_cpu():
    def values(where):
        torch.manual_seed(1)
        net, x = nn.LSTM(3, 4, batch_first=True).to(where), torch.randn(2, 5, 3).to(where)
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
        y, _ = nn.utils.rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
        y.sum().backward()
        return y.detach().cpu(), net.weight_ih_l0.grad.cpu(), x[torch.tensor([1])].cpu(), x.tensor_split(torch.tensor([1]))[1].cpu()

    for ours, cpu in zip(values("lazy"), values("cpu")):
        torch.testing.assert_close(ours, cpu)


def test_numbers_keep_the_dtypes_of_their_promotion():
    x = torch.ones(3, dtype=torch.int32, device="lazy")
    assert (x * 2.5).dtype == torch.float32 and (x + 1).dtype == torch.int32
    assert (x * torch.tensor(2.5)).dtype == torch.float32


def test_two_lazy_devices_are_not_mixed(device, run_python):
    run_python("""
        import torch, torch_backend
        torch_backend.lazy.device.enable()
        a, b = torch.ones(2, device="lazy:0"), torch.ones(2, device="lazy:1")
        try:
            a + b
        except RuntimeError as error:
            assert "lazy:0" in str(error) and "lazy:1" in str(error), error
        else:
            raise SystemExit("it was accepted")
        assert (a.to("lazy:1") + b).sum() == 4 and str((a.to("lazy:1") + b).device) == "lazy:1"
        b.mul_(5)
        assert (a.copy_(b) == 5).all() and a.device.index == 0
        torch._foreach_copy_([b], [a + 1])
        assert (b == 6).all() and b.device.index == 1
        model, other = torch.nn.Linear(2, 2).to("lazy:0"), torch.nn.Linear(2, 2).to("lazy:1")
        other.load_state_dict(model.state_dict())
        assert torch.equal(other.weight.cpu(), model.weight.cpu()) and other.weight.device.index == 1
    """, TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2")


def test_saving_copying_and_pickling():
    x = torch.randn(3, device="lazy", requires_grad=True)
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file)["x"]
    assert loaded.device == x.device and loaded.requires_grad and torch.equal(loaded.cpu(), x.cpu())
    other = copy.copy(x.detach())
    other.add_(1)
    assert not torch.equal(other.cpu(), x.detach().cpu())
    assert copy.deepcopy(x).device == x.device


@pytest.mark.parametrize("name", ["digits", "resnet", "lstm", "transformer", "vae"])
def test_networks_train_with_the_losses_of_the_device(device, name):
    def train(where):
        torch.manual_seed(3)
        model = models.MODELS[name]().to(where)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for batch in models.batches(name, 5):
            batch = [part.to(where) for part in batch]
            optimizer.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            optimizer.step()
            lazy.mark_step()
            losses.append(loss.item())
        return losses

    assert train("lazy") == pytest.approx(train(device), rel=1e-5)


def test_another_backend_of_the_type_is_refused_with_the_cause(run_python):
    run_python("""
        import torch, torch._lazy.ts_backend
        torch._lazy.ts_backend.init()
        import torch_backend
        try:
            torch_backend.lazy.device.enable()
        except RuntimeError as error:
            assert "another backend" in str(error) and "ts_backend" in str(error), error
        else:
            raise SystemExit("it was accepted")
    """, TORCH_BACKEND="fake")


def test_another_backend_that_comes_later_is_refused_before_it_does_harm(run_python):
    run_python("""
        import torch, torch._lazy.ts_backend, torch_backend
        torch_backend.lazy.device.enable()
        try:
            torch._lazy.ts_backend.init()
        except RuntimeError as error:
            assert "one backend" in str(error) and "another process" in str(error), error
        else:
            raise SystemExit("it was accepted")
        assert (torch.ones(2, device="lazy") + 1).sum() == 4
    """, TORCH_BACKEND="fake")


def test_without_a_plugin_the_error_names_the_missing_backend_and_the_cure(run_python):
    run_python("""
        import torch, torch_backend
        try:
            torch_backend.lazy.device.enable()
        except RuntimeError as error:
            assert str(error).startswith("Lazy tensor backend not registered.") and "TORCH_BACKEND" in str(error), error
        else:
            raise SystemExit("it was accepted")
    """, TORCH_BACKEND="")


NO_TENSOR = "cannot be a tensor of device type 'lazy'; compute it on 'fake"


@pytest.mark.parametrize("make, message", [
    (lambda x: x.to_sparse(), NO_TENSOR), (lambda x: x.to_sparse_csr(), NO_TENSOR), (lambda x: torch.eye(3).to_sparse().to("lazy"), NO_TENSOR),
    (lambda x: torch.sparse_coo_tensor(torch.zeros(1, 2, dtype=torch.int64), torch.ones(2), (3,), device="lazy"), NO_TENSOR),
    (lambda x: torch.sparse_csr_tensor([0, 1], [0], [1.0], device="lazy"), "'lazy:0' device"), (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "quantized"),
    (lambda x: torch.nested.nested_tensor([torch.ones(2)], device="lazy"), "LazyTensorImpl"),
], ids=["coo", "csr", "moved", "coo made", "csr made", "quantized", "nested"])
@pytest.mark.filterwarnings("ignore")
def test_tensors_of_other_layouts_are_refused_with_a_message(device, make, message):
    with pytest.raises(NotImplementedError, match=message.replace("fake", device)) as refused:
        make(torch.eye(3, device="lazy"))
    assert len(str(refused.value).strip().splitlines()[0]) < 250


def test_fused_optimizers_are_refused_by_torch_and_the_others_step():
    p = torch.nn.Parameter(torch.ones(3, device="lazy"))
    p.grad = torch.ones_like(p)
    for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
        with pytest.raises(RuntimeError, match="`fused=True` requires .* lazy"):
            make([p], lr=0.5, fused=True).step()
    torch.optim.SGD([p], lr=0.5).step()
    assert p.tolist() == [0.5] * 3


def test_the_type_has_a_device_module():
    module = torch.get_device_module("lazy")
    assert module is torch.lazy and module.current_device() == 0 and module.device_count() >= 1 and module.is_available()
    module.synchronize("lazy:0")
    state = module.get_rng_state("lazy")
    x = torch.rand(5, device="lazy")
    module.set_rng_state(state, torch.device("lazy:0"))
    assert torch.equal(torch.rand(5, device="lazy").cpu(), x.cpu())
    with module.device("lazy:0"):
        assert torch.ones(1, device="lazy").device.index == 0
    with pytest.raises(AttributeError, match="nothing_like_this"):
        module.nothing_like_this


def test_unsupported_tensors_raise_an_error():
    with pytest.raises(NotImplementedError, match="lazy"):
        torch.eye(3, device="lazy").to_sparse()
    with pytest.raises(NotImplementedError, match="strides"):
        torch.arange(6.0, device="lazy").view(2, 3).t().as_strided((2,), (1,))


def test_gradients_flow_through_views_and_in_place_writes():
    x = torch.arange(6.0).view(2, 3)
    results = []
    for where in ("cpu", "lazy"):
        leaf = x.to(where).detach().requires_grad_()
        y = leaf * 2
        y[0].mul_(3)
        (y.t()[1] * y.sum()).sum().backward()
        results.append(leaf.grad.cpu())
    torch.testing.assert_close(*results)
    assert F.relu(torch.randn(3, device="lazy"), inplace=True).min() >= 0


def test_operators_of_few_tensors_produce_the_cpus_numbers_for_all_kinds_of_operands(device):
    """Operators that go directly from wrappers to kernels, and operands that prevent it: other orders, CPU scalars,
    modes, empty tensors."""
    operators = [torch.sigmoid, torch.mul, torch.rsub, lambda a, b: torch.add(a, b, alpha=2), lambda a, b: torch.addcmul(a, a, b, value=0.5),
                 lambda a, b: torch.addmm(a, a, b, beta=2, alpha=3), lambda a, b: torch.where(a > 0, a, b), lambda a, b: torch.sub(b, a)]  # fmt: skip
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    pairs = [(a, b), (a.t(), b), (a[:, ::2].t()[:, ::2], b[:2, :2]), (a[:0, :0], b[:0, :0])]
    for operator in operators:
        takes = 1 if operator is torch.sigmoid else 2
        for pair in pairs:
            expected = operator(*pair[:takes])
            # Includes views of wrappers, so that the wrapped tensor has another layout.
            lazily = [one._base.to("lazy").as_strided(one.size(), one.stride(), one.storage_offset()) if one._base is not None else one.to("lazy")
                      for one in pair]  # fmt: skip
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    torch.testing.assert_close(operator(*lazily[:takes]).cpu(), expected, msg=str(operator))
    x = a.to("lazy")
    torch.testing.assert_close(torch.add(x, torch.tensor(2.0), alpha=3).cpu(), a + 6)
    torch.testing.assert_close(torch.mul(torch.tensor(2.0), x).cpu(), a * 2)
    assert torch.mul(x, torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
    with torch.autocast("lazy"):
        assert torch.mm(x, x).dtype == torch.bfloat16 and (x * x).dtype == torch.float32
    z = torch.randn(3, dtype=torch.complex64)
    torch.testing.assert_close((z.to("lazy").conj() * z.to("lazy")).cpu(), z.conj() * z)
    with torch.profiler.profile() as profile:
        x + x
    assert [event.name for event in profile.events()].count("aten::add") >= 1
    with pytest.raises(RuntimeError, match="not a lazy tensor"):
        torch.add(x, b, alpha=2)
    with pytest.raises(RuntimeError, match="size of tensor"):
        torch.mul(x, x[:3])
    assert torch.equal((x + x).cpu(), a + a), "later work goes on"
