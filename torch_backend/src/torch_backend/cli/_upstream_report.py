"""Counts and comparisons of the results of `torch-backend upstream`."""

from __future__ import annotations

import collections
import fnmatch
import re
from pathlib import Path

from . import _output
from ._upstream_run import Result

LAYOUT = 1
BAD = ("failed", "crashed", "hung")
COLUMNS = ("passed", "failed", "expected", "on the CPU, too", "skipped")


def on_cpu(test: str, device: str) -> str:
    """Returns PyTorch's name on the CPU of a test of `device`: TestSortFAKE.test_sort_fake_float32 is
    TestSortCPU.test_sort_cpu_float32."""
    file, suite, name = test.split(".", 2)
    suite = re.sub(rf"{re.escape(device.upper())}$", "CPU", suite)
    return f"{file}.{suite}.{re.sub(rf'_{re.escape(device)}(?=_|$)(?!.*_{re.escape(device)}(?=_|$))', '_cpu', name)}"


def read_expected(path) -> dict:
    """Returns the reasons by the patterns of a file with lines `TEST reason`; in TEST, `*` is any text.

    ValueError: the file cannot be read, or a line has no reason.
    """
    found = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            pattern, _, reason = line.strip().partition(" ")
            if not reason.strip():
                raise ValueError(f'{path}:{number}: write "TEST reason"')
            found[pattern] = reason.strip()
    return found


def judge(results: dict, cpu: dict, expected: dict, device: str) -> tuple:
    """Returns ({test: (column of COLUMNS, Result)}, patterns of `expected` that match no test that fails)."""
    judged, used = {}, set()
    for test, result in sorted(results.items()):
        pattern = next((pattern for pattern in expected if fnmatch.fnmatchcase(test, pattern)), None)
        twin = cpu.get(on_cpu(test, device))
        column = result.outcome
        if result.outcome in BAD:
            column = "expected" if pattern else "on the CPU, too" if twin and twin.outcome in BAD else "failed"
            used.update([pattern] if pattern else [])
        judged[test] = column, result
    return judged, [pattern for pattern in expected if pattern not in used]


def counts(judged: dict) -> dict:
    """Returns the numbers of tests by file and column."""
    table = collections.defaultdict(collections.Counter)
    for test, (column, _) in judged.items():
        table[test.split(".", 1)[0]][column] += 1
    return dict(sorted(table.items()))


def rate(row) -> float:
    """Returns the share of tests that passed, of those that ran on the device and do not fail on the CPU, too."""
    ran = row["passed"] + row["failed"] + row["expected"]
    return row["passed"] / ran if ran else 0.0


def show(judged: dict, errors: dict, unused: list) -> None:
    """Prints the numbers of each file, the failures with their errors, and what is wrong with the expectations."""
    table = counts(judged)
    width = max([len(file) for file in table] + [4])
    print(f"{'file':{width}}  " + "  ".join(f"{column:>{max(len(column), 6)}}" for column in COLUMNS) + "  pass rate")
    for file, row in [*table.items(), *([("all", sum(table.values(), collections.Counter()))] if len(table) > 1 else [])]:
        cells = "  ".join(f"{row[column]:>{max(len(column), 6)}}" for column in COLUMNS)
        print(f"{file:{width}}  {cells}  {rate(row):9.1%}")
    for test, (column, result) in judged.items():
        if column == "failed":
            print(f"{_output.colored(result.outcome.upper(), 'red')} {test}: {result.message}")
    for file, error in errors.items():
        print(f"{_output.colored('ERROR', 'red')} {file}: {error}")
    for pattern in unused:
        print(f"{_output.colored('UNUSED', 'red')} {pattern}: no test of this name fails; remove the line")


def document(judged: dict, errors: dict, about: dict) -> dict:
    """Returns the results for programs."""
    tests = {test: {"outcome": column, "message": result.message, "seconds": result.seconds} for test, (column, result) in judged.items()}
    return {"program": "torch-backend upstream", "layout": LAYOUT, **about, "tests": tests, "errors": errors}


def read(path) -> dict:
    """Returns the results of an earlier run. ValueError: the file is not one."""
    found = _output.read_results(path, "torch-backend upstream", LAYOUT, "upstream")
    if not isinstance(found.get("tests"), dict):
        raise ValueError(f'{path} is damaged: "tests" is not a table. Run `upstream --json` again')
    if not all(isinstance(test, dict) and test.get("outcome") in COLUMNS for test in found["tests"].values()):
        raise ValueError(f'{path} is damaged: a test has no outcome of {", ".join(COLUMNS)}. Run `upstream --json` again')
    if not isinstance(found.get("errors", {}), dict):
        raise ValueError(f'{path} is damaged: "errors" is not a table. Run `upstream --json` again')
    return found


def show_changes(before: dict, judged: dict, errors: dict, path) -> int:
    """Prints what changed since the run in the file `path`. Returns 1 if a test that passed does not pass now, if a new
    test fails, or if a file cannot be run, or else 0. Tests that only the earlier run has are counted."""
    worse, better, other = [], [], 0
    for test, (column, result) in judged.items():
        old = before["tests"].get(test, {}).get("outcome")
        line = f"{test}: {old or 'new'} -> {column}" + (f": {result.message}" if result.message else "")
        if old == column:
            continue
        if column == "failed" or old == "passed":
            worse.append(line)
        elif column == "passed" and old is not None:
            better.append(line)
        else:
            other += 1
    worse += [f"{file}: {error}" for file, error in errors.items() if file not in before.get("errors", {})]
    missing = len(before["tests"].keys() - judged.keys())
    verdict = _output.colored(f"{len(worse)} worse", "red") if worse else _output.colored("nothing is worse", "green")
    versions = ", ".join(f"{name} {before[name]}" for name in ("torch", "device") if name in before)
    print(f"\ncompared with {path} ({versions}): {verdict}, {len(better)} better, {other} changed otherwise, {missing} not in this run")
    for kind, lines in (("worse", worse), ("better", better)):
        for line in lines:
            print(f"  {kind:6} {line}")
    return int(bool(worse))
