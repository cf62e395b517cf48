"""Compiles the sources of the portable kernels with the third-party compilers of devices.

Usage: compile_kernels.py [--all] [--with COMPILER ...]

  opencl-c        clang as a compiler of OpenCL C 1.2: a kernel of that name, with at most 1024 bytes of arguments
  no-fp64         the same without double precision: all kernels but those of float64 and complex128
  offsets         the same with PK_POINTER_OFFSETS, and double precision
  spirv           clang, llvm-spirv and spirv-val
  pocl            clBuildProgram and clCreateKernel of an OpenCL device that the ICD loader finds
  nvrtc           NVIDIA's run-time compiler, from the wheel nvidia-cuda-nvrtc or HAL_CUDA_NVRTC: for compute capability
                  7.5, 9.0 and 10.0, each of a sample for one of them

Without --all one kernel of each template, dtype and variant is compiled by opencl-c; by the others one of each template
and dtype, with varying variants. The exit code is 1 if a kernel does not compile, and 77 if no compiler is installed;
missing compilers are printed.
"""
import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))

import compilers  # noqa: E402
import entries  # noqa: E402
import kernels as codegen  # noqa: E402

SHOWN = 5  # messages


def sample(instances, few):
    """One kernel for each template, dtype and variant; of copies one for each target and variant. `few`: one for each
    template and dtype, with varying variants."""
    seen = {}
    for instance, template in instances:
        for variant in instance.variants:
            seen.setdefault((instance.unit_file, variant.name), instance.prefix + variant.name)
    if few:
        by_file = {}
        for (file, _), name in seen.items():
            by_file.setdefault(file, []).append(name)
        return sorted(names[place % len(names)] for place, names in enumerate(by_file.values()))
    return sorted(seen.values())


def needs_double(name):
    return not {"f64", "c128"}.isdisjoint(name.split("_"))


def all_texts():
    """The source of each kernel by its name, and the (instance, template) pairs from which they are generated."""
    files = codegen.collect_instances(entries.load())
    return dict(codegen.device_sources(files).units()), [pair for pairs in files.values() for pair in pairs]


def chosen_texts(every, few):
    """The sources of all kernels, or of a sample."""
    texts, instances = all_texts()
    return texts if every else {name: texts[name] for name in sample(instances, few)}


def check(compiler, name, texts, workers):
    """Compiles all texts; returns the number of errors."""
    missing = compiler.missing()
    if missing:
        print(f"{name}: skipped: {missing}")
        return None
    failed = 0
    with ProcessPoolExecutor(workers) as pool:
        for kernel, message in zip(texts, pool.map(compiler.compile, texts, texts.values(), chunksize=8)):
            if message:
                failed += 1
                if failed <= SHOWN:
                    print(f"{name}: {kernel}: {message}")
    print(f"{name}: {len(texts) - failed} of {len(texts)} kernels compile")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every kernel, not a sample")
    parser.add_argument("--with", dest="names", nargs="+", choices=list(compilers.COMPILERS), default=list(compilers.COMPILERS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    texts, instances = all_texts()
    simt = {instance.prefix + variant.name for instance, _ in instances for variant in instance.variants if variant.simt}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            compiler = compilers.COMPILERS[name](folder)
            compiler.every = options.all
            chosen = list(texts) if options.all else sample(instances, compiler.few)
            kept = [kernel for kernel in chosen if (compiler.double or not needs_double(kernel)) and (compiler.simt or kernel not in simt)]
            results.append(check(compiler, name, {kernel: texts[kernel] for kernel in kept}, options.jobs))
            sys.stdout.flush()
    if any(results):
        sys.exit(1)
    if all(result is None for result in results):
        sys.exit(77)


if __name__ == "__main__":
    main()
