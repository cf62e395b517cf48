"""Runs the C tests of the CUDA plugin on NVIDIA's driver and GPUs instead of the mock libraries.

    cuda_hardware.py [--build build/release] [--tests FILE] [--jobs N] [--each N] [--timeout S] [--logs DIR] [PATTERN]

The tests are those of ctest whose names match PATTERN. FILE is the output of `ctest --show-only=json-v1`, for machines
without ctest. Prints a line per test, and exits with 1 if one failed. Tests that need the mock libraries are skipped.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

MOCK = re.compile(r"CUDA_MOCK")
SUMMARY = re.compile(r"Tested: \S*?(\d+)\S* [|] Passing: \S*?(\d+)\S* [|] Failing: \S*?(\d+)\S* [|] Crashing: \S*?(\d+)")


def listed(build, file):
    """Returns the tests of a build as ctest lists them."""
    if file:
        return json.loads(pathlib.Path(file).read_text())["tests"]
    command = ["ctest", "--test-dir", build, "--show-only=json-v1"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["tests"]


def command_of(test, each):
    """Returns a test's command without the options for the mock libraries only."""
    command = list(test["command"])
    if "--fault" in command:
        at = command.index("--fault")
        del command[at : at + 2]
    return [*command, f"-j{each}"] if "--verbose=1" in command else command


def environment_of(name, properties, cache):
    """Returns the environment of a test without the mock libraries and their settings. Tests of portable kernels run
    without NVIDIA's libraries."""
    environment = dict(os.environ, HAL_CACHE_DIR=str(cache))
    if name.startswith("hal_op_") and name.endswith("_cuda"):
        environment.update(HAL_CUDA_CUBLASLT="/none", HAL_CUDA_CUDNN="/none")
    for setting in properties.get("ENVIRONMENT", []):
        name, value = setting.split("=", 1)
        if name not in ("LD_LIBRARY_PATH", "HAL_CACHE_DIR") and not MOCK.match(name):
            environment[name] = value
    return environment


def run(test, options):
    """Runs one test. Returns its name, the verdict, seconds, and the last lines or the numbers of its cases."""
    properties = {item["name"]: item["value"] for item in test.get("properties", [])}
    began = time.monotonic()
    log = pathlib.Path(options.logs) / f"{test['name']}.log"
    with log.open("w") as out:
        child = subprocess.Popen(
            command_of(test, options.each),
            env=environment_of(test["name"], properties, pathlib.Path(options.logs) / "cache"),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(options.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
            code = "time"
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    log.write_text(text)
    skipped = code == 0 and "[SKIP]" in text and "Tested: 0" in text
    patterns = [] if skipped else properties.get("FAIL_REGULAR_EXPRESSION", [])
    bad = [pattern for pattern in patterns if "SKIPPED" not in pattern and re.search(pattern, text)]
    verdict = "skipped" if skipped else "passed" if code == 0 and not bad else "FAILED"
    found = SUMMARY.search(text)
    summary = " tested {} passing {} failing {} crashing {}".format(*found.groups()) if found else f" code {code}"
    return test["name"], verdict, time.monotonic() - began, summary + "".join(f" has '{pattern}'" for pattern in bad)


def main():
    """Runs the tests in parallel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default=r"^(hal_cuda_|cts_cuda)|_(cuda|cudnn)$")
    parser.add_argument("--build", default="build/release", help="the build whose tests are run")
    parser.add_argument("--tests", help="ctest's list of tests in JSON")
    parser.add_argument("--jobs", type=int, default=4, help="programs at once")
    parser.add_argument("--each", type=int, default=2, help="tests at once in a program; each has a context on the GPU")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a program")
    parser.add_argument("--logs", default="cuda-hardware", help="folder of the logs")
    options = parser.parse_args()
    pathlib.Path(options.logs, "cache").mkdir(parents=True, exist_ok=True)
    tests = [test for test in listed(options.build, options.tests) if re.search(options.pattern, test["name"])]
    if not tests:
        sys.exit(f"cuda_hardware.py: no test matches '{options.pattern}'")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = []
        for result in concurrent.futures.as_completed([pool.submit(run, test, options) for test in tests]):
            results.append(result.result())
            name, verdict, seconds, summary = results[-1]
            print(f"{verdict:8}{seconds:7.1f} s  {name}{summary}", flush=True)
    failed = [name for name, verdict, _, _ in results if verdict == "FAILED"]
    print(f"{len(results) - len(failed)} of {len(results)} programs without failure" + "".join(f"\n  {name}" for name in failed))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
