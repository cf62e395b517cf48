"""Invalid input: one clear message, the exception that PyTorch's users expect, and the process continues."""

import pytest
import torch

import torch_backend


def alive(device):
    return torch.ones(4, device=device).sum().item() == 4


def test_an_unknown_plugin_is_named_with_the_places_searched(run_python):
    done = run_python(
        """
        import torch, torch_backend
        try:
            torch_backend.use("nosuch")
        except RuntimeError as error:
            print(error)
        torch_backend.use("fake")
        assert torch.ones(4, device="fake").sum().item() == 4
        """
    )
    assert "nosuch" in done.stdout and "plugins" in done.stdout


@pytest.mark.parametrize("content", [b"", b"not a library", b"\x7fELF" + bytes(64)])
def test_a_corrupt_plugin_is_refused_with_its_path(run_python, tmp_path, content):
    plugin = tmp_path / "libhal_broken.so"
    plugin.write_bytes(content)
    done = run_python(
        f"""
        import torch, torch_backend
        try:
            torch_backend.use({str(plugin)!r})
        except RuntimeError as error:
            print(error)
        else:
            raise SystemExit("opened")
        torch_backend.use("fake")
        assert torch.ones(4, device="fake").sum().item() == 4
        """
    )
    assert str(plugin) in done.stdout


@pytest.mark.parametrize("name", ["", " , ", 5, None])
def test_use_wants_a_name(name):
    with pytest.raises(ValueError, match="plugin"):
        torch_backend.use(name)


def test_numpy_of_a_device_tensor_is_torchs_type_error(device):
    with pytest.raises(TypeError, match=rf"can't convert {device}:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        torch.ones(2, device=device).numpy()
    assert torch.ones(2, device=device).numpy(force=True).tolist() == [1, 1]
    assert alive(device)


@pytest.mark.parametrize("other", ["cpu", "{}:1"])
@pytest.mark.parametrize("use", ["add", "mm", "cat", "out"])
def test_mixed_devices_are_refused_naming_both(device, other, use):
    other = other.format(device)
    ours, theirs = torch.ones(2, 2, device=f"{device}:0"), torch.ones(2, 2, device=other)
    calls = {
        "add": lambda: ours + theirs,
        "mm": lambda: ours @ theirs,
        "cat": lambda: torch.cat([ours, theirs]),
        "out": lambda: torch.add(ours, ours, out=theirs),
    }
    with pytest.raises(RuntimeError, match="(?i)device") as caught:
        calls[use]()
    assert device in str(caught.value)
    assert alive(device)


def test_strict_mode_refuses_fallbacks_and_names_the_operator(device):
    matrix = torch.eye(3, device=device)
    with torch_backend.fallback.strict():
        with pytest.raises(NotImplementedError, match="linalg"):
            torch.linalg.inv(matrix)
    before = {row.op: row.count for row in torch_backend.fallback.report()}
    assert torch.equal(torch.linalg.inv(matrix).cpu(), torch.eye(3))
    after = {row.op: row.count for row in torch_backend.fallback.report()}
    assert sum(after.values()) > sum(before.values())
    torch_backend.fallback.reset()
    assert torch_backend.fallback.report() == []


def test_operator_report_distinguishes_native_from_fallback(device):
    torch_backend.ops.reset()
    left, right = torch.ones(8, device=device), torch.ones(8, device=device)
    for _ in range(3):
        left + right
    rows = {row.op: row for row in torch_backend.ops.report()}
    assert rows["add.Tensor"].native == 3 and rows["add.Tensor"].fallback == 0


@pytest.mark.parametrize("device_string", ["fake:-1", "fake:300", "fake:x"])
def test_malformed_devices_raise(device, device_string):
    with pytest.raises(RuntimeError):
        torch.ones(1, device=device_string.replace("fake", device))
    assert alive(device)


def test_a_size_that_overflows_raises(device):
    with pytest.raises(RuntimeError):
        torch.empty(1 << 62, 1 << 2, device=device)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    assert alive(device)


def test_errors_of_the_device_arrive_in_other_threads_too(device):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(RuntimeError, match="99"):
            pool.submit(lambda: torch.empty(1, device=f"{device}:99")).result()
