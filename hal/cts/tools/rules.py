"""Writes the rules of the plugin ABI, taken from plugin_ops.def and plugin.h, as a C table.

    rules.py --include hal/include/hal OUTPUT

A row is CTS_RULE("id", slot, "sentence"). The id is the slot and the number of the rule in that slot, as in event_record.2.
Rules for all functions have the ids general.N (the head of plugin_ops.def), rules.N (the list in plugin.h),
launch.N (HAL_LAUNCH_*) and flag.NAME (HAL_DEVICE_*).
Sentences such as "Since 0.2" and "Not used yet" are not rules.
"""
import argparse
import json
import re
from pathlib import Path

NO_CONTRACT = re.compile(r"^(Since \d|Not used yet|of an instance \d)")
ABBREVIATIONS = ("e.g.", "i.e.", " ..")


def clean(comment):
    """The text of a comment on one line, without stars."""
    return re.sub(r"\s+", " ", re.sub(r"\n\s*\*", "\n", comment)).strip()


def sentences(text):
    """Splits at the end of sentences and at semicolons that stand outside brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        ends = letter in ".;" and depth == 0 and (at + 1 == len(text) or text[at + 1] == " ")
        if ends and not text[: at + 1].endswith(ABBREVIATIONS):
            parts.append(text[begin : at + 1].strip())
            begin = at + 1
    parts.append(text[begin:].strip())
    return [part for part in parts if part and not NO_CONTRACT.match(part)]


def rows(folder):
    """Yields (id, slot or None, sentence)."""
    ops = (folder / "plugin_ops.def").read_text()
    head = clean(re.match(r"/\*(.*?)\*/", ops, re.S).group(1))
    for number, text in enumerate(sentences(head[head.index("Unless the comment states otherwise"):]), 1):
        yield f"general.{number}", None, text
    header = (folder / "plugin.h").read_text()
    listed = re.search(r"\n \* Rules\.\n(.*?)\n \*\n", header, re.S).group(1)
    bullets = [clean(bullet) for bullet in re.split(r"\n \*  - ", "\n" + listed) if bullet.strip()]
    for number, text in enumerate((text for bullet in bullets for text in sentences(bullet)), 1):
        yield f"rules.{number}", None, text
    attributes = re.search(r"/\*((?:[^*]|\*(?!/))*)\*/\nenum \{\s*HAL_LAUNCH_", header).group(1)
    for number, text in enumerate(sentences(clean(attributes)), 1):
        yield f"launch.{number}", None, text
    for name, text in re.findall(r"#define HAL_DEVICE_(\w+)[ \\\n]*\(UINT64_C\(1\) << \d+\)\s*/\*(.*?)\*/", header, re.S):
        yield f"flag.{name}", None, f"HAL_DEVICE_{name}: {clean(text)}"
    for comment, slot in re.findall(r"/\*((?:[^*]|\*(?!/))*)\*/\s*HAL_OP\(\d+, \w, \w+, \w+, (\w+)", ops):
        for number, text in enumerate(sentences(clean(comment)), 1):
            yield f"{slot}.{number}", slot, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--include", type=Path, required=True, help="the folder of plugin_ops.def and plugin.h")
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    lines = [f"CTS_RULE({json.dumps(name)}, {f'HAL_SLOT_{slot}' if slot else 'HAL_SLOT_COUNT'}, {json.dumps(text)})"
             for name, slot, text in rows(arguments.include)]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("/* Written by hal/cts/tools/rules.py. */\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
