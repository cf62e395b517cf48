"""All of torch.accelerator except graphs: each function behaves on the device as documented."""

import pytest
import torch


def test_every_public_name_is_tested_here():
    tested = {
        "Graph",  # needs graphs in the HAL
        "current_accelerator", "current_device_idx", "current_device_index", "get_device_capability", "current_stream", "device_count",
        "device_index", "empty_cache", "empty_host_cache", "get_memory_info", "is_available", "max_memory_allocated",
        "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats", "reset_accumulated_memory_stats",
        "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize",
    }  # fmt: skip
    assert set(torch.accelerator.__all__) == tested


def test_the_device_and_its_count(module, device):
    assert torch.accelerator.current_accelerator() == torch.accelerator.current_accelerator(check_available=True) == torch.device(device)
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == module.device_count() == 2


def test_the_current_device(module, device):
    assert torch.accelerator.current_device_index() == 0
    for form in (1, f"{device}:1", torch.device(device, 1)):
        torch.accelerator.set_device_index(form)
        assert torch.accelerator.current_device_index() == module.current_device() == 1
        torch.accelerator.set_device_index(-1)  # documented: a negative index changes nothing
        assert torch.accelerator.current_device_index() == 1
        torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(1):
        with torch.accelerator.device_index(None):
            assert module.current_device() == 1
    assert module.current_device() == 0


def test_the_deprecated_names_warn_and_work(module):
    with pytest.warns(FutureWarning):
        torch.accelerator.set_device_idx(1)
    try:
        with pytest.warns(FutureWarning):
            assert torch.accelerator.current_device_idx() == 1
    finally:
        module.set_device(0)


def test_capability_is_a_set_of_dtypes(device):
    for form in (None, 1, f"{device}:1", torch.device(device, 1)):
        assert torch.float32 in torch.accelerator.get_device_capability(form)["supported_dtypes"]


def test_streams(module, device):
    stream = torch.Stream(device=f"{device}:1")
    assert torch.accelerator.current_stream(1) == module.default_stream(1)
    torch.accelerator.set_stream(stream)
    try:
        assert torch.accelerator.current_device_index() == 1  # documented: set_stream also sets the device
        assert torch.accelerator.current_stream() == torch.accelerator.current_stream(f"{device}:1") == stream
    finally:
        torch.accelerator.set_stream(module.default_stream(1))
        torch.accelerator.set_device_index(0)


def test_synchronize(device):
    for form in (None, 1, f"{device}:0", torch.device(device, 1)):
        torch.accelerator.synchronize(form)


def test_memory(module, device):
    before = torch.accelerator.memory_allocated(1)
    torch.accelerator.reset_peak_memory_stats(1)
    torch.accelerator.reset_accumulated_memory_stats(1)
    tensor = torch.empty(4 << 20, dtype=torch.uint8, device=f"{device}:1")
    assert torch.accelerator.memory_allocated(f"{device}:1") == module.memory_allocated(1) == before + (4 << 20)
    del tensor
    assert torch.accelerator.max_memory_allocated(1) == before + (4 << 20)
    assert torch.accelerator.memory_stats(1)["allocated_bytes.all.allocated"] == 4 << 20
    reserved = torch.accelerator.memory_reserved(1)
    assert torch.accelerator.max_memory_reserved(1) >= reserved >= 4 << 20
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved(1) < reserved
    free, total = torch.accelerator.get_memory_info(1)
    assert 0 < free <= total == module.mem_get_info(1)[1]


def test_the_host_cache(module):
    tensor = torch.empty(1 << 20, dtype=torch.uint8).pin_memory()
    held = module.host_memory_stats()["allocated_bytes.current"]
    del tensor
    assert module.host_memory_stats()["allocated_bytes.current"] == held
    torch.accelerator.empty_host_cache()
    assert module.host_memory_stats()["allocated_bytes.current"] < held


MEMORY = ("memory_stats", "memory_allocated", "get_memory_info", "reset_peak_memory_stats", "reset_accumulated_memory_stats")


@pytest.mark.parametrize("name, index", [*((name, index) for name in MEMORY for index in (2, 99, -3)), ("get_device_capability", -3),
                                         ("current_stream", 2), ("current_stream", -2), ("current_stream", -3), ("synchronize", 2),
                                         ("synchronize", -2), ("synchronize", -128), ("set_device_index", 2)])  # fmt: skip
def test_an_index_that_no_device_has_is_refused(device, name, index):
    torch.ones(1, device=device)
    with pytest.raises(RuntimeError, match="out of range|negative"):
        getattr(torch.accelerator, name)(index)


def test_minus_one_is_the_current_device(module):
    with module.device(1):
        stream = torch.Stream()
        with stream:
            assert torch.accelerator.current_stream(-1) == stream != torch.accelerator.current_stream(0)
        torch.accelerator.synchronize(-1)


@pytest.mark.parametrize("form", ["cpu", torch.device("meta")])
def test_a_device_of_another_type_is_refused(form):
    with pytest.raises(ValueError, match=str(form)):
        torch.accelerator.synchronize(form)
