#!/usr/bin/env python3
"""seconds.py BUDGET REPORT.xml...: prints how long each suite of `make test` took, and its budget (test/seconds.txt).

The reports are JUnit files of ctest and pytest. A suite's seconds are the sum over its tests; with two jobs the time that passes is about half of
it. The table is information: machines differ, so a suite over its budget does not fail the run. Exits with 1 if a test belongs to no suite.
"""

from __future__ import annotations

import fnmatch
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def read_budget(path: Path) -> list[tuple[str, float]]:
    """Returns (pattern of test names, seconds) in the order of the file; a test belongs to the first pattern that matches."""
    rows = [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [(pattern, float(seconds)) for pattern, seconds in rows]


def read_tests(path: Path) -> list[tuple[str, float]]:
    """Returns (name, seconds) of each test of a JUnit file; names of pytest are folder/file::test."""
    tests = []
    for case in xml.parse(path).iter("testcase"):
        scope, name = case.get("classname", ""), case.get("name", "")
        if not scope and name.startswith("test.python."):  # a file that is skipped as a whole
            scope, name = name, "skipped"
        if scope.startswith("test.python."):
            name = scope.removeprefix("test.python.").replace(".", "/") + "::" + name
        tests.append((name, float(case.get("time", 0))))
    return tests


def main(arguments: list[str]) -> int:
    budget = read_budget(Path(arguments[0]))
    spent = {pattern: [0, 0.0] for pattern, _ in budget}
    strangers = []
    for report in arguments[1:]:
        for name, seconds in read_tests(Path(report)):
            suite = next((pattern for pattern, _ in budget if fnmatch.fnmatchcase(name, pattern)), None)
            if suite is None:
                strangers.append(name)
            else:
                spent[suite][0] += 1
                spent[suite][1] += seconds
    print(f"{'suite':<28}{'tests':>7}{'seconds':>9}{'budget':>8}")
    for suite, seconds in budget:
        count, took = spent[suite]
        if count:
            print(f"{suite:<28}{count:>7}{took:>9.0f}{seconds:>8.0f}{'  over' if took > seconds else ''}")
    total, allowed = sum(took for _, took in spent.values()), sum(seconds for suite, seconds in budget if spent[suite][0])
    print(f"{'all':<28}{sum(n for n, _ in spent.values()):>7}{total:>9.0f}{allowed:>8.0f}")
    for name in strangers:
        print(f"{name}: belongs to no suite of {arguments[0]}", file=sys.stderr)
    return 1 if strangers else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
