"""The tests of the opencl plugin on Intel's OpenCL runtime for CPUs, which supports features that PoCL lacks: unified
shared memory, SPIR-V, half precision.

    python test/intel_opencl.py [--fast]     what `make test-intel-opencl` runs

With --fast: one kind of memory, and no operators or models. Installs requirements/intel-opencl.txt into
build/intel-opencl. If that is not available, or finds no device, prints the reason and exits with 0.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "intel-opencl"
BUILD = ROOT / "build" / "release"
KINDS = ("usm", "svm-fine", "svm-coarse", "buffer")
# The programs of the plugin, and operators in both variants of the kernels: those of test/hal/CMakeLists.txt that `make
# test` runs on PoCL.
PROGRAMS = "^hal_opencl_|^hal_(op_.*|program.*|lazy.*)_opencl_(cpu|simt)$"
PROBE = "import torch, torch_backend; torch_backend.use('opencl'); print(torch.ocl.device_count(), torch.ocl.get_device_name(0))"


def skip(why):
    print(f"test-intel-opencl: skipped: {why}")
    sys.exit(0)


def run(what, command, settings, **options):
    print(f"== {what}", flush=True)
    return subprocess.run([str(part) for part in command], env={**os.environ, **settings}, cwd=ROOT, **options).returncode


def install():
    """Returns the settings with which the loader finds Intel's runtime only."""
    python = FOLDER / "bin" / "python"
    library = FOLDER / "lib" / "libintelocl.so"
    if not library.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        done = subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "-r", ROOT / "requirements" / "intel-opencl.txt"],
                              capture_output=True, text=True)  # fmt: skip
        if done.returncode or not library.exists():
            skip(f"the runtime cannot be installed: {(done.stderr or done.stdout).strip()[-400:]}")
    vendors = FOLDER / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "intel.icd").write_text(f"{library}\n")
    caches = {"HAL_CACHE_DIR": FOLDER / "cache", "POCL_CACHE_DIR": FOLDER / "cache" / "pocl"}
    return {"OCL_ICD_VENDORS": f"{vendors}/", "TORCH_BACKEND": "opencl", **{name: str(path) for name, path in caches.items()}}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--fast", action="store_true")
    fast = options.parse_args().fast
    settings = install()
    found = subprocess.run([sys.executable, "-P", "-c", PROBE], env={**os.environ, **settings}, capture_output=True, text=True)
    if found.returncode or not found.stdout.strip() or found.stdout.startswith("0"):
        skip(f"the runtime has no device on this machine: {found.stderr.strip()[-400:]}")
    print(f"devices: {found.stdout.strip()}")
    failed = []
    suite = [BUILD / "bin" / "hal-cts", "--plugin", BUILD / "plugins" / "libhal_opencl.so", "--xfail", ROOT / "test" / "cts" / "intel.xfail"]
    for kind in KINDS[:1] if fast else KINDS:
        # Graphs are launches, as for each CPU: command buffers of this runtime leak 2.7 KB each (leak.graph).
        # opencl_graph tests them as well.
        if run(f"conformance, {kind}", suite, {**settings, "HAL_OPENCL_MEMORY": kind}):
            failed.append(f"conformance in {kind}")
    programs = "^hal_opencl_.*_usm$" if fast else PROGRAMS
    tests = ["ctest", "--test-dir", BUILD, "--output-on-failure", "-j", os.cpu_count(), "-LE", "^slow$", "-R", programs]
    if run("programs in C", tests, settings):
        failed.append("programs in C")
    if not fast:
        models = [sys.executable, "-P", "-m", "pytest", "-q", "-m", "", "test/python/device/test_opencl.py", "-k", "models_train or captured or lazy"]
        if run("models", models, settings):
            failed.append("models")
    if failed:
        sys.exit(f"test-intel-opencl: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
