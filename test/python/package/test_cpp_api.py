"""The C++ API in a program without Python: CMake finds it in the installed package, with a test suite and an example.
"""

import os
import subprocess
from pathlib import Path

import precompiled
import pytest
import torch

import torch_backend

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(torch_backend.__file__).parent
MINOR = ".".join(torch.__version__.split(".")[:2])


def build(source, folder):
    """Configures and builds a project against the installed package."""
    cmake = Path(torch_backend.__file__).parent / "cmake"
    torch_dir = Path(torch.__file__).parent
    subprocess.run(["cmake", "-S", source, "-B", folder, f"-Dtorch_backend_DIR={cmake}", f"-DTORCH_BACKEND_TORCH_DIR={torch_dir}",
                    *precompiled.settings()], check=True, capture_output=True, text=True)  # fmt: skip
    done = subprocess.run(["cmake", "--build", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(program, *arguments, text="", **settings):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAL_", "TORCH_BACKEND"))}
    return subprocess.run([program, *arguments], input=text, env={**environment, **settings}, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def tests(tmp_path_factory):
    return build(ROOT / "test/cpp", tmp_path_factory.mktemp("cpp")) / "api"


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_the_cpp_api(tests, asynchronous):
    done = run(tests, HAL_FAKE_DEVICES="2", HAL_FAKE_MEMORY="1G", HAL_FAKE_ASYNC=asynchronous)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return build(ROOT / "docs/examples/libtorch", tmp_path_factory.mktemp("example")) / "example"


@pytest.mark.slow
@pytest.mark.parametrize("program", sorted((ROOT / "docs/examples/libtorch").glob("*.cpp")), ids=lambda path: path.stem)
def test_each_example_includes_what_it_needs(program):
    """The examples above are built with more headers than they include."""
    includes = [PACKAGE / "builds" / MINOR / "include", PACKAGE / "include", Path(torch.__file__).parent / "include"]
    done = subprocess.run(["c++", "-std=gnu++20", "-fsyntax-only", *(word for path in includes for word in ("-isystem", path)), program],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_example(example):
    done = run(example)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0.5 * 0.5 * 256 = 64" in done.stdout


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_the_example_of_a_lazy_backend(example, asynchronous):
    done = run(example.parent / "lazy_backend", HAL_FAKE_ASYNC=asynchronous)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "1 graph compiled, 3 programs of 9 operators executed\n"


# A compiler that a library of the process sets, here for a Python program.
NEGATOR = """
#define main example_main
#include "compiler.c"
#undef main

hal_status_t install(void) {
  const hal_compiler_t compiler = {.struct_size = sizeof compiler, .name = "negator", .accepts = accepts, .compile = compile,
                                   .execute = execute, .destroy = destroy};
  return hal_compiler_set(0, &compiler);
}
"""


def test_programs_of_a_compiler_are_counted(tmp_path, run_python):
    library = compile_c(tmp_path, "negator", NEGATOR, f"-I{ROOT / 'docs/examples'}", f"-I{PACKAGE / 'include'}", "-Wl,--no-as-needed", str(PACKAGE / "lib/libtorch_backend_hal.so.0"))
    run_python(f"""
import ctypes, torch, torch_backend
from torch_backend import lazy
x = torch.arange(1000.0).to("fake")
assert ctypes.CDLL({str(library)!r}).install() == 0
with lazy.record():
    y = x.neg()
assert torch.equal(y.cpu(), -torch.arange(1000.0))
assert lazy.metrics()["programs"] == 1, lazy.metrics()
""", TORCH_BACKEND="fake", HAL_FAKE_ASYNC=0)


# A compiler that accepts all float32 operators, reports its graphs, and leaves them to the kernels.
READER = """
#include <hal/hal.h>
#include <hal/compiler.h>
#include <stdio.h>
#include <string.h>

char graphs[10000];
static int32_t accepts(void *state, uint32_t op, const char *name, const hal_op_call_t *call) {
  return call->results[0]->dtype == HAL_FLOAT32;
}
static hal_status_t compile(void *state, const hal_ir_t *ir, void **out_program) {
  char *to = graphs + strlen(graphs);
  for (uint32_t n = 0; n < ir->node_count; n++) to += sprintf(to, "%s ", hal_ir_node(ir, n)->name);
  sprintf(to, "%u values\\n", ir->value_count);
  return HAL_UNIMPLEMENTED;
}
static hal_status_t execute(void *state, void *program, const hal_ir_run_t *run) { return HAL_INTERNAL; }
static void destroy(void *state, void *program) {}
hal_status_t install(void) {
  const hal_compiler_t compiler = {.struct_size = sizeof compiler, .name = "reader", .accepts = accepts, .compile = compile,
                                   .execute = execute, .destroy = destroy};
  return hal_compiler_set(0, &compiler);
}
"""


def test_copies_fills_and_random_numbers_are_nodes_of_a_compilers_graphs(tmp_path, run_python):
    library = compile_c(tmp_path, "reader", READER, f"-I{PACKAGE / 'include'}", "-Wl,--no-as-needed", str(PACKAGE / "lib/libtorch_backend_hal.so.0"))
    run_python(f"""
import ctypes, torch, torch_backend
from torch_backend import lazy
x, w = torch.arange(1000.0).to("fake"), torch.ones(1000).to("fake")
library = ctypes.CDLL({str(library)!r})
assert library.install() == 0
with lazy.record():
    y = x.clone().mul_(2)
    z = torch.full_like(x, 1.5) + y
    w.zero_()
    w.copy_(z)
    r = torch.rand(1000, device="fake")
    lazy.mark_step()
    graphs = (ctypes.c_char * 10000).in_dll(library, "graphs").value.decode()
assert graphs == "copy mul.Tensor fill.Scalar add.Tensor fill.Scalar copy uniform 8 values\\n", graphs
assert torch.equal(w.cpu(), torch.arange(1000.0) * 2 + 1.5) and 0 <= r.min() < r.max() < 1
""", TORCH_BACKEND="fake", HAL_FAKE_ASYNC=0)


# ---- PyTorch of another minor version ----
def compile_c(folder, name, text, *options):
    (folder / f"{name}.c").write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", folder / f"lib{name}.so", folder / f"{name}.c"], check=True)
    return folder / f"lib{name}.so"


def test_a_program_that_finds_another_torch_exits_with_a_message(example, tmp_path):
    other = compile_c(tmp_path, "other", "unsigned long long aoti_torch_abi_version(void) { return 2ull << 56 | 99ull << 48; }")
    done = run(example, LD_PRELOAD=str(other))
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith(f"torch_backend: this program was built for torch {MINOR} and has loaded torch 2.99; build it again")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("python", [Path(path) for path in os.environ.get("TORCH_BACKEND_TEST_PYTHONS", "").split(":") if path], ids=str)
def test_a_program_that_finds_the_libraries_of_another_torch_exits_with_a_message(example, python):
    """The libraries themselves, which lack some functions that this program was linked against."""
    folders = 'import glob, site; print(":".join(glob.glob(site.getsitepackages()[0] + "/torch/lib") + glob.glob(site.getsitepackages()[0] + "/nvidia/*/lib")))'
    done = run(example, LD_LIBRARY_PATH=subprocess.run([python, "-c", folders], check=True, capture_output=True, text=True).stdout.strip())
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith(f"torch_backend: this program was built for torch {MINOR} and has loaded torch 2."), done.stderr


def test_a_program_that_finds_the_library_for_another_torch_exits_with_a_message(example, tmp_path):
    (tmp_path / "map").write_text("torch_backend_for_torch_2.99 { global: *; };")
    compile_c(tmp_path, "torch_backend", "int nothing;", "-Wl,-soname,libtorch_backend.so", f"-Wl,--version-script={tmp_path / 'map'}")
    done = run(example, LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode > 0 and not done.stdout
    assert f"libtorch_backend.so: version `torch_backend_for_torch_{MINOR}' not found (required by {example})" in done.stderr


@pytest.fixture
def other_torch(tmp_path):
    """A folder of torch 2.99, sufficient for finding it."""
    folder = tmp_path / "torch"
    (folder / "include/torch/headeronly").mkdir(parents=True)
    (folder / "include/torch/headeronly/version.h").write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 99\n")
    (folder / "lib").mkdir()
    (folder / "lib/libtorch_cpu.so").write_bytes(b"")
    return folder


def test_cmake_names_the_supported_versions(other_torch, tmp_path):
    done = subprocess.run(["cmake", "-S", ROOT / "docs/examples/libtorch", "-B", tmp_path / "build", f"-Dtorch_backend_DIR={PACKAGE / 'cmake'}",
                           f"-DTORCH_BACKEND_TORCH_DIR={other_torch}"], capture_output=True, text=True)  # fmt: skip
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert f"torch 2.99 is in {other_torch}, and this torch_backend is built for torch" in said and MINOR in said


def test_headers_of_another_torch_are_refused_by_the_compiler(other_torch, tmp_path):
    (tmp_path / "program.cpp").write_text("#include <torch_backend/version.h>\nint main() {}\n")
    headers = PACKAGE / "builds" / MINOR / "include"
    done = subprocess.run(["c++", "-fsyntax-only", f"-I{headers}", f"-I{other_torch / 'include'}", tmp_path / "program.cpp"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode != 0 and f"is built for torch {MINOR}, the headers are of another" in done.stderr


def test_the_parts_of_the_api_that_the_page_explains(example):
    done = run(example.parent / "tour")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["errors", "streams", "events", "memory", "memory", "random"]
    assert "streams: 2000" in done.stdout and "random: equal" in done.stdout


def test_the_service_of_the_tutorial(example):
    replies = [run(example.parent / "service", "fake", threads, text="1 2 3 4\n0 0 0 0\n" * 20) for threads in ("1", "4")]
    assert all(done.returncode == 0 for done in replies), replies[0].stderr + replies[1].stderr
    assert replies[0].stdout == replies[1].stdout and len(replies[0].stdout.splitlines()) == 40
    assert set(replies[0].stdout.splitlines()[1::2]) == {"0"}
