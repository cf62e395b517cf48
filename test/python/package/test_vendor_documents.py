"""The documents for vendors are correct: the guides' claims about own operators, packages and CMake, and the functions
that the host uses."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torch_backend

ROOT = Path(__file__).resolve().parents[3]
CMAKE_DIR = Path(torch_backend.__file__).parent / "cmake"
LIST = (ROOT / "hal/include/hal/plugin_ops.def").read_text()


def run(command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


# ---- functions that are not called ----


def slots():
    """{slot: the comment above it} of the single list."""
    found = re.findall(r"/\* ((?:(?!\*/).)*?) \*/\s*HAL_OP\(\d+, \w, \w+, \w+, (\w+),", LIST, re.S)
    return {name: comment for comment, name in found}


def called():
    """The slots that the HAL's sources call; layers and the defaults of the SDK only forward calls."""
    files = [path for folder in ("hal/src", "hal/ops") for path in (ROOT / folder).rglob("*.[ch]")]
    calls = r"\bhal_call_(\w+)\(|\bHAL_CALL_(?:QUIETLY|AFTER)\([^,]+,\s*(\w+)"
    return {name for path in files for names in re.findall(calls, path.read_text()) for name in names if name}


def test_exactly_the_slots_that_no_source_calls_are_documented_as_not_used_yet():
    assert len(slots()) == len(re.findall(r"^HAL_OP\(", LIST, re.M))
    said = {name for name, comment in slots().items() if "Not used yet." in comment}
    assert said == set(slots()) - called()


@pytest.mark.parametrize("plugin", ["cuda", "npu"])
def test_the_page_of_a_plugin_has_its_number_of_lines(plugin):
    stated = int(re.search(r"about ([\d,]+) lines", (ROOT / f"docs/plugins/{plugin}.md").read_text())[1].replace(",", ""))
    files = [path for path in (ROOT / "plugins" / plugin).rglob("*") if path.suffix in (".c", ".h")]
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert abs(stated - lines) <= lines / 10, f"docs/plugins/{plugin}.md: about {stated} lines; plugins/{plugin} has {lines}"


def test_the_guides_promise_no_function_that_nothing_calls():
    unused = set(slots()) - called()
    for guide in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("lazy/*.md"), *(ROOT / "docs/plugins").glob("*.md"), *(ROOT / "plugins").glob("*/README.md"), ROOT / "README.md"]:
        if guide.parent.name == "fake":  # reports its implementation, for future callers
            continue
        for line in guide.read_text().splitlines():
            promised = {name for name in unused if re.search(rf"\b{name}\b", line)}
            assert not promised or "not used yet" in line.lower(), f"{guide.name} promises {promised}"


def test_only_dialects_that_the_host_uses_are_promised():
    """The host's own kernels use these dialects, and no document promises another one."""
    used = re.search(r"\bdialects\[\] = \{([^}]*)\}", (ROOT / "hal/src/op/provider.c").read_text())[1]
    names = re.findall(r'"([\w-]+)"', used)
    header = " ".join((ROOT / "hal/include/hal/plugin.h").read_text().replace(" * ", " ").split())
    promised = re.search(r"the first of ([^.]*?) that the device lists", header)[1]
    assert re.findall(r'"([\w-]+)"', promised) == names
    porting = (ROOT / "docs/porting.md").read_text()
    (row,) = re.findall(r"^- `module_load`.*?\n(?=-|\n)", porting, re.M | re.S)
    assert set(re.findall(r'"([\w-]+)"', row)) - {"binary"} == set(names)


def test_the_fake_pool_has_one_policy_for_idle_threads():
    """FAKE_SPIN_FOR of sync.h: no other loop of the pool reads the clock or yields."""
    pool = (ROOT / "plugins/fake/pool.c").read_text()
    assert pool.count("FAKE_SPIN_FOR(") == 1 and "sched_yield" not in pool and "FAKE_RELAX" not in pool
    assert not re.search(r"(for|while) \([^)]*fake_now\(\)", pool)


# ---- own operators ----


def test_own_operators_are_queried_as_the_guide_describes(run_python, build_plugin):
    text = (ROOT / "docs/own-operators.md").read_text()
    code, lines = re.findall(r"<!-- test: own operators -->\n```\w+\n(.*?)```", text, re.S)
    lines = lines.replace("\n  ", " ")  # a long call has a second line
    done = run_python(f"import torch, torch_backend\ndevice = torch_backend.device_name()\n{code}",
                      TORCH_BACKEND=build_plugin("declines_all"), HAL_ALLOW_UNSAFE_PLUGINS=1, HAL_LAYERS="trace")  # fmt: skip
    traced = re.findall(r"> five\.op run (.*), device=0, stream=", done.stderr)
    assert len(lines.splitlines()) > 8
    assert [line for line in lines.splitlines() if line not in traced] == [], "\n".join(traced)


def test_op_find_is_called_once_per_operator_at_its_first_use(run_python, build_plugin):
    done = run_python(
        """
        import sys, torch, torch_backend
        x = torch.ones(3).to("five")
        print("first", file=sys.stderr)
        for _ in range(3):
            x.neg()
        """,
        TORCH_BACKEND=build_plugin("declines_all"), HAL_ALLOW_UNSAFE_PLUGINS=1, HAL_LAYERS="trace",
    )  # fmt: skip
    before, _, after = done.stderr.partition("first\n")
    question = '> five.op_find(device=0, name="neg")'
    assert question not in before and after.count(question) == 1


# ---- out of the tree ----


def test_the_commands_of_the_tutorial_in_c_build_and_run_the_program(tmp_path):
    (commands,) = re.findall(r"<!-- test: c program -->\n```bash\n(.*?)```", (ROOT / "docs/tutorials/c-program.md").read_text(), re.S)
    shutil.copytree(ROOT / "docs/examples", tmp_path / "docs/examples")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = run(["bash", "-e", "-c", commands], cwd=tmp_path, env=environment)
    assert "added two vectors of 1000 floats, 0 sums are wrong" in done.stdout


SOURCE = r"""
#include <hal/plugin.h>
#include <stdlib.h>
#include <string.h>
hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = "mine", out_info->vendor = "me", out_info->version = "1";
  return HAL_OK;
}
hal_status_t hal_plugin_device_count(int32_t *out_count) { return *out_count = 1, HAL_OK; }
hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)flags;
  return *out_ptr = aligned_alloc(256, (size + 255) / 256 * 256), *out_ptr ? HAL_OK : HAL_RESOURCE_EXHAUSTED;
}
hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) { return (void)device, free(ptr), HAL_OK; }
hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  if (size) memcpy(dst, src, size);
  return HAL_OK;
}
"""


@pytest.mark.parametrize("language", ["C", "CXX"])
@pytest.mark.parametrize("way, arguments", [
    ("find_package(torch_backend_hal REQUIRED)", ["-Dtorch_backend_hal_DIR={cmake}"]),
    ("include(hal_add_plugin)", ["-DCMAKE_MODULE_PATH={cmake}"]),
], ids=["find_package", "include"])  # fmt: skip
def test_a_project_of_c_or_of_cxx_alone_builds_a_plugin(tmp_path, run_python, language, way, arguments):
    suffix = {"C": "c", "CXX": "cpp"}[language]
    (tmp_path / f"mine.{suffix}").write_text(SOURCE)
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.22)\nproject(mine LANGUAGES {language})\n{way}\nhal_add_plugin(hal_mine mine.{suffix})\n")
    run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", *(argument.format(cmake=CMAKE_DIR) for argument in arguments)])
    run(["cmake", "--build", tmp_path / "build"])
    run_python(
        """
        import torch, torch_backend
        x = torch.ones(1000, device="mine")
        free, total = torch.mine.mem_get_info()  # the device's size is unknown: the allocated size
        assert total >= x.nbytes and 0 <= free <= total - x.nbytes, (free, total)
        try:
            torch.mine.set_per_process_memory_fraction(0.5)
        except RuntimeError as error:
            assert "memory_info" in str(error), error
        else:
            raise SystemExit("a fraction of an unknown size")
        assert torch.mine.can_device_access_peer(0, 0) is False
        """,
        TORCH_BACKEND=tmp_path / "build/libhal_mine.so", HAL_ALLOW_UNSAFE_PLUGINS=1,
    )  # fmt: skip


def test_the_template_is_a_package_as_the_guide_describes(tmp_path, run_python, monkeypatch):
    """The project that new-plugin creates, with the command of docs/packaging.md; the wheel depends on no Python and no
    PyTorch."""
    source, folder = tmp_path / "acme", tmp_path / "site"
    run([sys.executable, "-P", "-m", "torch_backend", "new-plugin", "acme", "--directory", source])
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", tmp_path, "."], cwd=source, env=environment)
    (wheel,) = tmp_path.glob("acme_plugin-0.1-py3-none-*.whl")
    run([*pip, "install", "--no-deps", "--target", folder, wheel])
    folder.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    script = "import torch, torch_backend; print(torch_backend.plugins()[0].path, torch.ones(2, device='acme').cpu().tolist())"
    done = run_python(script, TORCH_BACKEND="acme", HAL_ALLOW_UNSAFE_PLUGINS=1)
    assert done.stdout.split(maxsplit=1) == [str(folder / "acme_plugin/libhal_acme.so"), "[1.0, 1.0]\n"]
