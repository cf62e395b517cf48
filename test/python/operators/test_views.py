"""Views share memory with their base: a write through one is visible through the other, and no view copies."""

import pytest
import torch

VIEWS = {
    "slice": lambda x: x[1:3],
    "step": lambda x: x[::2, 1::3],
    "transpose": lambda x: x.t(),
    "reshape": lambda x: x.view(3, 8),
    "unflatten": lambda x: x.view(2, 2, 6),
    "select": lambda x: x[2],
    "diagonal": lambda x: x.diagonal(),
    "narrow": lambda x: x.narrow(1, 2, 3),
    "unfold": lambda x: x.unfold(0, 2, 2),
    "unfold dim 1": lambda x: x.unfold(1, 3, 2),
    "as_strided": lambda x: x.as_strided((2, 3), (6, 2), 1),
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(3, 1)[2],
    "unbind": lambda x: x.unbind(1)[4],
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0)[3],
    "permute": lambda x: x.view(2, 2, 6).permute(2, 0, 1),
    "movedim": lambda x: x.view(2, 2, 6).movedim(0, 2),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(12, 2)),
    "dtype": lambda x: x.view(torch.int32),
    "detach": lambda x: x.detach(),
    "reshape_alias": lambda x: torch.ops.aten._reshape_alias(x, (6, 4), (4, 1)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_has_the_geometry_and_the_values_of_the_cpus_view(device, view):
    base = torch.arange(24, dtype=torch.float32).view(4, 6)
    ours, theirs = view(base.to(device)), view(base)
    assert (ours.shape, ours.stride(), ours.storage_offset()) == (theirs.shape, theirs.stride(), theirs.storage_offset())
    assert ours.cpu().equal(theirs)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_writing_through_a_view_changes_its_base(device, view):
    base = torch.arange(1, 25, dtype=torch.float32).view(4, 6)
    ours = base.to(device)
    view(ours).zero_()
    expected = base.clone()
    view(expected).zero_()
    assert ours.cpu().equal(expected)
    assert view(ours).data_ptr() >= ours.data_ptr()


def test_view_as_real_shares_memory_with_the_complex_tensor(device):
    c = torch.tensor([1 + 2j, 3 - 4j], device=device)
    torch.view_as_real(c)[:, 1].zero_()
    assert c.cpu().equal(torch.tensor([1 + 0j, 3 + 0j]))


def test_views_are_native_and_never_counted_as_fallback(device):
    import torch_backend

    x = torch.arange(24, dtype=torch.float32, device=device).view(4, 6)
    torch_backend.fallback.reset()
    with torch_backend.fallback.strict():
        for name, view in VIEWS.items():
            view(x)
    assert torch_backend.fallback.report() == []


def test_fallback_operators_see_writes_through_views(device):
    x = torch.zeros(4, 4, device=device)
    y = x[1:3].t()
    torch.cumsum(torch.ones(4, 2, device=device), 0, out=y)
    expected = torch.zeros(4, 4)
    torch.cumsum(torch.ones(4, 2), 0, out=expected[1:3].t())
    assert x.cpu().equal(expected)


def test_wrong_views_are_refused_in_torchs_words(device):
    x = torch.zeros(4, 6, device=device)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        x.view(5, 5)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.t().view(24)
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        x.as_strided((100,), (1,))


def test_resize_grows_the_storage_and_keeps_the_elements(device):
    x = torch.arange(6, dtype=torch.float32, device=device)
    x.resize_(100)
    assert x.shape == (100,) and x.untyped_storage().nbytes() >= 400
    assert x[:6].cpu().equal(torch.arange(6, dtype=torch.float32))
    x.resize_(2, 2)
    assert x.cpu().equal(torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    x.resize_(0)
    assert x.numel() == 0


def test_resize_through_the_storage(device):
    x = torch.arange(4, dtype=torch.float32, device=device)
    x.untyped_storage().resize_(64)
    assert x.untyped_storage().nbytes() == 64
    assert x.cpu().equal(torch.arange(4, dtype=torch.float32))


def test_resize_with_a_memory_format(device):
    x = torch.empty(0, device=device)
    x.resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_the_forms_of_set(device):
    source = torch.arange(12, dtype=torch.float32, device=device)
    x = torch.empty(0, device=device)
    x.set_(source.untyped_storage().copy_(source.untyped_storage()) and source)
    assert x.data_ptr() == source.data_ptr() and x.cpu().equal(source.cpu())
    y = torch.empty(0, device=device)
    y.set_(source.storage(), 2, (2, 3), (3, 1))
    assert y.cpu().equal(torch.arange(2, 8, dtype=torch.float32).view(2, 3))
    z = torch.empty(0, device=device).set_(source.storage())
    assert z.shape == (12,) and z.data_ptr() == source.data_ptr()
    z.set_()
    assert z.shape == (0,) and source.cpu().equal(torch.arange(12, dtype=torch.float32))


def test_set_refuses_the_storage_of_another_device(device):
    x = torch.empty(0, device=device)
    with pytest.raises(RuntimeError, match="different device"):
        x.set_(torch.ones(3).storage(), 0, (3,), (1,))
    with pytest.raises(RuntimeError, match="invalid storage offset"):
        x.set_(torch.ones(3, device=device).storage(), -1, (3,), (1,))


def test_set_grows_a_storage_that_is_too_small(device):
    source = torch.arange(4, dtype=torch.float32, device=device)
    x = torch.empty(0, device=device)
    x.set_(source.storage(), 1, (10,), (1,))
    assert x.shape == (10,) and x[:3].cpu().equal(torch.tensor([1.0, 2.0, 3.0]))


def test_is_set_to_compares_memory(device):
    x = torch.ones(3, device=device)
    assert x.is_set_to(x.view(3)) and not x.is_set_to(x.clone())


def test_modules_keep_their_parameters_when_they_move(device):
    model = torch.nn.Linear(3, 2)
    parameter = model.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to(device)
    assert model.weight is parameter and parameter.device.type == device
    model(torch.ones(1, 3, device=device)).sum().backward()
    before = parameter.detach().clone()
    optimizer.step()
    assert not parameter.detach().equal(before)
    assert model.cpu().weight is parameter and parameter.device.type == "cpu"


def test_record_stream_keeps_memory_until_the_stream_is_done(device, module):
    stream = module.Stream()
    x = torch.ones(1024, device=device)
    with module.stream(stream):
        stream.wait_stream(module.default_stream())
        y = x * 2
        x.record_stream(stream)
    del x
    z = torch.zeros(1024, device=device)
    stream.synchronize()
    assert y.cpu().equal(torch.full((1024,), 2.0)) and z.cpu().equal(torch.zeros(1024))


# Of sparse and nested tensors: they return parts, which are tensors already.
PARTS = {"_values", "_indices", "_sparse_broadcast_to", "_nested_view_from_buffer", "_nested_get_values", "_nested_view_from_jagged"}
DEVICE_KEYS = ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def test_no_view_of_a_strided_tensor_reaches_the_fallback():
    """If the host cannot access the memory, the fallback would copy all of it to change sizes."""
    seen, known = 0, set(torch._C._dispatch_get_all_op_names())
    for schema in torch._C._jit_get_all_schemas():
        namespace, name = schema.name.split("::")
        qualified = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        if namespace != "aten" or name in PARTS or qualified not in known:
            continue
        aliases = [result.alias_info for result in schema.returns]
        is_view = bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
        operator = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default")
        if is_view or torch.Tag.inplace_view in operator.tags:
            assert any(torch._C._dispatch_has_kernel_for_dispatch_key(qualified, key) for key in DEVICE_KEYS), qualified
            seen += 1
    assert seen > 80
