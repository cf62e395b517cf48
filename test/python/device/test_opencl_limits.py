"""The OpenCL device in PyTorch with exhausted or damaged resources: tensors beyond the driver's limits, a cache of
compiled kernels that several processes fill, that is damaged, or that cannot be written. Results must equal those of
the CPU."""

import os
import subprocess
import sys
import textwrap

import driver_scripts
import pytest

COMPUTE = """
import torch
torch.manual_seed(0)
a, b = torch.randn(40, 30), torch.randint(-5, 5, (40, 30)).float()
x, y = a.to("ocl"), b.to("ocl")
torch.testing.assert_close((x * y + x[1:2]).cpu(), a * b + a[1:2])
torch.testing.assert_close(torch.where(y > 0, x, -y).sum(1).cpu(), torch.where(b > 0, a, -b).sum(1), rtol=1e-5, atol=1e-5)
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Settings with a warm cache of the driver and no cache of the plugin; tests of that cache name a folder."""
    return driver_scripts.opencl_kernels(tmp_path_factory)


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("memory", ["svm-fine", "buffer"])
def test_a_tensor_beyond_the_limits_is_out_of_memory_and_the_device_goes_on(run_python, base, memory):
    script = """
        import torch
        limit = torch.ocl.get_device_properties(0).total_memory
        if limit > 1 << 31:
            print("no limit")  # a driver that ignores POCL_MEMORY_LIMIT
            raise SystemExit
        for size in (limit // 2, limit * 2, 1 << 45, (1 << 62) - 1):
            try:
                torch.empty(size, dtype=torch.uint8, device="ocl")
            except torch.OutOfMemoryError as error:
                assert "CL_DEVICE_MAX_MEM_ALLOC_SIZE" in str(error) or size > limit, error
            else:
                raise SystemExit(f"{size} bytes of {limit}")
        kept = []
        try:
            while len(kept) < 100:
                kept.append(torch.full((limit // 16,), len(kept), dtype=torch.uint8, device="ocl"))
        except torch.OutOfMemoryError:
            assert len(kept) >= 8, len(kept)
        assert all(bool((tensor[-5:].cpu() == value).all()) for value, tensor in enumerate(kept))  # none was overwritten
        del kept
        torch.ocl.empty_cache()
    """
    settings = {**base, "HAL_OPENCL_MEMORY": memory, "POCL_MEMORY_LIMIT": "1"}
    done = run_python(textwrap.dedent(script) + COMPUTE, timeout=300, **settings)
    if "no limit" in done.stdout:
        pytest.skip("the driver does not support a memory limit")


def test_processes_that_fill_one_cache_and_then_a_damaged_one_compute_right(run_python, base, tmp_path):
    folder = tmp_path / "cache"
    environment = {**os.environ, **base, "HAL_CACHE_DIR": str(folder)}
    command = [sys.executable, "-P", "-c", COMPUTE]
    together = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in together:
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0, told
    blobs = files_of(folder)
    assert blobs and not [path for path in blobs if path.suffix != ".blob"], blobs  # no partially written file remains
    for number, path in enumerate(blobs):
        data = bytearray(path.read_bytes())
        if number % 3 == 0:
            data = data[: len(data) // 2]
        elif number % 3 == 1:
            data[len(data) // 2] ^= 1
        else:
            data = bytearray()
        path.write_bytes(data)
    run_python(COMPUTE, timeout=300, **{**base, "HAL_CACHE_DIR": str(folder)})
    assert len(files_of(folder)) == len(blobs) and all(path.stat().st_size for path in files_of(folder))  # made anew


@pytest.mark.parametrize("way", ["a file in its place", "a folder of others"])
def test_an_unusable_cache_is_reported_and_results_are_correct(run_python, base, tmp_path, way):
    folder = tmp_path / "cache"
    if way == "a file in its place":
        folder.write_text("not a folder")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    done = run_python(COMPUTE, timeout=300, **{**base, "HAL_CACHE_DIR": str(folder)})
    assert "are not kept" in done.stderr or way == "a folder of others", done.stderr
