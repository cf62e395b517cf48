"""check_release.py [--root DIR]: checks that the tree can be released as the version that CMakeLists.txt names.

The changelog begins with a section for that version and today's or an earlier date, git has no uncommitted change, and the tag
does not exist yet. Prints each problem with its cure; the exit code is 1 if there is one. If there is none, prints the commands
that publish the release.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

HEADING = re.compile(r"^## (?P<version>\S+) \((?P<date>[^)]+)\)$", re.M)


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def version_of(root: Path) -> str:
    """Returns the version that CMakeLists.txt names."""
    return re.search(r"project\(torch_backend VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def changelog_problems(text: str, version: str, today: datetime.date):
    """Yields what is wrong with the first section of the changelog."""
    heading = HEADING.search(text)
    if heading is None:
        yield f"CHANGELOG.md has no section: begin it with '## {version} ({today})'"
    elif heading["version"] != version:
        yield f"CHANGELOG.md begins with version {heading['version']}, CMakeLists.txt names {version}: make them equal"
    else:
        try:
            date = datetime.date.fromisoformat(heading["date"])
        except ValueError:
            yield f"CHANGELOG.md: '{heading['date']}' is not the date of a release: write '## {version} ({today})'"
        else:
            if date > today:
                yield f"CHANGELOG.md: {date} is in the future: write '## {version} ({today})'"


def problems(root: Path, today: datetime.date):
    """Yields each reason why the tree cannot be released."""
    version = version_of(root)
    yield from changelog_problems((root / "CHANGELOG.md").read_text(encoding="utf-8"), version, today)
    if changed := git(root, "status", "--short"):
        yield f"git has uncommitted changes: commit or revert them\n{changed}"
    if git(root, "tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists: raise the version in CMakeLists.txt"


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    root = parser.parse_args(arguments).root
    found = list(problems(root, datetime.date.today()))
    for problem in found:
        print(f"check_release.py: error: {problem}", file=sys.stderr)
    if not found:
        version = version_of(root)
        print(f"torch_backend {version} can be released. After the tests have passed:")
        print(f"  git tag -a v{version} -m 'torch_backend {version}' && git push origin v{version} && twine upload dist/*")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
