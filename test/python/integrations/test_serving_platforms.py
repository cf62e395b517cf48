"""The platform classes of vLLM and SGLang, from which a vendor derives its own: what they require of an accelerator exists in
the device module, except what depends on the vendor's kernels and communicators. Their sources are read and not imported,
because importing needs their libraries. Without an installed package its tests are skipped."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
import torch

# Methods that a derived class must define, as the device module computes them, with the type of the result.
OURS = {
    "check_if_supports_dtype": (lambda m, d: torch.zeros(1, dtype=torch.bfloat16, device=d), torch.Tensor),
    "get_all_gpu_pci_bus_ids": (lambda m, d: m.get_device_properties(d).pci_bus_id, int),
    "get_available_memory": (lambda m, d: m.mem_get_info(d)[0], int),
    "get_current_memory_usage": (lambda m, d: m.max_memory_allocated(d), int),
    "get_device": (lambda m, d: torch.device(d, m.current_device()), torch.device),
    "get_device_capability": (lambda m, d: (m.get_device_properties(d).major, m.get_device_properties(d).minor), tuple),
    "get_device_name": (lambda m, d: m.get_device_name(d), str),
    "get_device_total_memory": (lambda m, d: m.get_device_properties(d).total_memory, int),
    "get_device_uuid": (lambda m, d: str(m.get_device_properties(d).uuid), str),
    "get_torch_profiler_activity": (lambda m, d: torch.profiler.ProfilerActivity.PrivateUse1, torch.profiler.ProfilerActivity),
    "get_torch_profiler_activity_str": (lambda m, d: torch.profiler.ProfilerActivity.PrivateUse1.name, str),
    "manual_seed_all": (lambda m, d: m.manual_seed_all(3), type(None)),
    "num_compute_units": (lambda m, d: m.get_device_properties(d).multi_processor_count, int),
    "set_device": (lambda m, d: m.set_device(torch.device(d, 0)), type(None)),
}
# Those that name a class of the vendor: attention, adapters, runners, communicators.
VENDORS = {
    "check_runner_kv_caches_multi_layer", "get_default_attention_backend", "get_default_speculative_draft_attention_backend", "get_punica_wrapper",
    "stateless_init_device_torch_dist_pg",
}  # fmt: skip
CLASSES = {"vllm": [("platforms/interface.py", "Platform")],
           "sglang": [("srt/platforms/device_mixin.py", "DeviceMixin"), ("srt/platforms/interface.py", "SRTPlatform")]}  # fmt: skip


def folder_of(package):
    found = importlib.util.find_spec(package)
    if not found or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(found.submodule_search_locations)))


def class_of(path, name):
    return next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name)


def required(path, name):
    """Returns the methods that raise NotImplementedError."""
    return {each.name for each in class_of(path, name).body if isinstance(each, ast.FunctionDef) and "raise NotImplementedError" in ast.unparse(each)}


@pytest.mark.parametrize("package", CLASSES)
def test_required_methods_are_computed_by_the_device_module(device, package):
    module, names = torch.get_device_module(device), set()
    for path, name in CLASSES[package]:
        names |= required(folder_of(package) / path, name)
    assert names and not names - set(OURS) - VENDORS
    for name in names & set(OURS):
        call, kind = OURS[name]
        assert isinstance(call(module, device), kind), name


def names_of_classes(folder):
    """Returns the attributes and methods that the classes of a folder define."""
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for each in node.body if isinstance(node, ast.ClassDef) else ():
                targets = [each] if isinstance(each, ast.FunctionDef) else getattr(each, "targets", [getattr(each, "target", None)])
                yield from (target.name if isinstance(target, ast.FunctionDef) else target.id for target in targets if isinstance(target, (ast.FunctionDef, ast.Name)))


def test_vllms_other_names_are_in_the_device_module(device):
    """vLLM's class looks up names that no platform defines in torch.<name>."""
    folder = folder_of("vllm")
    defined = set(names_of_classes(folder / "platforms")) | {"cudart", "is_on_gfx9"}  # of NVIDIA's and AMD's libraries
    used = {name for path in folder.rglob("*.py") for name in re.findall(r"\bcurrent_platform\.(\w+)", path.read_text(errors="replace"))} - defined
    module = torch.get_device_module(device)
    assert "current_stream" in used and not [name for name in sorted(used) if getattr(module, name, None) is None]
