"""Every snippet and command in the documents works as it stands there."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("lazy/*.md"))]
FENCE = re.compile(r"(?:<!-- test: (?P<test>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.S)


def snippets(language):
    """Returns (id, code) of every snippet of a language that is not marked `test: none`."""
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
    done = subprocess.run([sys.executable, "-P", str(script)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_documents_name_existing_files():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target and not target.startswith("_generated/"):  # `make docs` writes those and checks their links
                assert (document.parent / target).exists(), f"{document.name} links {target}"


def test_documents_name_existing_make_targets():
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for target in re.findall(r"\bmake ([a-z-]+)\b", document.read_text()):
            if target not in ("and",):
                assert re.search(rf"^{target}:|^\.PHONY:.*\b{target}\b", makefile, re.M), f"{document.name}: make {target}"


def test_the_documentation_builds_without_a_warning():
    """The site, the check that every public function has its sentence, and the generated tables."""
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (ROOT / "build/docs/html/_generated/plugin-functions.html").read_text()
    assert "hal_plugin_memory_copy" in page and "hal_plugin_capture_begin" in page
