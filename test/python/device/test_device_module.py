"""The names and signatures of torch.fake: those of torch.cuda that programs and libraries use."""

import importlib
import inspect

import pytest
import torch

STATE = ("is_available", "is_initialized", "init", "_lazy_init", "_is_in_bad_fork", "device_count", "current_device", "set_device", "device",
         "device_of", "synchronize", "get_device_name", "get_device_properties", "get_device_capability",
         "can_device_access_peer")  # fmt: skip
STREAMS = ("stream", "current_stream", "default_stream", "StreamContext")
RANDOM = ("manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed", "get_rng_state", "get_rng_state_all", "set_rng_state",
          "set_rng_state_all")  # fmt: skip
MEMORY = ("empty_cache", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
          "memory_stats_as_nested_dict", "memory_summary", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "mem_get_info",
          "set_per_process_memory_fraction", "host_memory_stats", "host_memory_stats_as_nested_dict", "reset_peak_host_memory_stats",
          "reset_accumulated_host_memory_stats")  # fmt: skip
SENSORS = ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used", "list_gpu_processes")
AMP = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")


def parameters(function):
    """Names and kinds of parameters, and whether they are optional; empty for a builtin, which has no signature."""
    if inspect.isbuiltin(function):  # torch.cuda._is_in_bad_fork of a build with CUDA, which has no parameters
        return []
    found = inspect.signature(inspect.unwrap(function)).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default is not parameter.empty) for parameter in found]


@pytest.mark.parametrize("name", [*STATE, *STREAMS, *RANDOM, *MEMORY, *SENSORS, "is_bf16_supported"])
def test_the_signature_is_that_of_torch_cuda(module, name):
    assert parameters(getattr(module, name)) == parameters(getattr(torch.cuda, name))


@pytest.mark.parametrize("name", ["autocast", "GradScaler"])
def test_the_signature_is_that_of_torch_cuda_amp(module, name):
    assert parameters(getattr(module.amp, name)) == parameters(getattr(torch.cuda.amp, name))


def test_the_submodules_have_the_names_of_torch_cudas(module):
    assert set(torch.cuda.random.__all__) <= set(dir(module.random))
    assert set(MEMORY) <= set(dir(module.memory))
    assert set(AMP) <= set(module.amp.__all__)
    assert {"Event", "Stream"} <= set(dir(module.streams))


def test_what_is_left_are_classes_and_values(module, device):
    assert issubclass(module.Stream, torch.Stream) and issubclass(module.Event, torch.Event)
    assert issubclass(module.OutOfMemoryError, torch.OutOfMemoryError)
    assert isinstance(module.default_generators, tuple) and module.default_generators[1].device == torch.device(device, 1)
    assert module.get_amp_supported_dtype() == [torch.float16, torch.bfloat16] and module.is_bf16_supported()
    assert module._utils._get_device_index(f"{device}:1") == 1  # torch.load calls it


def test_fsdp_and_dtensor_find_what_they_call(module):
    called = ("stream", "Stream", "Event", "current_stream", "current_device", "set_device", "device_count", "is_available",
              "is_initialized", "get_rng_state", "set_rng_state")  # fmt: skip
    assert all(callable(getattr(module, name)) for name in called)


def test_everything_in_all_exists_and_is_listed(module):
    assert sorted(module.__all__) == list(dict.fromkeys(sorted(module.__all__)))
    assert all(hasattr(module, name) for name in module.__all__)
    assert set(module.__all__) <= set(dir(module))


def test_submodules_are_imported_by_their_names(module, device):
    for name in ("amp", "memory", "random", "streams"):
        assert importlib.import_module(f"torch.{device}.{name}") is getattr(module, name)
    assert importlib.import_module(f"torch.{device}") is module


def test_torch_finds_the_module_by_every_form_of_device(module, device):
    for form in (device, f"{device}:1", torch.device(device), torch.device(device, 0)):
        assert torch.get_device_module(form) is module
    assert torch.get_device_module() is module  # the accelerator's


def test_a_missing_name_is_an_attribute_error_that_names_the_module(module, device):
    with pytest.raises(AttributeError, match=f"torch.{device}.*nosuchname"):
        module.nosuchname


def test_the_device_index_of_every_form(module, device):
    index = module._utils._get_device_index
    assert index(3) == 3 and index(torch.device(device, 1)) == 1 and index("cpu", allow_cpu=True) == -1
    assert index(None, optional=True) == index(device, True) == 0
    for wrong in (None, device, torch.device(device), "cpu", torch.device("meta")):
        with pytest.raises(ValueError):
            index(wrong)
    for wrong in (1.5, True, [0]):
        with pytest.raises(TypeError):
            index(wrong)


INDEXED = ("synchronize", "get_device_name", "get_device_properties", "get_device_capability", "current_stream", "default_stream",
           "memory_stats", "memory_stats_as_nested_dict", "memory_allocated", "max_memory_allocated", "memory_reserved",
           "max_memory_reserved", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "mem_get_info", "memory_summary",
           "get_rng_state")  # fmt: skip


def test_unsupported_sensors_raise_an_error(module, device):
    """The fake device has memory and no chip."""
    assert module.device_memory_used() >= module.memory_reserved()
    for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"):
        with pytest.raises(NotImplementedError, match=f"{device}:1 does not report"):
            getattr(module, name)(1)
    assert module.list_gpu_processes(1).startswith("GPU:1\n")


def test_events_that_processes_share_have_no_times_and_are_opened_elsewhere(module, device):
    """test_tensor_sharing.py opens them in another process."""
    event = module.Event(interprocess=True)
    event.record()
    event.synchronize()
    assert event.query() and len(event.ipc_handle()) > 0
    with pytest.raises(RuntimeError, match="another one than this"):
        module.Event.from_ipc_handle(device, event.ipc_handle())
    with pytest.raises(RuntimeError, match="handle"):
        module.Event.from_ipc_handle(device, bytes(64))
    with pytest.raises(ValueError, match="do not support timing"):
        module.Event(interprocess=True, enable_timing=True)
    assert type(module.Event(enable_timing=True)) is torch.Event and isinstance(torch.Event(device=device), module.Event)


@pytest.mark.parametrize("index", [2, 99, -1, -3])
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_that_no_device_has_is_refused(module, name, index):
    with pytest.raises(RuntimeError, match=rf"{index} is out of range.* has 2"):
        getattr(module, name)(index)


@pytest.mark.parametrize("index", [2, -1])
def test_a_state_for_a_device_that_is_not_there_is_refused(module, index):
    with pytest.raises(RuntimeError, match=f"{index} is out of range"):
        module.set_rng_state(module.get_rng_state(0), index)


def test_a_negative_device_means_no_change_as_in_torch_cuda(module):
    module.set_device(-1)
    with module.device(1), module.device(-1):
        assert module.current_device() == 1
    assert module.current_device() == 0


WITHOUT_A_DEVICE = """
    memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats memory_stats_as_nested_dict
    memory_summary empty_cache reset_peak_memory_stats reset_accumulated_memory_stats host_memory_stats default_stream current_device
    device_count is_available get_rng_state get_rng_state_all seed seed_all initial_seed get_amp_supported_dtype is_bf16_supported
""".split()


def test_questions_about_state_start_no_device(run_python):
    """Starting a driver takes seconds and memory, and prevents fork."""
    run_python(
        f"""
        import os, torch
        for name in {WITHOUT_A_DEVICE}:
            getattr(torch.fake, name)()
            assert not torch.fake.is_initialized(), name
        assert torch.fake.memory_stats(1)["allocated_bytes.all.peak"] == torch.fake.memory_allocated(1) == 0
        torch.accelerator.memory_allocated(), torch.accelerator.empty_cache(), torch.accelerator.empty_host_cache()
        torch.Event(), torch.Generator("fake"), torch.ones(2).is_pinned()
        assert not torch.fake.is_initialized()
        torch.fake.init()
        assert torch.fake.is_initialized() and torch.fake.memory_allocated() == 0
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES=2,
    )


def test_statistics_of_another_device_do_not_start_it(run_python):
    run_python(
        """
        import torch, torch_backend
        from torch_backend import _C
        tensor = torch.ones(3, device="fake:0")
        assert torch.fake.memory_allocated(0) > 0 and torch.fake.memory_allocated(1) == 0
        torch.fake.reset_peak_memory_stats(1), torch.accelerator.reset_accumulated_memory_stats(1)
        assert _C.is_initialized(0) and not _C.is_initialized(1)
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES=2,
    )


USES = {
    "synchronize": "torch.fake.synchronize()",
    "accelerator": "torch.accelerator.synchronize()",
    "stream": "torch.Stream(device='fake')",
    "event": "torch.Event(device='fake').record()",
    "set_device": "torch.fake.set_device(1)",
    "context": "torch.fake.device(1).__enter__()",
    "properties": "torch.fake.get_device_properties()",
    "memory": "torch.fake.mem_get_info()",
    "init": "torch.fake.init()",
    "factory": "torch.ones(1, device='fake')",
    "to": "torch.ones(1).to('fake')",
    "print": "repr(tensor)",
    "load": "torch.load(path)",
    "pinned": "torch.ones(1).pin_memory()",
}


def test_every_use_in_a_forked_child_raises_pytorchs_sentence(run_python, tmp_path):
    done = run_python(
        f"""
        import os, torch
        tensor, path = torch.ones(3, device="fake"), {str(tmp_path / "tensor.pt")!r}
        torch.save(tensor, path)
        child = os.fork()
        if child == 0:
            for name, use in {USES}.items():
                try:
                    eval(use)
                    print(name, "no error", flush=True)
                except RuntimeError as error:
                    print(name, error, flush=True)
            # what needs no device works
            assert torch.fake.is_available() and torch.fake.device_count() == 2 and torch.fake.current_device() == 0
            assert torch.load(path, map_location="cpu").tolist() == [1, 1, 1]
            torch.manual_seed(1), torch.fake.get_rng_state(), torch.fake.memory_allocated(), torch.fake.empty_cache()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES=2,
    )
    sentence = "Cannot re-initialize FAKE in forked subprocess. To use FAKE with multiprocessing, you must use the 'spawn' start method"
    assert done.stdout.splitlines() == [f"{name} {sentence}" for name in USES]


def test_workers_that_are_forked_serve_cpu_tensors_and_spawned_ones_the_device(run_python):
    run_python(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        def use(queue):
            queue.put((torch.arange(4, device="fake") * 2).tolist())

        if __name__ == "__main__":
            torch.ones(2, device="fake")
            batches = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, num_workers=2, multiprocessing_context="fork")
            assert [batch.to("fake").sum().item() for (batch,) in batches] == [6, 22]
            context = torch.multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=use, args=(queue,))
            process.start()
            assert queue.get(timeout=100) == [0, 2, 4, 6]
            process.join()
            assert process.exitcode == 0
        """,
        TORCH_BACKEND="fake",
    )
