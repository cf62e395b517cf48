"""The programs of docs/plugins run: on mock drivers, and the program of protected memory up to its report."""

import os
import re
import signal
import sys
from pathlib import Path

import driver_scripts
import pytest
import warm_interpreter

PAGES = Path(__file__).resolve().parents[3] / "docs/plugins"
SETTINGS = {"opencl": driver_scripts.opencl_settings, "vulkan": driver_scripts.vulkan_settings, "npu": driver_scripts.npu_settings,
            "cuda": driver_scripts.cuda_settings, "pjrt": driver_scripts.pjrt_settings}


def programs(page, mark):
    """Returns the programs of a page with this mark."""
    return re.findall(rf"<!-- test: {mark} -->\n```python\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.S)


def run(code, folder, **settings):
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_BACKEND"}
    script = folder / "program.py"
    script.write_text(code)
    return warm_interpreter.run([sys.executable, "-P", script], env={**environment, **settings}, cwd=folder, timeout=300)


@pytest.mark.parametrize("plugin", SETTINGS)
def test_the_programs_of_a_page_run(plugin, tmp_path, tmp_path_factory):
    settings = SETTINGS[plugin](driver_scripts.kernels(tmp_path_factory, plugin))
    del settings["TORCH_BACKEND"]  # the programs select the plugin
    found = programs(plugin, plugin)
    assert found
    for code in found:
        done = run(code, tmp_path, **settings)
        assert done.returncode == 0 and done.stdout.strip(), done.stderr
    assert plugin in ("opencl", "vulkan", "pjrt") or "test double" in done.stdout, done.stdout


def test_the_host_access_of_the_page_is_reported(tmp_path):
    (code,) = programs("fake", "protected")
    done = run(code, tmp_path, HAL_FAKE_PROTECT="1")
    assert done.returncode == -signal.SIGSEGV, done.stderr
    (report,) = re.findall(r'# HAL_FAKE_PROTECT=1: "(.*)"', code)
    assert report in done.stderr
    assert run(code, tmp_path, HAL_FAKE_PROTECT="0").returncode == 0


def test_each_shipped_plugin_has_a_page():
    folders = {path.parent.name for path in PAGES.parents[1].glob("plugins/*/CMakeLists.txt")}
    assert {path.stem for path in PAGES.glob("*.md")} == folders - {"template", "threads"}  # which are examples
