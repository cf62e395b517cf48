"""set_sync_debug_mode: operators that make the host wait for a device warn, or raise before the wait; explicit waits do
not."""

import warnings

import pytest
import torch


@pytest.fixture
def mode(module):
    yield module.set_sync_debug_mode
    module.set_sync_debug_mode("default")


def waits(device):
    """Calls that CUDA also reports, and fallbacks, which CUDA does not have."""
    x = torch.arange(6.0, device=device).reshape(2, 3) + 1
    pinned, pageable = torch.ones(1 << 16).pin_memory(), torch.ones(1 << 16)
    return {
        "item": lambda: x[0, 0].item(),
        "tolist": lambda: x.tolist(),
        "cpu": lambda: x.cpu(),
        "to_cpu_non_blocking_pageable": lambda: pageable[:6].view(2, 3).copy_(x, non_blocking=True),
        "to_device_pageable": lambda: pageable.to(device),
        "to_device_blocking_pinned": lambda: pinned.to(device),
        "nonzero": lambda: x.nonzero(),
        "bool": lambda: bool(x.sum() > 0),
        "masked_select": lambda: x[x > 2],
        "fallback": lambda: torch.linalg.eigvals(x[:, :2]),
        "print": lambda: str(x),
    }


def goes_on(device, module):
    x = torch.ones(4, 4, device=device)
    pinned = torch.ones(4, 4).pin_memory() if torch.ones(1).pin_memory().is_pinned() else None
    found = {
        "compute": lambda: (x @ x).relu().sum(),
        "upload_small": lambda: torch.ones(3).to(device),
        "copy_on_device": lambda: x.clone(),
        "synchronize": lambda: module.synchronize(),
        "stream": lambda: module.current_stream().synchronize(),
        "event": lambda: module.current_stream().record_event().synchronize(),
        "random": lambda: torch.randn(3, device=device),
    }
    if pinned is not None:
        found["upload_pinned"] = lambda: pinned.to(device, non_blocking=True)
        found["download_pinned"] = lambda: pinned.copy_(x, non_blocking=True)
    return found


WAITS = ["item", "tolist", "cpu", "to_cpu_non_blocking_pageable", "to_device_pageable", "to_device_blocking_pinned", "nonzero", "bool", "masked_select",
         "fallback", "print"]  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_an_error_that_names_the_operation(device, mode, name):
    call = waits(device)[name]
    mode("error")
    with pytest.raises(RuntimeError, match=f"called a synchronizing operation on '{device}:0'.*waits for the device"):
        call()
    mode("default")
    call()


@pytest.mark.parametrize("name", ["item", "cpu", "to_device_pageable", "fallback"])
def test_a_wait_is_a_warning_and_done(device, mode, name):
    call = waits(device)[name]
    expected = call()
    mode("warn")
    with pytest.warns(UserWarning, match="called a synchronizing operation"):
        found = call()
    assert torch.equal(torch.as_tensor(found).cpu(), torch.as_tensor(expected).cpu())


@pytest.mark.parametrize("name", ["compute", "upload_small", "copy_on_device", "synchronize", "stream", "event", "random", "upload_pinned", "download_pinned"])
def test_what_does_not_wait_or_waits_on_purpose_is_not_reported(device, module, mode, name):
    call = goes_on(device, module).get(name)
    if call is None:
        pytest.skip("the plugin locks no pages")
    mode("error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()
    mode("default")
    module.synchronize()


def test_modes_have_names_and_numbers(module, mode):
    for name, number in (("warn", 1), ("error", 2), ("default", 0)):
        mode(name)
        assert module.get_sync_debug_mode() == number
        mode(0)
        mode(number)
        assert module.get_sync_debug_mode() == number
    for wrong in ("warning", 3, -1, True, None, 1.0):
        with pytest.raises(ValueError, match="debug_mode"):
            mode(wrong)
        assert module.get_sync_debug_mode() == 0
