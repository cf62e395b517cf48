"""Sphinx: the site of torch_backend. Built by `make docs`, which runs doxygen first; warnings are errors."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
GENERATED = HERE / "_generated"  # written by each build, ignored by git
OUT = Path(os.environ["DOXYGEN_OUT"])

project = "torch_backend"
copyright = "the torch_backend authors"
extensions = ["breathe", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
breathe_projects = {"c": str(OUT / "c/xml"), "cpp": str(OUT / "cpp/xml")}
breathe_default_project = "c"
breathe_show_include = False
myst_heading_anchors = 3
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_tools", "examples", "**/README.md", "_generated/entry-keys.md"]
autodoc_member_order = "bysource"
nitpicky = False

GENERATED.mkdir(exist_ok=True)
sys.path.insert(0, str(HERE / "_tools"))
import pictures  # noqa: E402  found by the line above

pictures.make(GENERATED)
for name in pictures.README:
    if pictures.words(GENERATED / f"{name}.svg") != pictures.words(HERE / f"pictures/{name}.svg"):
        raise RuntimeError(f"docs/pictures/{name}.svg differs from its source: run 'make pictures' and commit the file")
subprocess.run([sys.executable, HERE / "_tools/plugin_functions.py", GENERATED / "plugin-functions.md"], check=True)
subprocess.run([sys.executable, HERE / "_tools/support_matrix.py", GENERATED / "support-matrix.md"], check=True)
keys = subprocess.run([sys.executable, HERE.parent / "codegen/entry_schema.py", "--table"], check=True, capture_output=True, text=True)
(GENERATED / "entry-keys.md").write_text(keys.stdout, encoding="utf-8")
operators = "# Operators with kernels\n\nFrom `codegen/operators`: the operators of ATen that run natively wherever a plugin loads modules and " \
    "launches kernels. `torch-backend coverage` lists those of an installation, with composed operators.\n\n"  # fmt: skip
(GENERATED / "operators.md").write_text(operators + Path(os.environ["OPERATORS_MD"]).read_text(encoding="utf-8"), encoding="utf-8")
