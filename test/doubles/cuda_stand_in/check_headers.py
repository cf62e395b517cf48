"""Compares the plugin's declarations of CUDA's driver and of NVRTC with NVIDIA's own headers.

Usage: check_headers.py --compiler CC.

The headers are those of the wheels nvidia-cuda-runtime and nvidia-cuda-nvrtc where this Python has them, or those of the folders CUDA_INCLUDE and
NVRTC_INCLUDE. The exit code is 77 where there are none: what to install is printed.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLUGIN = HERE.parents[2] / "plugins/cuda"


def folder_of(header, variable):
    """The folder of a header, None when there is none."""
    if variable in os.environ:
        return Path(os.environ[variable])
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations if found else ():
        for path in sorted(Path(root).glob(f"*/include/{header}")):
            return path.parent
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="cc")
    compiler = parser.parse_args().compiler
    folders = {"cuda.h": folder_of("cuda.h", "CUDA_INCLUDE"), "nvrtc.h": folder_of("nvrtc.h", "NVRTC_INCLUDE")}
    missing = [name for name, folder in folders.items() if not folder or not (folder / name).is_file()]
    if missing:
        print(f"skipped: no {' and no '.join(missing)}; pip install nvidia-cuda-runtime nvidia-cuda-nvrtc, or set CUDA_INCLUDE and NVRTC_INCLUDE")
        return 77
    command = [compiler, "-std=gnu11", "-fsyntax-only", "-Wall", "-Werror", "-iquote", str(PLUGIN), str(HERE / "check_headers.c")]
    for folder in folders.values():
        command += ["-isystem", str(folder)]
    done = subprocess.run(command)
    print(f"{'as in' if not done.returncode else 'not as in'} {', '.join(str(folder / name) for name, folder in folders.items())}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
