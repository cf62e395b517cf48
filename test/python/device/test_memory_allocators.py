"""Allocators of programs: `change_current_allocator`, `MemPool(allocator=...)`."""

import subprocess

import pytest
import torch
from torch_backend import _hal

SOURCE = r"""
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int hal_memory_raw_allocate(int32_t device, size_t size, void **out_address);
int hal_memory_raw_free(int32_t device, void *address);

long allocations, releases, bytes;
static void *first;

void *allocate(ssize_t size, int device, void *stream) {
  (void)stream;
  void *address = NULL;
  if (hal_memory_raw_allocate(device, (size_t)size, &address)) return NULL;
  allocations++, bytes += size;
  if (!first) first = address;
  return address;
}

void release(void *address, ssize_t size, int device, void *stream) {
  (void)stream;
  releases++, bytes -= size;
  hal_memory_raw_free(device, address);
}

void *null(ssize_t size, int device, void *stream) { return (void)size, (void)device, (void)stream, NULL; }
void *odd(ssize_t size, int device, void *stream) { return (void)size, (void)device, (void)stream, (void *)(uintptr_t)0x10001; }
static char host[1 << 20] __attribute__((aligned(4096)));
void *foreign(ssize_t size, int device, void *stream) { return (void)size, (void)device, (void)stream, host; }

void *given;
void *return_given(ssize_t size, int device, void *stream) { return (void)size, (void)device, (void)stream, given; }
void nothing(void *address, ssize_t size, int device, void *stream) { (void)address, (void)size, (void)device, (void)stream, releases++; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("allocator")
    (folder / "allocator.c").write_text(SOURCE)
    path = folder / "liballocator.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, folder / "allocator.c", _hal.LIBRARY], check=True)
    return path


PROGRAM = """
    import ctypes
    import torch

    memory = torch.fake.memory
    library = ctypes.CDLL({path!r})
    count = lambda name: ctypes.c_long.in_dll(library, name).value
    new = memory.FakePluggableAllocator({path!r}, "allocate", "release")
    assert memory.get_allocator_backend() == "native"
    memory.change_current_allocator(new)
    assert memory.get_allocator_backend() == "pluggable"
    x = torch.randn(50, 30, device="fake")
    layer = torch.nn.Linear(30, 7).to("fake")
    layer(x).square().sum().backward()
    torch.fake.synchronize()
    expected = torch.autograd.functional.jacobian(lambda w: (x.cpu() @ w.T + layer.bias.detach().cpu()).square().sum(), layer.weight.detach().cpu())
    torch.testing.assert_close(layer.weight.grad.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert count("allocations") > 5 and count("bytes") == torch.fake.memory_allocated(), (count("bytes"), torch.fake.memory_allocated())
    del x, layer
    torch.fake.synchronize()
    torch.fake.empty_cache()
    assert count("bytes") == 0 and count("allocations") == count("releases"), (count("bytes"), count("allocations"), count("releases"))
    try:
        memory.change_current_allocator(new)
    except RuntimeError as error:
        print("before the first allocation" in str(error))
"""


@pytest.mark.parametrize("mode", [
    pytest.param({"HAL_FAKE_ASYNC": "1"}, id="async"),
    pytest.param({"HAL_FAKE_ASYNC": "0"}, id="inline", marks=pytest.mark.slow),
    pytest.param({"HAL_FAKE_PROTECT": "1"}, id="protected", marks=pytest.mark.slow),
])  # fmt: skip
def test_an_allocator_of_the_process(run_python, library, mode):
    done = run_python(PROGRAM.format(path=str(library)), TORCH_BACKEND="fake", **mode)
    assert done.stdout.split() == ["True"]


def test_an_allocator_of_a_pool(device, module, library):
    import ctypes

    counts = ctypes.CDLL(str(library))
    count = lambda name: ctypes.c_long.in_dll(counts, name).value  # noqa: E731
    allocator = module.memory.PluggableAllocator(library, "allocate", "release")
    pool = module.MemPool(allocator.allocator())
    assert pool.allocator is allocator.allocator()
    with module.use_mem_pool(pool):
        small, large = torch.ones(100, device=device), torch.ones(3 << 20, device=device)
    other = torch.ones(100, device=device)
    assert count("allocations") == 2 and len(pool.snapshot()) == 2
    assert large.sum().item() == 3 << 20
    del large, pool
    assert count("releases") == 1
    del small
    module.empty_cache()
    assert count("releases") == 2 and count("bytes") == 0 and other.sum().item() == 100


def test_invalid_results_are_one_error_each(run_python, library):
    done = run_python(f"""
        import ctypes
        import torch

        memory = torch.fake.memory
        for function in ("null", "odd", "foreign"):
            pool = torch.fake.MemPool(memory.PluggableAllocator({str(library)!r}, function, "nothing"))
            with torch.fake.use_mem_pool(pool):
                try:
                    torch.ones(100, device="fake")
                except RuntimeError as error:
                    print(type(error).__name__, str(error).replace("\\n", " "))
            del pool
        assert torch.fake.memory_reserved() == 0
        print(ctypes.c_long.in_dll(ctypes.CDLL({str(library)!r}), "releases").value)
    """, TORCH_BACKEND="fake", HAL_FAKE_PROTECT="1")  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0].startswith("OutOfMemoryError") and "returned NULL" in done.stdout + done.stderr, done.stdout
    assert "aligned" in lines[1] or "0x10001" in lines[1], lines
    assert "not memory of that device" in lines[2], lines
    assert lines[3] == "2", "what is not NULL is returned to the allocator"


@pytest.mark.parametrize("protect", ["0", "1"])
def test_memory_of_another_device_and_blocks_that_are_too_short_are_refused(run_python, library, protect):
    """Without protection `fake` accepts any address of the host, but not memory that is known to be another's."""
    done = run_python(f"""
        import ctypes
        import torch

        given = ctypes.c_void_p.in_dll(ctypes.CDLL({str(library)!r}), "given")
        other = torch.ones(3 << 20, device="fake:1")
        for address in (other.data_ptr(), torch.fake.caching_allocator_alloc(4096, 0)):
            given.value = address
            pool = torch.fake.MemPool(torch.fake.memory.PluggableAllocator({str(library)!r}, "return_given", "nothing"))
            with torch.fake.use_mem_pool(pool):
                try:
                    torch.ones(16 << 20, device="fake:0")
                except RuntimeError as error:
                    print("not memory of that device" in str(error))
            del pool
        assert torch.ones(3, device="fake:0").sum().item() == 3 and torch.fake.memory_reserved() < 16 << 20
    """, TORCH_BACKEND="fake", HAL_FAKE_DEVICES="2", HAL_FAKE_PROTECT=protect)  # fmt: skip
    assert done.stdout.split() == ["True", "True"], done.stdout


@pytest.mark.parametrize("fraction", ["1e-300", "1e-12"])
def test_a_fraction_of_less_than_a_byte_is_not_without_a_limit(run_python, fraction):
    done = run_python("""
        import torch

        try:
            torch.ones(1, device="fake")
        except torch.OutOfMemoryError:
            print("refused")
    """, TORCH_BACKEND="fake", PYTORCH_ALLOC_CONF=f"per_process_memory_fraction:{fraction}")  # fmt: skip
    assert done.stdout.split() == ["refused"]


def test_damaged_libraries_are_refused_before_they_are_loaded(module, library, tmp_path):
    whole = library.read_bytes()
    for share in (0, 1, 30, 60):
        (tmp_path / "short.so").write_bytes(whole[: len(whole) * share // 100])
        with pytest.raises(OSError, match="short.so"):
            module.memory.PluggableAllocator(tmp_path / "short.so", "allocate", "release")
    (tmp_path / "text.so").write_text("not a library " * 1000)
    for path in (tmp_path / "text.so", tmp_path):
        with pytest.raises(OSError, match=f"{path}.* is not a"):
            module.memory.PluggableAllocator(path, "allocate", "release")


def test_missing_files_and_functions_are_named(module, library):
    with pytest.raises(OSError, match="no_such"):
        module.memory.PluggableAllocator("/no_such/library.so", "allocate", "release")
    with pytest.raises(ValueError, match="no function 'allocat'"):
        module.memory.PluggableAllocator(library, "allocat", "release")
    for function in ("_name", "__class__", "", "a\0b", "\udcff"):  # attributes of Python's object are no functions
        with pytest.raises(ValueError, match="has no function"):
            module.memory.PluggableAllocator(library, "allocate", function)
    for function in (None, b"allocate", 1):
        with pytest.raises(TypeError, match=f"expected the name of a function of .*, got {function!r}"):
            module.memory.PluggableAllocator(library, function, "release")
    with pytest.raises(TypeError, match="expected a MemPool, got 'x'"), module.use_mem_pool("x"):
        pass
