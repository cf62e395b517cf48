"""PyTorch's headers, compiled once for all programs in C++ that tests build: parsing them takes most of a build's time.

The programs include what they need themselves; test_cpp_api.py compiles them without this in `make test-full`."""

import fcntl
import hashlib
import subprocess
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).parent
HEADERS = ("ATen/ATen.h", "ATen/core/dispatch/Dispatcher.h", "ATen/core/stack.h", "torch/csrc/autograd/autograd_not_implemented_fallback.h",
           "torch/csrc/autograd/custom_function.h", "torch/library.h")  # fmt: skip
# Another level of optimization, position-independence or language standard needs other compiled headers.
OPTIONS = ["-O0", "-fPIC", "-std=gnu++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]


def _key():
    """A text that differs when the compiled headers would."""
    compiler = subprocess.run(["c++", "--version"], check=True, capture_output=True, text=True).stdout
    changed = [(TORCH / "include" / header).stat().st_mtime_ns for header in HEADERS]
    return hashlib.sha256(repr((compiler, OPTIONS, torch.__version__, str(TORCH), changed)).encode()).hexdigest()[:16]


def settings():
    """Arguments of CMake with which a project's files in C++ use the compiled headers. Compiles them at the first call
    of any process."""
    folder = ROOT / "build" / f"precompiled-{_key()}"
    folder.mkdir(parents=True, exist_ok=True)
    header, compiled = folder / "torch_headers.h", folder / "torch_headers.h.gch"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not compiled.exists():
            # Libraries for every torch may include only its stable headers; they do not use the compiled ones.
            lines = ["#ifndef TORCH_STABLE_ONLY", *(f"#include <{name}>" for name in HEADERS), "#endif"]
            header.write_text("\n".join(lines) + "\n")
            includes = [word for part in ("include", "include/torch/csrc/api/include") for word in ("-isystem", TORCH / part)]
            subprocess.run(["c++", *OPTIONS, *includes, "-x", "c++-header", header, "-o", folder / "unfinished"], check=True)
            (folder / "unfinished").rename(compiled)
            (folder / "use.cmake").write_text(f'add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-fPIC -include {header}>")\n')
    return ["-DCMAKE_CXX_FLAGS=-O0", f"-DCMAKE_PROJECT_INCLUDE={folder / 'use.cmake'}"]
