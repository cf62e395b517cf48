"""`make release` refuses a tree that cannot be released, with the reason."""

import datetime
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def tree(tmp_path):
    """A git tree of version 1.2.3 that can be released."""
    (tmp_path / "CMakeLists.txt").write_text("project(torch_backend VERSION 1.2.3 LANGUAGES C CXX)\n")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## 1.2.3 ({datetime.date.today()})\n- First.\n\n## 1.2.2 (2020-01-01)\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(tree, *arguments):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments], cwd=tree, check=True, capture_output=True)


def commit(tree):
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "x")


def check(tree):
    return subprocess.run([sys.executable, str(ROOT / "cmake/check_release.py"), "--root", str(tree)], capture_output=True, text=True, timeout=60)


def test_a_tree_that_can_be_released(tree):
    done = check(tree)
    assert (done.returncode, done.stderr) == (0, "") and "git tag -a v1.2.3" in done.stdout


@pytest.mark.parametrize(
    ("heading", "error"),
    [
        ("1.2.3 (unreleased)", "'unreleased' is not the date of a release"),
        ("1.2.3 (9999-01-01)", "is in the future"),
        ("1.2.2 (2020-01-01)", "begins with version 1.2.2, CMakeLists.txt names 1.2.3"),
        ("no version", "has no section"),
    ],
)
def test_a_changelog_that_does_not_fit(tree, heading, error):
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n- First.\n")
    commit(tree)
    done = check(tree)
    assert done.returncode == 1 and done.stderr.count("error:") == 1 and error in done.stderr


def test_uncommitted_changes_and_an_old_tag(tree):
    git(tree, "tag", "v1.2.3")
    (tree / "file").write_text("")
    done = check(tree)
    assert done.returncode == 1 and "uncommitted changes" in done.stderr and "the tag v1.2.3 exists" in done.stderr
