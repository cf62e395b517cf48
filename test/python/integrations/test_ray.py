"""Ray Train: workers with a resource of the device's name train on the device, alone and as two processes; other
workers compute on the CPU, as without the integration."""

import json
import os
import sys

import pytest
import torch

pytest.importorskip("ray", reason="ray is not installed: make test-integrations")


def loop(config):
    """Runs in a worker: trains a small model, and writes where it was and its losses."""
    import ray.train
    import ray.train.torch
    from torch.utils.data import DataLoader, TensorDataset

    context = ray.train.get_context()
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
    data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64, torch.arange(16.0).reshape(16, 1) / 16)
    loader = ray.train.torch.prepare_data_loader(DataLoader(data, batch_size=8 // context.get_world_size()))
    optimizer, losses, places = torch.optim.SGD(model.parameters(), 0.1), [], set()
    for _ in range(3):
        for x, y in loader:
            places.add(str(x.device))
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    found = {"device": str(ray.train.torch.get_device()), "data": sorted(places), "losses": losses,
             "weights": [x.tolist() for x in model.parameters()], "places": [str(x.device) for x in model.parameters()]}  # fmt: skip
    with open(f"{config['folder']}/{context.get_world_rank()}.json", "w") as file:
        json.dump(found, file)


@pytest.fixture
def cluster(device):
    import ray

    settings = {"TORCH_BACKEND": device, "TORCH_BACKEND_INTEGRATIONS": "1", "HAL_FAKE_DEVICES": "2", "RAY_TRAIN_V2_ENABLED": "1",
                "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}  # fmt: skip
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    ray.init(num_cpus=3, resources={device: 2}, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    ray.shutdown()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def trained(folder, workers, resources, backend):
    """Returns what each worker wrote."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(
        loop, train_loop_config={"folder": str(folder)}, torch_config=TorchConfig(backend=backend),
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker=resources), run_config=RunConfig(storage_path=str(folder / "runs")),
    ).fit()  # fmt: skip
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(workers)]


def test_workers_train_on_the_device(device, cluster, tmp_path):
    folders = [tmp_path / name for name in ("cpu", "one", "two")]
    for folder in folders:
        folder.mkdir()
    expected = trained(folders[0], 1, {"CPU": 1}, "gloo")[0]
    assert expected["device"] == "cpu" and expected["places"] == ["cpu", "cpu"], "a worker without the resource"
    one = trained(folders[1], 1, {device: 1}, "torch_backend")[0]
    assert one["device"] == f"{device}:0" and one["data"] == [f"{device}:0"] and one["places"] == [f"{device}:0"] * 2
    torch.testing.assert_close(torch.tensor(one["losses"]), torch.tensor(expected["losses"]))
    two = trained(folders[2], 2, {device: 1}, "torch_backend")
    assert [worker["device"] for worker in two] == [f"{device}:0", f"{device}:1"]
    for worker in two:
        assert worker["places"] == [worker["device"]] * 2 and worker["data"] == [worker["device"]]
        for ours, theirs in zip(worker["weights"], expected["weights"], strict=True):
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), msg="the gradients of both workers are averaged")


def test_the_interface(device):
    """The manager has every function of Ray's interface."""
    from ray.air._internal import device_manager

    ours = device_manager.get_torch_device_manager_by_device_type(device)
    interface = device_manager.TorchDeviceManager
    missing = [name for name in vars(interface) if not name.startswith("_") and getattr(type(ours), name) is getattr(interface, name)]
    assert isinstance(ours, interface) and not missing
    assert ours.is_available() and ours.supports_stream() and ours.get_devices() == [torch.device(device, 0)]
    stream = ours.create_stream(torch.device(device, 0))
    with ours.get_stream_context(stream):
        assert ours.get_current_stream() == stream
    assert device_manager.get_torch_device_manager_by_device_type("cpu").get_devices() == [torch.device("cpu")]
