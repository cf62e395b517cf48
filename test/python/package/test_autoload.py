"""Activation of the package: by the environment and by use(), in both import orders. It must never break PyTorch."""

import pytest
import torch

import torch_backend

pytestmark = pytest.mark.fresh_interpreter(reason="the import of torch is what is tested")


def test_the_environment_activates_by_import_torch_alone(run_python):
    run_python("import torch; assert torch.ones(3, device='fake').sum().item() == 3", TORCH_BACKEND="fake")


@pytest.mark.parametrize("autoload", [0, 1])
@pytest.mark.parametrize("order", ["import torch, torch_backend", "import torch_backend, torch", "import torch_backend; import torch"])
def test_both_import_orders(run_python, order, autoload):
    run_python(
        f"{order}\nassert torch_backend.is_active() and torch_backend.device_name() == 'fake'\ntorch.ones(3, device='fake')",
        TORCH_BACKEND="fake",
        TORCH_DEVICE_BACKEND_AUTOLOAD=autoload,
    )


def test_use_activates_once(run_python):
    run_python(
        """
        import torch, torch_backend
        assert not torch_backend.is_active()
        torch_backend.use("fake")
        torch_backend.use("fake")
        assert torch_backend.is_active() and torch.fake.device_count() == 1
        assert [plugin.name for plugin in torch_backend.plugins()] == ["fake"]
        try:
            torch_backend.use("other")
        except RuntimeError as error:
            assert "fake" in str(error) and "other" in str(error)
        else:
            raise SystemExit("a second set of plugins")
        """
    )


def test_nothing_is_registered_without_a_request(run_python):
    run_python(
        """
        import sys, torch, torch_backend
        assert not torch_backend.is_active() and torch_backend.errors() == []
        assert "torch_backend._C" not in sys.modules
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        assert not torch._C._dispatch_has_backend_fallback("PrivateUse1")
        with open("/proc/self/maps") as maps:
            assert "libtorch_backend.so" not in maps.read()
        try:
            torch_backend.device_name()
        except RuntimeError as error:
            assert "TORCH_BACKEND=fake" in str(error) and "use('fake')" in str(error)
        else:
            raise SystemExit("a device out of nowhere")
        """
    )


@pytest.mark.parametrize("arguments", [(), ("-W", "error")])
def test_a_failing_request_never_breaks_import_torch(run_python, arguments):
    done = run_python(
        """
        import torch
        assert torch.ones(3).sum().item() == 3
        import torch_backend
        assert "nosuch" in torch_backend.errors()[0]
        assert not torch.nosuch.is_available() and torch.nosuch.device_count() == 0
        for use in (lambda: torch.nosuch.synchronize(), torch_backend.device_name):
            try:
                use()
            except RuntimeError as error:
                assert "nosuch" in str(error)
            else:
                raise SystemExit("silence")
        torch_backend.use("fake")  # the request in the program still works
        assert torch.ones(3, device="fake").sum().item() == 3 and not hasattr(torch, "nosuch")
        """,
        TORCH_BACKEND="nosuch",
        arguments=arguments,
    )
    assert done.stderr.count("TORCH_BACKEND=nosuch") == 1  # reported once


def test_the_device_type_can_be_named(run_python):
    run_python(
        """
        import torch, torch_backend
        assert torch_backend.device_name() == "toy" and torch.toy.is_available()
        assert torch.ones(2, device="toy:0").device.type == "toy"
        """,
        TORCH_BACKEND="fake",
        TORCH_BACKEND_NAME="toy",
    )


def test_bad_names_are_refused(run_python):
    run_python(
        """
        import os, torch, torch_backend
        for name in ("cuda2", "cpu", "mps", "Toy", "a-b", "nn", "7up"):
            os.environ["TORCH_BACKEND_NAME"] = name
            try:
                torch_backend.use("fake")
            except RuntimeError as error:
                assert name in str(error) and "TORCH_BACKEND_NAME" in str(error), error
            else:
                raise SystemExit(f"{name} was accepted")
            assert torch._C._get_privateuse1_backend_name() == "privateuseone" and torch.ones(2).sum() == 2
        """
    )


def test_another_backend_on_privateuse1_is_noticed(run_python):
    run_python(
        """
        import torch, torch_backend
        torch.utils.rename_privateuse1_backend("elsewhere")
        try:
            torch_backend.use("fake")
        except RuntimeError as error:
            assert "elsewhere" in str(error) and "PrivateUse1" in str(error)
        else:
            raise SystemExit("two backends")
        """
    )


def test_our_own_extension_is_no_other_backend(run_python):
    run_python(
        """
        import torch, torch_backend
        import torch_backend._C
        torch_backend.use("fake")
        assert torch.ones(2, device="fake").sum() == 2
        """
    )


def test_another_torch_is_noticed(run_python):
    run_python(
        """
        import torch, torch_backend
        built = ".".join(torch.__version__.split(".")[:2])
        torch.__version__ = "2.12.1+cpu"
        try:
            torch_backend.use("fake")
        except RuntimeError as error:
            assert str(error).startswith("torch 2.12.1+cpu is installed, and this torch_backend is built for torch 2."), error
            assert built in str(error) and "(torch<2.16,>=2.13)" in str(error), error
        else:
            raise SystemExit("loaded an extension of another torch")
        assert torch._C._get_privateuse1_backend_name() == "privateuseone" and torch.ones(2).sum() == 2
        """
    )


def test_the_entry_point_is_declared():
    from importlib.metadata import distribution

    (point,) = [point for point in distribution("torch_backend").entry_points if point.group == "torch.backends"]
    assert point.load() is torch_backend._autoload


def test_the_hal_does_not_depend_on_torch():
    import subprocess
    from pathlib import Path

    library = Path(torch_backend.__file__).parent / "lib" / "libtorch_backend_hal.so.0"
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "torch" not in "".join(line for line in needed.splitlines() if "NEEDED" in line)
    assert "c10" not in needed and "stdc++" not in needed


def test_no_library_needs_memory_that_a_running_process_has_little_of():
    """Thread-local storage of a library with STATIC_TLS is in a reserve of the process, of a few hundred bytes that all
    libraries share."""
    import subprocess
    from pathlib import Path

    libraries = [path for path in Path(torch_backend.__file__).parent.rglob("*.so*") if path.read_bytes()[:4] == b"\x7fELF"]
    assert {"libtorch_backend_hal.so.0", "libtorch_backend.so", "libhal_fake.so"} <= {path.name for path in libraries}
    for library in libraries:
        told = subprocess.run(["readelf", "-dlW", library], capture_output=True, text=True, check=True).stdout
        block = next((int(line.split()[5], 16) for line in told.splitlines() if line.split()[:1] == ["TLS"]), 0)
        assert "STATIC_TLS" not in told or block <= 64, f"{library}: {block} bytes"


def test_info_lists_the_plugins_functions(run_python):
    import json

    done = run_python("import sys, torch_backend.cli as m; sys.exit(m.main(['info', '--json']))", TORCH_BACKEND="fake")
    info = json.loads(done.stdout)
    assert info["active"] and info["torch"] == torch.__version__
    (plugin,) = info["plugins"]
    assert plugin["name"] == "fake" and plugin["provided"] == len(plugin["own"])
    assert len(plugin["own"]) + len(plugin["default"]) == plugin["slots"]
    assert {"info", "device_count", "memory_alloc", "memory_free", "memory_copy"} <= set(plugin["own"])
    assert info["devices"][0]["device"] == "fake:0" and info["devices"][0]["total_memory"] > 0
