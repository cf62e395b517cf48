"""Appends new slots, fields and constants to the golden files of the plugin ABI. Fails if an existing line is no longer
true: since 0.3 the ABI is append-only.

    abi_golden.py --slots PROGRAM --structs PROGRAM --folder hal/abi
"""
import argparse
import subprocess
import sys
from pathlib import Path


def lines_of(program):
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=Path, required=True)
    parser.add_argument("--structs", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    for name, program, in_order in (("v0.txt", arguments.slots, True), ("v0_structs.txt", arguments.structs, False)):
        path = arguments.folder / name
        golden, present = path.read_text().splitlines() if path.exists() else [], lines_of(program)
        lost = [line for line in golden if line not in present]
        if lost or (in_order and present[: len(golden)] != golden):
            sys.exit(f"{path}: not true any more: {lost or 'the order of slots'}; put the headers back, and append what is new")
        new = [line for line in present if line not in golden]
        path.write_text("".join(f"{line}\n" for line in golden + new))
        print(f"{path}: {len(new)} lines are new")


if __name__ == "__main__":
    main()
