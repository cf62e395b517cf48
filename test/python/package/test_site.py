"""The site in a browser: no page scrolls horizontally, no link is broken, and each page has screenshots."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from other_torches import make

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "build/docs/html"
CHECK = ROOT / "docs/_tools/check_site.py"


def check(*arguments):
    return subprocess.run([sys.executable, CHECK, *map(str, arguments)], capture_output=True, text=True, timeout=2400)


@pytest.fixture
def chromium():
    if not shutil.which("chromium"):
        pytest.skip("needs chromium (system-packages.txt, purpose browser)")


@pytest.mark.slow
def test_no_page_scrolls_horizontally_and_no_link_is_broken(chromium):
    built = make("docs", timeout=1800)
    assert built.returncode == 0, built.stdout + built.stderr
    shots = ROOT / "build/docs/screenshots"
    done = check(SITE, "--screenshots", shots)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path for path in SITE.rglob("*.html") if "_static" not in path.parts]
    assert len(list(shots.glob("*.png"))) >= 2 * len(pages) > 80


@pytest.mark.slow
def test_a_wide_page_and_a_broken_link_are_found(chromium, tmp_path):
    (tmp_path / "wide.html").write_text('<main><div style="width:900px">wide</div></main>')
    (tmp_path / "link.html").write_text('<a href="missing.html">a</a><a href="wide.html#nowhere">b</a>')
    done = check(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "wide.html: 9" in done.stdout and "at a width of 390" in done.stdout and "at a width of 768" in done.stdout
    assert "at a width of 1010" not in done.stdout and "at a width of 1280" not in done.stdout
    assert "link.html: missing.html: no such file" in done.stdout and "#nowhere: no such place" in done.stdout
    assert "4 findings" in done.stdout
