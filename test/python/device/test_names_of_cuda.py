"""Each public name of torch.cuda of the installed PyTorch is in the device module, with its parameters, or is listed
here with a reason."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch

# Names of torch.cuda that only apply to NVIDIA's software. The list may only shrink.
ABSENT = {
    "CUDAGraph": "the class is torch.accelerator.Graph, here `Graph`",
    "CUDAPluggableAllocator": "the class is PluggableAllocator",
    "caching_allocator_disabled": "the allocator's cache cannot be switched off",
    "caching_allocator_enable": "the allocator's cache cannot be switched off",
    "CudaError": "errors of NVIDIA's runtime; those of the device are RuntimeError and torch.AcceleratorError",
    "check_error": "errors of NVIDIA's runtime",
    "cudaStatus": "errors of NVIDIA's runtime",
    "cudart": "NVIDIA's runtime itself",
    "DeferredCudaCallError": "no call is deferred to the first use of a device",
    "current_blas_handle": "a handle of cuBLAS",
    "current_solver_handle": "a handle of cuSOLVER",
    "GreenContext": "contexts of NVIDIA's driver for a part of the multiprocessors",
    "jiterator": "compiles CUDA C++ for NVIDIA's devices; here torch_backend.custom",
    "nccl": "the functions of NCCL",
    "profiler": "switches NVIDIA's profilers on and off; here torch.profiler",
    "tunable": "chooses among the algorithms of NVIDIA's and AMD's libraries",
}
MOST_ABSENT = 16
# The same for names that torch.cuda has from a later version on than the first one that is supported.
ABSENT_SINCE_215 = {
    "export_dot": "a hook for a method of CUDAGraph; here `Graph.enable_debug_mode` and `Graph.debug_dump`",
    "export_graph_data": "a hook for a method of CUDAGraph; the data are those of NVIDIA's driver",
    "graph_annotations": "names kernels for the traces of NVIDIA's CUPTI",
    "register_graph_destroy_hook": "its hooks take the ids that NVIDIA's CUPTI has for a graph",
}
MOST_ABSENT_SINCE_215 = 4
if hasattr(torch.cuda, "graph_annotations"):
    ABSENT |= ABSENT_SINCE_215
    MOST_ABSENT += MOST_ABSENT_SINCE_215

# Parameters that stand at another position, as torch's versions differ: (name, parameter).
MOVED = {("graph", "check_input_liveness")}  # since torch 2.15 after annotation_config, which accepts its bool

# Parameters and defaults that differ: (name, parameter of torch.cuda): its counterpart here.
RENAMED = {("graph", "cuda_graph"): "graph"}
DEFAULTS = {
    "device": (("cuda", None), "the current device, for which torch.cuda uses its own type"),
    "dtype": ((torch.float16, None), "autocast takes torch.get_autocast_dtype, which is float16 unless it is set"),
    "cache_enabled": ((True, None), "autocast takes torch.is_autocast_cache_enabled, which is True unless it is set"),
}
MODULES = ("", "amp", "graphs", "memory", "nvtx", "random", "streams")


def names(module) -> set[str]:
    return set(getattr(module, "__all__", ()))


def cuda(part: str):
    return importlib.import_module(f"torch.cuda.{part}".rstrip("."))


def ours(module, part: str):
    return getattr(module, part) if part else module


@pytest.mark.parametrize("part", MODULES, ids=lambda part: part or "cuda")
def test_each_name_is_here_or_has_a_reason(module, part):
    missing = sorted(name for name in names(cuda(part)) if name not in ABSENT and not hasattr(ours(module, part), name))
    assert not missing, f"torch.cuda.{part}: {missing}"


def test_the_list_of_absent_names_shrinks(module):
    assert len(ABSENT) <= MOST_ABSENT, "names are added to the device module, not to this list"
    assert len(ABSENT) == MOST_ABSENT, "lower MOST_ABSENT"
    assert not [name for name in ABSENT if hasattr(module, name)], "a name that is here does not stand in the list"
    known = set().union(*(names(cuda(part)) for part in MODULES))
    assert not set(ABSENT) - known, "torch.cuda has no such name"


def test_the_guide_lists_the_absent_names():
    guide = (Path(__file__).resolve().parents[3] / "docs/migration-cuda.md").read_text()
    table = guide.partition("## Names that do not apply")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(cells))) == sorted(ABSENT | ABSENT_SINCE_215)


def calls(module, part):
    """Yields (name, function or class of torch.cuda, of the device module) for names that both have and inspect can
    read."""
    for name in sorted(names(cuda(part)) - set(ABSENT)):
        theirs, own = getattr(cuda(part), name), getattr(ours(module, part), name)
        if callable(theirs) and not inspect.ismodule(theirs):
            try:
                yield name, inspect.signature(theirs).parameters, inspect.signature(own).parameters
            except (TypeError, ValueError):  # classes of C and typed tensors
                continue


def difference(name, theirs, own) -> str:
    """Returns how a call that torch.cuda's parameters allow would fail; "" if it would not."""
    place = {parameter: index for index, parameter in enumerate(own)}
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in own.values())
    for index, (key, parameter) in enumerate(theirs.items()):
        key = RENAMED.get((name, key), key)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if key not in own:
            if not takes_any or parameter.kind != parameter.KEYWORD_ONLY:
                return f"has no parameter {key}"
            continue
        here = own[key]
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if positional and place[key] != index and (name, key) not in MOVED:
            return f"{key} is parameter {place[key]}, not {index}"
        if parameter.kind == parameter.POSITIONAL_OR_KEYWORD and here.kind != parameter.POSITIONAL_OR_KEYWORD:
            return f"{key} is {here.kind.description}"
        if parameter.default is parameter.empty:
            continue
        if here.default is here.empty:
            return f"{key} has no default"
        allowed, _ = DEFAULTS.get(key, ((None, None), ""))
        if here.default != parameter.default and (parameter.default, here.default) != allowed:
            return f"{key} is {here.default!r} by default, not {parameter.default!r}"
    extra = [key for key in own if key not in {RENAMED.get((name, key), key) for key in theirs}]
    needed = [key for key in extra if own[key].default is own[key].empty and own[key].kind in (0, 1, 3)]
    return f"needs {needed}" if needed else ""


@pytest.mark.parametrize("part", MODULES, ids=lambda part: part or "cuda")
def test_parameters_are_those_of_torch_cuda(module, part):
    found = [f"{name}: {what}" for name, theirs, own in calls(module, part) if (what := difference(name, theirs, own))]
    assert not found, found


def test_the_comparison_finds_differences():
    def first(device=None, *, size=3): ...

    def second(size, device=None): ...

    def parameters(function):
        return inspect.signature(function).parameters

    assert difference("f", parameters(first), parameters(first)) == ""
    assert difference("f", parameters(first), parameters(second)) == "device is parameter 1, not 0"
    assert "has no parameter size" in difference("f", parameters(first), parameters(lambda device=None: None))
    assert "has no default" in difference("f", parameters(first), parameters(lambda device, *, size=3: None))
    assert "by default" in difference("f", parameters(first), parameters(lambda device=None, *, size=4: None))
    assert "needs" in difference("f", parameters(lambda: None), parameters(lambda size: None))


def test_properties_have_torch_cudas_names(module):
    """As PyTorch declares them; the declaration lacks some that CUDA builds have."""
    declared = re.search(r"\nclass _CudaDeviceProperties:\n((?:    \w+: .*\n)+)", Path(torch._C.__file__).with_name("_C").joinpath("__init__.pyi").read_text())
    theirs = re.findall(r"    (\w+):", declared[1])
    others = ["max_threads_per_block", "regs_per_multiprocessor", "shared_memory_per_block_optin", "pci_bus_id", "pci_device_id", "pci_domain_id"]
    properties = module.get_device_properties()
    assert len(theirs) > 15 and not [name for name in [*theirs, *others] if not hasattr(properties, name)]
    assert "pci_bus_id" in repr(properties) and properties == module.get_device_properties(0)
