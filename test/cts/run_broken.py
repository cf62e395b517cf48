"""Checks the conformance suite: it must find each broken plugin, and its first finding must name the broken rule.

    run_broken.py --cts PROGRAM --broken libhal_broken.so --whole libhal_whole.so --of libhal_fake.so [--alone]
                  [--times N] [--jobs N] [NAME...]
"""
import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIMIT_S = {"init_hangs": 5, "wait_semaphore_in_host": 15, "wait_semaphore_holds_all": 15}


def first_finding(arguments, name, case):
    """Returns (rule, message, evidence) of the first finding, and the whole output; with `case` that of this case
    alone."""
    environment = {**os.environ, "HAL_BROKEN": name, "HAL_BROKEN_OF": str(arguments.whole),
                   "HAL_WHOLE_OF": str(arguments.of)}
    done = subprocess.run([arguments.cts, "--plugin", arguments.broken, "--stop", "--fault", "HAL_FAKE_FAULT=3",
                           "--limit", str(LIMIT_S.get(name, 120)), *(["--case", case] if case else [])], env=environment,
                          capture_output=True, text=True, timeout=600, check=False)
    output = done.stdout + done.stderr
    found = re.search(r"^FAIL .*\n  rule +(\S+): (.*)\n  evidence (.*)", output, re.MULTILINE)
    if done.returncode != 1 or not found:
        return None, output
    return found.groups(), output


def judge(arguments, name, case, rule, words):
    """Returns the error in what the suite finds in the broken plugin; None if each run names the rule."""
    for turn in range(arguments.times):
        finding, output = first_finding(arguments, name, case if arguments.alone else None)
        if not finding or finding[0].split(".")[0] != rule or words not in finding[1]:
            return f'run {turn + 1}: expected {rule} "{words}", got {finding or output[-600:]}'
        if arguments.verbose:
            print(f"{name}: {finding[0]}: {finding[2]}", flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cts", type=Path, required=True)
    parser.add_argument("--broken", type=Path, required=True)
    parser.add_argument("--whole", type=Path, required=True, help="the plugin that has all functions")
    parser.add_argument("--of", type=Path, required=True, help="the good plugin that it stands on")
    parser.add_argument("--alone", action="store_true", help="run the case that finds it alone, not the whole suite up to it")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="broken plugins at once")
    parser.add_argument("--verbose", action="store_true", help="print every first finding")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    here = Path(__file__).parent
    listed = set(re.findall(r'BREAK(?:_SET)?\("(\w+)"', (here / "broken" / "breaks.def").read_text()))
    rows = [line.split(None, 3) for line in (here / "expected.txt").read_text().splitlines() if line and line[0] != "#"]
    arguments.times = max(arguments.times, 1)
    wrong = [f"{name}: in one of expected.txt and breaks.def only" for name in listed ^ {row[0] for row in rows}]
    selected = [row for row in rows if not arguments.names or row[0] in arguments.names]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for (name, *_), failure in zip(selected, pool.map(lambda row: judge(arguments, *row), selected)):
            if failure:
                wrong.append(f"{name}: {failure}")
    print("\n".join(wrong) or f"{len(selected)} broken plugins, each found {arguments.times} of {arguments.times} times")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
