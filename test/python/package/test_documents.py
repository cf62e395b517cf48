"""Each snippet and command in the documents works as written."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import warm_interpreter
from other_torches import make

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
             *sorted((ROOT / "docs").glob("lazy/*.md")), *sorted((ROOT / "docs").glob("plugins/*.md")), *sorted((ROOT / "docs").glob("tutorials/*.md"))]  # fmt: skip
FENCE = re.compile(r"(?:<!-- test: (?P<test>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.S)


def snippets(language):
    """Returns (id, code) of each snippet of a language that is not marked `test: none`."""
    found = []
    for document in DOCUMENTS:
        for number, match in enumerate(FENCE.finditer(document.read_text())):
            if match["language"] == language and (match["test"] or language).strip() == language:
                found.append(pytest.param(match["code"], id=f"{document.parent.name}-{document.name}-{number}"))
    return found


@pytest.mark.parametrize("code", snippets("python"))
def test_python_snippet_runs(code, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_BACKEND"}
    script = tmp_path / "snippet.py"  # a file: processes that it starts import it
    script.write_text(code)
    done = warm_interpreter.run([sys.executable, "-P", script], env=environment, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr


def test_documents_name_existing_files():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)|^\[\w+\]: (\S+)", document.read_text(), re.M):
            target = target[0] or target[1]
            if "://" in target:
                continue
            file = (document.parent / target).resolve()
            if not file.is_relative_to(ROOT / "docs/_generated"):  # `make docs` writes those and checks their links
                assert file.exists(), f"{document.name} links {target}"


def test_the_map_of_pytorchs_guide_names_existing_files():
    named = re.findall(r"`((?:csrc|hal|torch_backend|codegen)(?:/[\w./]+)?)`", (ROOT / "docs/accelerator-guide.md").read_text())
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists() and not (ROOT / "torch_backend/src" / path).exists()] == []


def test_documents_name_existing_make_targets():
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for target in re.findall(r"\bmake ([a-z-]+)\b", document.read_text()):
            if target not in ("and",):
                assert re.search(rf"^{target}:|^\.PHONY:.*\b{target}\b", makefile, re.M), f"{document.name}: make {target}"


# A row of the README's table of support, and a function that a plugin has if and only if its cell has a tick.
SUPPORT = {
    "asynchronous streams": ("stream_create",),
    "pinned memory": ("host_alloc",),
    "native operators (portable kernels)": ("module_load",),
    "graphs of the driver": ("graph_launch",),
    "memory shared between processes": ("ipc_export",),
    "sensors: `torch-backend smi`": ("device_sensor",),
    "the vendor's libraries": ("op_find",),
}


def test_the_table_of_support_lists_what_the_plugins_implement():
    section = (ROOT / "README.md").read_text().partition("## Support")[2].partition("\n## ")[0]
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    plugins = [re.match(r"\[(\w+)\]", cell)[1] for cell in head[1:]]
    sources = {plugin: "".join(path.read_text() for path in (ROOT / "plugins" / plugin).rglob("*.c")) for plugin in plugins}
    assert {row[0] for row in rows} == set(SUPPORT)
    for name, *cells in rows:
        for plugin, cell in zip(plugins, cells, strict=True):
            implemented = [re.search(rf"^hal_status_t hal_plugin_{function}\(", sources[plugin], re.M) for function in SUPPORT[name]]
            assert all(implemented) == any(implemented) == (cell == "✓"), f"{plugin}: {name}"


def test_the_guide_names_the_plugins_that_use_each_helper():
    guide = (ROOT / "docs/porting.md").read_text().partition("## Helpers of the SDK")[2].partition("\n## ")[0]
    files = {folder.name: "".join(path.read_text() for path in folder.rglob("*.[ch]")) for folder in (ROOT / "plugins").iterdir() if folder.is_dir()}
    named = dict(re.findall(r"`hal/(plugin_\w+)\.h`(?:: (?:.|\n)*?used\s+by: | \|[^|]*\| )((?:[^\n|]|\n  )*)", guide))
    assert len(named) >= 12
    for header, users in named.items():
        if "all shipped plugins" not in users:
            using = {plugin for plugin, text in files.items() if f'"hal/{header}.h"' in text or f"<hal/{header}.h>" in text}
            assert set(re.findall(r"`(\w+)`", users)) <= using, header


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 900


def test_each_public_function_of_the_headers_is_documented():
    done = make("docs-headers", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hal_plugin_memory_copy" in (ROOT / "build/docs/c/xml/plugin_8h.xml").read_text()


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning():
    """The site, the check that each public function is documented, and the generated tables."""
    done = make("docs", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (ROOT / "build/docs/html/_generated/plugin-functions.html").read_text()
    assert "hal_plugin_memory_copy" in page and "hal_plugin_capture_begin" in page


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").glob("tutorials/*.md")), *sorted((ROOT / "docs").glob("plugins/*.md"))], ids=lambda page: page.stem)
def test_tutorials_and_pages_of_plugins_have_a_picture_with_a_source(page):
    pictures = re.findall(r"_generated/([\w-]+)\.svg", page.read_text())
    assert pictures, page
    sources = (ROOT / "docs/_tools/pictures.py").read_text()
    assert [name for name in pictures if not (ROOT / f"docs/pictures/{name}.dot").exists() and name not in sources and not (ROOT / f"docs/figures/{name}.csv").exists()] == []
