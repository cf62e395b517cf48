"""Settings of the allocator: those of the environment, and changes at run time by torch's function."""

import json

import pytest

MiB = 1 << 20

SNAPSHOT = """
import json, torch, torch_backend
torch_backend.use("fake")
torch.ones(1, device="fake")
print(json.dumps(torch.fake.memory._snapshot()["allocator_settings"]))
"""


@pytest.mark.parametrize(("text", "split", "threshold", "divisions"), [
    ("", -1, 0.0, [0, 0, 0, 0]),
    ("max_split_size_mb:30,garbage_collection_threshold:0.5,roundup_power2_divisions:[256:1,512:2,>:4]", 30 * MiB, 0.5, [1, 1, 2, 4]),
    ("roundup_power2_divisions:8,max_split_size_mb:2,garbage_collection_threshold:x", -1, 0.0, [8, 8, 8, 8]),
    (f"max_split_size_mb:{10**30}", -1, 0.0, [0, 0, 0, 0]),
    ("expandable_segments:True,roundup_power2_divisions:[256:2,1024:4]", -1, 0.0, [2, 2, 0, 4]),
])  # fmt: skip
def test_the_settings_are_in_the_snapshot(run_python, text, split, threshold, divisions):
    settings = json.loads(run_python(SNAPSHOT, PYTORCH_ALLOC_CONF=text).stdout)
    assert settings["PYTORCH_CUDA_ALLOC_CONF"] == text and settings["max_split_size"] == split
    assert settings["garbage_collection_threshold"] == threshold and settings["expandable_segments"] is ("expandable" in text)
    assert [settings["roundup_power2_divisions"][key] for key in ("128", "256", "512", "1024")] == divisions


def test_a_change_at_run_time_applies_to_later_allocations(run_python):
    done = run_python("""
        import torch, torch_backend
        torch_backend.use("fake")
        memory, MiB = torch.fake.memory, 1 << 20
        def reserved(size):
            x = torch.empty(size, dtype=torch.uint8, device="fake")
            return memory.memory_reserved() // MiB
        torch._C._accelerator_setAllocatorSettings("max_split_size_mb:32,pinned_max_cached_size_mb:1")
        print(reserved(64 * MiB), reserved(20 * MiB))  # a block of 64 MiB is not split
        memory._set_allocator_settings("max_split_size_mb:100")
        memory.empty_cache()
        print(reserved(64 * MiB), reserved(20 * MiB))
        cached = torch.empty(2 * MiB, dtype=torch.uint8, pin_memory=True)
        del cached
        torch.empty(1, pin_memory=True)
        print(torch.fake.host_memory_stats()["allocated_bytes.current"])
        memory._set_allocator_settings("roundup_power2_divisions:[1:2,>:4],garbage_collection_threshold:0.25")
        before = memory.memory_allocated()
        x = torch.empty(513 << 10, dtype=torch.uint8, device="fake")
        print(memory.memory_allocated() - before >> 10)
        settings = memory._snapshot()["allocator_settings"]
        print(settings["max_split_size"] // MiB, settings["garbage_collection_threshold"], settings["max_cached_size"], settings["PYTORCH_ALLOC_CONF"])
        print([settings["roundup_power2_divisions"][key] for key in ("1", "2", "32768")])
    """)  # fmt: skip
    assert done.stdout.splitlines() == ["64 84", "64 64", "4096", "768", f"100 0.25 {MiB} roundup_power2_divisions:[1:2,>:4],garbage_collection_threshold:0.25",
                                        "[2, 4, 4]"], done.stdout + done.stderr  # fmt: skip


def test_what_cannot_be_changed_is_refused_by_name(run_python):
    done = run_python("""
        import torch, torch_backend
        torch_backend.use("fake")
        memory = torch.fake.memory
        memory._set_allocator_settings("expandable_segments:True")  # no device was used
        x = torch.ones(1, device="fake")
        print(memory.memory_snapshot()[0]["is_expandable"])
        for text in ("expandable_segments:False", "per_process_memory_fraction:0.5", "backend:native", "unknown:1", "pinned_use_background_threads:True"):
            try:
                memory._set_allocator_settings(f"max_split_size_mb:50,{text}")
            except (RuntimeError, ValueError) as error:
                print(text.partition(":")[0] in str(error) or error, memory._snapshot()["allocator_settings"]["max_split_size"])
    """)  # fmt: skip
    assert done.stdout.splitlines() == ["True"] + ["True -1"] * 5, done.stdout + done.stderr
