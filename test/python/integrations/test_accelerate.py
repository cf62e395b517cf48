"""accelerate selects the device, trains on it as on the CPU, in each precision, and resumes exactly."""

import os
import socket
import subprocess
import sys

import pytest
import torch
from torch import nn

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed: make test-integrations")
pytestmark = pytest.mark.usefixtures("fresh_accelerate")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.0), nn.Linear(32, 4))


def batches(count=4):
    generator = torch.Generator().manual_seed(1)
    data = [(torch.randn(8, generator=generator), torch.randint(0, 4, (), generator=generator)) for _ in range(8 * count)]
    return torch.utils.data.DataLoader(data, batch_size=8)


def losses(accelerator):
    """Trains and returns the losses, with the parameters' devices."""
    model = network()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), batches())
    result = []
    for x, y in loader:
        with accelerator.autocast():
            loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        result.append(loss.item())
    return result, {parameter.device.type for parameter in model.parameters()} | {x.device.type}


@pytest.mark.parametrize("precision, tolerance", [("no", 1e-5), ("bf16", 3e-2), ("fp16", 3e-2)])
def test_training_as_on_the_cpu(device, native, precision, tolerance):
    accelerator = accelerate.Accelerator(mixed_precision=precision)
    assert accelerator.device.type == device
    with native():
        ours, devices = losses(accelerator)
    assert devices == {device}
    accelerate.state.AcceleratorState._reset_state(True)
    theirs, devices = losses(accelerate.Accelerator(cpu=True))
    assert devices == {"cpu"}
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("precision, dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_mixed_precision_computes_in_that_dtype(device, precision, dtype):
    accelerator = accelerate.Accelerator(mixed_precision=precision)
    seen = []
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    accelerator.prepare(model)(torch.ones(2, 4, device=device))
    assert seen == [dtype]
    assert (accelerator.scaler is not None) == (precision == "fp16")


def test_one_process_is_not_distributed(device):
    accelerator = accelerate.Accelerator()
    assert accelerator.distributed_type == accelerate.DistributedType.NO and accelerator.num_processes == 1


def test_memory_of_each_device_is_counted(device, module):
    from accelerate.utils import get_max_memory

    memory = get_max_memory()
    assert [memory[index] for index in range(module.device_count())] == [module.mem_get_info(i)[0] for i in range(module.device_count())]
    assert get_max_memory({0: "1MiB", 1: 5, "cpu": 7}) == {0: 1 << 20, 1: 5, "cpu": 7}


def test_random_numbers_resume_exactly(device, module, tmp_path):
    accelerator = accelerate.Accelerator()
    accelerator.prepare(network())
    accelerate.utils.set_seed(3)
    torch.randn(7, device=device)
    accelerator.save_state(tmp_path)
    expected = torch.randn(5, device=device), torch.randn(5, device=f"{device}:1"), torch.randn(5)
    accelerate.utils.set_seed(99)
    torch.randn(3, device=device)
    accelerator.load_state(tmp_path)
    for ours, before in zip((torch.randn(5, device=device), torch.randn(5, device=f"{device}:1"), torch.randn(5)), expected):
        assert torch.equal(ours.cpu(), before.cpu())


def test_a_model_is_split_over_devices(device, native):
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    x = torch.randn(3, 64)
    expected = model(x)
    size = 64 * 65 * 4
    device_map = accelerate.infer_auto_device_map(model, max_memory={0: 2 * size + 100, 1: 10 * size, "cpu": 1 << 30})
    assert set(device_map.values()) == {0, 1}
    model = accelerate.dispatch_model(model, device_map)
    assert {parameter.device for parameter in model.parameters()} == {torch.device(device, 0), torch.device(device, 1)}
    with native():
        result = model(x)
    torch.testing.assert_close(result.cpu(), expected)
    accelerate.hooks.remove_hook_from_submodules(model)
    assert model.to(f"{device}:1")[0].weight.device == torch.device(device, 1)


def test_layers_offloaded_to_the_host_and_to_disk_compute_on_the_device(device, tmp_path, native):
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))
    x = torch.randn(3, 16)
    expected = model(x)
    model = accelerate.dispatch_model(model, {"0": 0, "1": "cpu", "2": "disk"}, main_device=0, offload_dir=tmp_path, force_hooks=True)
    with native():
        result = model(x.to(device))
    torch.testing.assert_close(result.cpu(), expected)
    assert result.device.type == device


def test_batch_sizes_shrink_when_memory_is_short(device):
    """accelerate detects out of memory by the text of the error."""
    tried = []

    @accelerate.utils.find_executable_batch_size(starting_batch_size=64)
    def train(batch_size):
        tried.append(batch_size)
        torch.empty((batch_size << 50) if batch_size > 16 else 8, dtype=torch.uint8, device=device)
        return batch_size

    assert train() <= 16 and len(tried) > 1


def test_its_own_test_script_passes(tmp_path):
    environment = {**os.environ, "TORCH_BACKEND": "fake", "TORCH_BACKEND_INTEGRATIONS": "1", "HAL_FAKE_DEVICES": "1"}
    command = [sys.executable, "-P", "-m", "accelerate.commands.launch", "--num_processes", "1", "-m", "accelerate.test_utils.scripts.test_script"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Device: fake" in done.stdout and "Training integration test" in done.stdout


def test_a_choice_of_devices_that_would_choose_nothing_is_refused(run_python, tmp_path):
    (tmp_path / "train.py").write_text("import accelerate; print('on', accelerate.Accelerator().device)")
    launch = """
    import sys
    from accelerate.commands.accelerate_cli import main
    sys.argv = ["accelerate", "launch", "--num_processes", "1", {!r}, {!r}, {!r}]
    main()
    """
    settings = {"TORCH_BACKEND": "fake", "TORCH_BACKEND_INTEGRATIONS": "1", "HAL_FAKE_DEVICES": 2}
    done = run_python(launch.format("--gpu_ids", "1", str(tmp_path / "train.py")), check=False, **settings)
    assert done.returncode == 1 and "--gpu_ids 1: there is no environment variable" in done.stderr
    done = run_python(launch.format("--gpu_ids", "all", str(tmp_path / "train.py")), **settings, ACCELERATE_TORCH_DEVICE="fake:1")
    assert done.stdout.strip() == "on fake:1"


@pytest.mark.host_memory("inductor's C++ kernels read and write device addresses")
def test_compiled_models_train(device):
    """Selecting a compiler sets switches of other devices' libraries, which this device does not have."""
    accelerator = accelerate.Accelerator(dynamo_backend="inductor")
    ours, devices = losses(accelerator)
    assert devices == {device}
    accelerate.state.AcceleratorState._reset_state(True)
    theirs, _ = losses(accelerate.Accelerator(cpu=True))
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", [["-m", "accelerate.commands.launch"], ["-m", "accelerate.commands.accelerate_cli", "launch"]], ids=["module", "command"])
@pytest.mark.parametrize("devices", ["1", "2"])
def test_its_launcher_counts_our_devices(tmp_path, how, devices):
    """It starts a process for each device."""
    (tmp_path / "train.py").write_text("import accelerate; a = accelerate.Accelerator(); print('on', a.device, a.num_processes, flush=True)")
    environment = {**os.environ, "TORCH_BACKEND": "fake", "TORCH_BACKEND_INTEGRATIONS": "1", "HAL_FAKE_DEVICES": devices}
    command = [sys.executable, "-P", *how, str(tmp_path / "train.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = sorted(line for line in done.stdout.splitlines() if line.startswith("on "))
    assert found == (["on fake 1"] if devices == "1" else ["on fake:0 2", "on fake:1 2"]), done.stdout


def test_one_process_of_a_launcher_runs(run_python):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = "import accelerate; a = accelerate.Accelerator(); print(a.device, a.num_processes, a.distributed_type)"
    settings = {"LOCAL_RANK": 0, "RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    done = run_python(script, TORCH_BACKEND="fake", TORCH_BACKEND_INTEGRATIONS="1", **settings)
    assert done.stdout.split() == ["fake", "1", "DistributedType.NO"]


def test_explicit_cpu_requests_are_honored():
    assert accelerate.Accelerator(cpu=True).device.type == "cpu"
