"""Counts the operators that the plugin pjrt compiles: those of the operator table with a portable kernel.

Usage: python pjrt_coverage.py [--list]. Reads codegen/operators and plugins/pjrt. An operator without a kernel of its own is
composed of others, or runs on the CPU; its parts are counted. With --list, prints the operators that are not compiled, by family.
"""

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "plugins/pjrt/tools"), str(ROOT / "codegen")]
import emissions  # noqa: E402  found by the line above
import entries  # noqa: E402  found by the line above


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="the operators that are not compiled, by family")
    options = parser.parse_args()
    table = entries.load()
    found = emissions.emissions(table)
    kernels = [entry for entry in table if entry.kernel]
    families, missing = Counter(), defaultdict(list)
    for entry in kernels:
        families[entry.family] += 1
        if entry.name not in found:
            missing[entry.family].append(entry.name)
    count = sum(len(names) for names in missing.values())
    print(f"{len(table)} operators, {len(kernels)} with a kernel; compiled: {len(kernels) - count}, "
          f"of which {sum(bool(one.program) for one in found.values())} by the expression of their kernel")  # fmt: skip
    for family, names in sorted(missing.items(), key=lambda item: -len(item[1])) if options.list else ():
        print(f"{family}: {len(names)} of {families[family]} are not compiled: {', '.join(names)}")


if __name__ == "__main__":
    main()
