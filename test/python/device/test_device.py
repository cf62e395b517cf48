"""Counting, choosing and describing devices, by torch.fake and torch.accelerator."""

import platform

import pytest
import torch

import torch_backend


def test_torch_knows_the_module_by_the_devices_name(module, device):
    assert getattr(torch, device) is module
    assert torch.device(f"{device}:1").type == device
    assert torch.accelerator.current_accelerator().type == device
    assert torch.accelerator.is_available() and module.is_available()
    assert torch._C._get_privateuse1_backend_name() == device


def test_both_ways_of_counting_agree(module):
    assert module.device_count() == torch.accelerator.device_count() == 2


@pytest.mark.parametrize("form", [1, "{}:1", "device"])
def test_set_device_takes_an_index_a_string_or_a_device(module, device, form):
    argument = torch.device(device, 1) if form == "device" else form.format(device) if isinstance(form, str) else form
    try:
        module.set_device(argument)
        assert module.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device=device).device.index == 1
    finally:
        module.set_device(0)


def test_set_device_without_an_index_changes_nothing(module, device):
    module.set_device(torch.device(device))
    assert module.current_device() == 0


def test_device_context_restores_the_device_also_after_an_exception(module):
    with pytest.raises(KeyError):
        with module.device(1):
            assert module.current_device() == 1
            with module.device(None):
                assert module.current_device() == 1
            raise KeyError
    assert module.current_device() == 0


def test_device_of_follows_a_tensor_and_ignores_other_devices(module, device):
    with module.device_of(torch.empty(1, device=f"{device}:1")):
        assert module.current_device() == 1
    with module.device_of(torch.empty(1)):
        assert module.current_device() == 0


def test_accelerator_device_index_context(module):
    with torch.accelerator.device_index(1):
        assert module.current_device() == 1


def test_torch_device_context_makes_tensors_there(device):
    with torch.device(f"{device}:1"):
        assert torch.zeros(2).device == torch.device(device, 1)


def test_each_thread_has_its_own_current_device(module):
    import threading

    seen = []

    def body():
        seen.append(module.current_device())
        module.set_device(1)
        seen.append(module.current_device())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [0, 1] and module.current_device() == 0


@pytest.mark.parametrize("index", [2, 99])
@pytest.mark.parametrize("use", ["set", "context", "tensor", "properties", "synchronize", "stream"])
def test_an_index_out_of_range_raises_naming_index_and_count(module, device, index, use):
    calls = {
        "set": lambda: module.set_device(index),
        "context": lambda: module.device(index).__enter__(),
        "tensor": lambda: torch.empty(1, device=f"{device}:{index}"),
        "properties": lambda: module.get_device_properties(index),
        "synchronize": lambda: module.synchronize(index),
        "stream": lambda: torch.Stream(device=f"{device}:{index}"),
    }
    with pytest.raises(RuntimeError) as caught:
        calls[use]()
    assert str(index) in str(caught.value) and "2" in str(caught.value)
    assert module.current_device() == 0
    assert torch.ones(2, device=device).sum().item() == 2  # the process continues


def test_another_device_type_is_refused(module):
    with pytest.raises(ValueError, match="cpu"):
        module.set_device("cpu")
    with pytest.raises(TypeError, match="1.5"):
        module.set_device(1.5)


def test_properties_describe_the_device(module, device):
    properties = module.get_device_properties(f"{device}:1")
    assert properties.name == module.get_device_name(1) != ""
    assert properties.total_memory > 0 and properties.multi_processor_count > 0
    assert properties.driver_version == "0.1.0" and properties.architecture == properties.gcnArchName == platform.machine()
    assert (properties.firmware_version, properties.major, properties.partition_index, properties.async_engine_count) == ("", 0, -1, 0)


def test_an_architecture_of_nvidias_is_a_capability(monkeypatch):
    facts = torch_backend._C.device_properties(0)
    for name, capability in (("sm_90", (9, 0)), ("sm_120", (12, 0)), ("sm_87", (8, 7)), ("gfx90a", (0, 0)), ("", (0, 0))):
        monkeypatch.setattr(torch_backend._C, "device_properties", lambda index, name=name: {**facts, "architecture": name})
        properties = torch_backend.backend.get_device_properties(0)
        assert (properties.major, properties.minor) == capability and properties.gcnArchName == name


def test_capability_names_real_dtypes_only(module):
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert module.get_device_capability()["supported_dtypes"] == supported
    assert {torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64} <= supported
    assert torch.quint8 not in supported and torch.bits8 not in supported


def test_generated_methods(device):
    tensor = getattr(torch.ones(2), device)()
    assert tensor.device.type == device and getattr(tensor, f"is_{device}")
    assert not getattr(torch.ones(2), f"is_{device}")
    module = getattr(torch.nn.Linear(2, 2), device)(1)
    assert all(parameter.device == torch.device(device, 1) for parameter in module.parameters())
    assert getattr(torch.ones(2).untyped_storage(), device)().device.type == device


def test_generated_methods_take_every_form_of_device_and_the_cpus_options(device):
    to = device  # the methods are named after the device type
    tensor = torch.arange(24.0).reshape(1, 2, 3, 4)
    for form in (1, f"{device}:1", torch.device(device, 1)):
        assert getattr(tensor, to)(form).device == torch.device(device, 1)
        assert getattr(tensor.untyped_storage(), to)(form).device == torch.device(device, 1)
    there = getattr(tensor, to)(non_blocking=True, memory_format=torch.channels_last)
    assert there.is_contiguous(memory_format=torch.channels_last) and torch.equal(there.cpu(), tensor)
    assert getattr(there, to)() is there
    with pytest.raises((RuntimeError, ValueError), match=f"must be {device} device"):
        getattr(tensor, to)("cpu")


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_generated_methods_of_sequences_and_typed_storages(device):
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 4), [3, 2])
    there = getattr(packed, device)()
    assert getattr(there, f"is_{device}") and there.data.device.type == device and not getattr(packed, f"is_{device}")
    assert torch.equal(there.cpu().data, packed.data)
    storage = getattr(torch.tensor([1.0, 2.0]).storage(), device)()
    assert getattr(storage, f"is_{device}") and storage.tolist() == [1, 2] and storage.cpu().device.type == "cpu"


def test_types_by_name(device):
    there = torch.ones(2).type(f"torch.{device}.DoubleTensor")
    assert there.device.type == device and there.dtype is torch.float64
    assert there.type() == f"torch.{device}.DoubleTensor" and there.type("torch.FloatTensor").device.type == "cpu"


def test_module_to_keeps_the_identity_of_parameters(device):
    network = torch.nn.Linear(2, 2)
    before = list(network.parameters())
    network.to(device)
    assert all(old is new for old, new in zip(before, network.parameters()))
    assert all(parameter.device.type == device for parameter in before)


def test_counting_and_importing_initialize_no_device(run_python):
    run_python(
        """
        import torch
        assert torch.accelerator.is_available() and torch.accelerator.device_count() == 3
        assert torch.fake.is_available() and torch.fake.device_count() == 3
        torch.manual_seed(1), torch.fake.get_rng_state(2), torch.Generator(device="fake:1")
        assert not torch.fake.is_initialized() and not torch.fake._initialized
        torch.ones(1, device="fake:1")
        assert torch.fake.is_initialized() and torch.fake._initialized
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES=3,
    )


def test_a_forked_child_may_use_a_device_that_the_parent_only_counted(run_python):
    run_python(
        """
        import os, torch
        assert torch.fake.device_count() == 1
        child = os.fork()
        if child == 0:
            assert not torch.fake._is_in_bad_fork()
            os._exit(0 if torch.ones(3, device="fake").sum().item() == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0
        """,
        TORCH_BACKEND="fake",
    )


def test_a_forked_child_of_a_user_of_the_device_gets_pytorchs_sentence(run_python):
    done = run_python(
        """
        import os, sys, torch
        tensor = torch.ones(3, device="fake")
        child = os.fork()
        if child == 0:
            assert torch.fake._is_in_bad_fork() and not torch.fake.is_initialized()
            torch.manual_seed(0)  # neither fails nor warns
            code = 0
            for use in (lambda: torch.ones(3, device="fake"), lambda: tensor + 1, lambda: tensor.cpu()):
                try:
                    use()
                    code = 1
                except RuntimeError as error:
                    print(error, flush=True)
            sys.stdout.flush()
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert (tensor + 1).sum().item() == 6
        """,
        TORCH_BACKEND="fake",
    )
    sentence = "Cannot re-initialize FAKE in forked subprocess. To use FAKE with multiprocessing, you must use the 'spawn' start method"
    assert done.stdout.count(sentence) == 3


def test_peer_access_is_queried_from_the_plugin(module, device):
    """For a device and itself, torch.cuda returns False."""
    assert module.can_device_access_peer(0, 1) is True and module.can_device_access_peer(0, 0) is False
    assert module.can_device_access_peer(None, f"{device}:1") is True
    for wrong in ((0, 9), (9, 0)):
        with pytest.raises((AssertionError, RuntimeError)):
            module.can_device_access_peer(*wrong)
