"""Compares the plugin's declarations of CUDA's driver, of NVRTC, cuBLASLt, cuDNN, NVML and NCCL with NVIDIA's own
headers.

Usage: check_headers.py --compiler CC.

The headers are those of the wheels in HEADERS if this Python has them, or those of the folders that the variables there
name. A library without a header is skipped, and the script prints what to install; the exit code is 77 if nothing was
compared.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLUGIN = HERE.parents[2] / "plugins/cuda"

# The folders in which a header is searched, and the package that contains it.
HEADERS = {"cuda.h": ("CUDA_INCLUDE", "nvidia-cuda-runtime"), "nvrtc.h": ("NVRTC_INCLUDE", "nvidia-cuda-nvrtc"),
           "cublasLt.h": ("CUBLAS_INCLUDE", "nvidia-cublas"), "cudnn.h": ("CUDNN_INCLUDE", "nvidia-cudnn-cu13"),
           "crt/host_defines.h": ("CUDA_CRT_INCLUDE", "nvidia-cuda-crt"), "nvml.h": ("NVML_INCLUDE", "nvidia-nvml-dev"),
           "cuda_runtime.h": ("CUDART_INCLUDE", "nvidia-cuda-runtime"), "nccl.h": ("NCCL_INCLUDE", "nvidia-nccl-cu13")}  # fmt: skip
# The compared sources, with the headers that they need.
SUBJECTS = {"check_headers.c": ("cuda.h", "nvrtc.h"), "check_blas_headers.c": ("cuda.h", "cublasLt.h", "crt/host_defines.h"),
            "check_dnn_headers.c": ("cuda.h", "cudnn.h", "crt/host_defines.h"), "check_nvml_headers.c": ("nvml.h",),
            "check_nccl_headers.c": ("cuda.h", "cuda_runtime.h", "crt/host_defines.h", "nccl.h")}  # fmt: skip


def folder_of(header):
    """The folder of a header; None if there is none."""
    variable = HEADERS[header][0]
    if variable in os.environ:
        folder = Path(os.environ[variable])
        return folder if (folder / header).is_file() else None
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations if found else ():
        for path in sorted(Path(root).glob(f"*/include/{header}")):
            return path.parents[header.count("/")]
    return None


def compare(compiler, source, folders):
    """Returns whether the compiler finds the plugin's declarations equal to those of the headers in these folders."""
    command = [compiler, "-std=gnu11", "-fsyntax-only", "-Wall", "-Werror", "-iquote", str(PLUGIN), "-iquote", str(PLUGIN / "libraries"), str(HERE / source)]
    for folder in folders.values():
        command += ["-isystem", str(folder)]
    equal = subprocess.run(command).returncode == 0
    print(f"{'as in' if equal else 'not as in'} {', '.join(str(folder / name) for name, folder in folders.items())}")
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="cc")
    compiler = parser.parse_args().compiler
    results = []
    for source, headers in SUBJECTS.items():
        folders = {header: folder_of(header) for header in headers}
        missing = [header for header, folder in folders.items() if not folder]
        if missing:
            wanted = ", ".join(f"{header} (pip install {HEADERS[header][1]}, or set {HEADERS[header][0]})" for header in missing)
            print(f"skipped {source}: no {wanted}")
        else:
            results.append(compare(compiler, source, folders))
    return 77 if not results else 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
