"""Writes a C table of the operators that the host can request from a plugin: codegen/operators, by operator number.

    operators.py --codegen codegen OUTPUT

A line is CTS_OPERATOR("add.Tensor").
"""
import argparse
import json
import sys
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codegen", type=Path, required=True, help="the folder of entries.py and operators/")
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.codegen))
    import entries

    lines = [f"CTS_OPERATOR({json.dumps(op.name)})" for op in entries.load()]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("/* Written by hal/cts/tools/operators.py. */\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
