#!/usr/bin/env python3
"""run.py [--jobs N] [-k EXPRESSION] [--log FILE]: runs PyTorch's own tests of torch.distributed on the device, and compares with expected.txt.

Each test runs with 2 processes; those that need more then with 3, and 4. A line of expected.txt is `test: reason`, for a test that is expected to
fail: "CUDA only: ..." where its body calls what only CUDA or NCCL has, which is not counted. The run fails if a test fails that is not listed, if a
listed one passes (its line has to go), and if less than 95 % of the tests that count pass.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORLD_SIZES = ("2", "3", "4")
NEED_MORE = ("Need at least 3", "Need at least 4", "Skipped due to small world size", "Test requires world size", "Test requires an exact world size")
SECONDS = "300"  # of a test, before its processes are ended; a busy machine needs 200 for the longest
SHARE = 0.95


def read_expected():
    """Returns the reasons of expected failures by the names of the tests."""
    lines = (line.strip() for line in (HERE / "expected.txt").read_text().splitlines())
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def message_of(element):
    """Returns the last error that the text of a failure names, or the reason of a skip."""
    errors = re.findall(r"^(?:E +)?(\w[\w.]*(?:Error|Exception)\b.*)$", element.text or "", re.MULTILINE)
    return errors[-1] if errors and element.tag != "skipped" else (element.get("message") or "").strip().split("\n")[0]


def run(jobs, expression, world_size, only, log):
    """Returns (file, test, outcome, message) of each test. `only`: names of tests; None: all."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(HERE), "-p", "no:cacheprovider", "-n", str(jobs),
                   "--junitxml", str(report), str(HERE)]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))),
                       "WORLD_SIZE": world_size, "HAL_FAKE_DEVICES": world_size, "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": SECONDS}  # fmt: skip
        if only is not None:
            chosen = Path(folder) / "only"
            chosen.write_text("\n".join(only))
            environment["UPSTREAM_ONLY"] = str(chosen)
        done = subprocess.run(command + (["-k", expression] if expression else []), env=environment, stdout=log, stderr=log, check=False)
        if not report.exists():
            raise SystemExit(f"pytest ended with {done.returncode} and wrote no report")
        for case in xml.parse(report).iter("testcase"):
            kinds = {child.tag: child for child in case}
            outcome = next((kind for kind in ("failure", "error", "skipped") if kind in kinds), "passed")
            yield case.get("classname").split(".")[0], case.get("name"), outcome, message_of(kinds[outcome]) if outcome in kinds else ""


def run_all(jobs, expression, log):
    """Returns {(file, test): (outcome, message, world size)}, with the smallest world size that does not skip the test."""
    results, only = {}, None
    for world_size in WORLD_SIZES:
        for file, name, outcome, message in run(jobs, expression, world_size, only, log):
            if outcome != "skipped" or (file, name) not in results:
                results[file, name] = outcome, message, world_size
        only = [name for (_, name), (outcome, message, _) in results.items() if outcome == "skipped" and message.startswith(NEED_MORE)]
        if not only:
            break
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time, each of several processes")
    parser.add_argument("-k", default="", help="only tests that match, as pytest's")
    parser.add_argument("--log", type=argparse.FileType("w"), help="where pytest writes; default: to the terminal")
    arguments = parser.parse_args()
    expected, wrong = read_expected(), []
    counts, skips, sizes = collections.defaultdict(collections.Counter), collections.Counter(), collections.Counter()
    for (file, name), (outcome, message, world_size) in run_all(arguments.jobs, arguments.k, arguments.log).items():
        failed, reason = outcome in ("failure", "error"), expected.get(name, "")
        counted = outcome if not failed else "excluded" if reason.startswith("CUDA only: ") else "failed"
        counts[file][counted] += 1
        sizes[world_size] += counted == "passed"
        if outcome == "skipped":
            skips[message] += 1
        if failed and not reason:
            wrong.append(f"{name} failed with {world_size} processes: {message}")
        elif outcome == "passed" and reason:
            wrong.append(f"{name} passed with {world_size} processes; remove it from expected.txt")
    for file, by_outcome in sorted(counts.items()):
        print(f"{file}:", ", ".join(f"{by_outcome[outcome]} {outcome}" for outcome in ("passed", "failed", "excluded", "skipped")))
    print("passed with", ", ".join(f"{world_size} processes: {count}" for world_size, count in sorted(sizes.items())))
    for reason, count in skips.most_common():
        print(f"  {count} skipped: {reason}")
    passed, failed = (sum(by_outcome[outcome] for by_outcome in counts.values()) for outcome in ("passed", "failed"))
    if passed < SHARE * (passed + failed) or not passed:
        wrong.append(f"{passed} of {passed + failed} tests pass; at least {SHARE:.0%} have to")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
