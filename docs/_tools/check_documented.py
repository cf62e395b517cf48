"""Fails when a public function, struct or function type of the headers has no description, or the description of another
name: reads doxygen's XML. Fields and constants may be described by their struct, their group or their name.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def undocumented(xml: Path):
    """Returns (number of functions, names without a description)."""
    functions, missing = 0, []
    for path in sorted(xml.glob("*.xml")):
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            for member in compound.iter("memberdef"):
                if member.get("kind") != "function":
                    continue
                functions += 1
                name, scope = member.findtext("name"), compound.findtext("compoundname").split("::")[-1]
                if name.lstrip("~") == scope or name.startswith("operator"):
                    continue  # the class's own sentence covers how its values come, go and are compared
                text = "".join(part for tag in ("briefdescription", "detaileddescription") for part in member.find(tag).itertext())
                if not text.strip():
                    missing.append(f"{compound.findtext('compoundname')}: {name}")
    return functions, sorted(set(missing))


def _is_described(node) -> bool:
    return any("".join(node.find(tag).itertext()).strip() for tag in ("briefdescription", "detaileddescription") if node.find(tag) is not None)


def undocumented_types(xml: Path):
    """Returns the structs, classes and types of functions that have no description."""
    missing = []
    for path in sorted(xml.glob("*.xml")):
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            if compound.get("kind") in ("struct", "class", "union") and not _is_described(compound):
                missing.append(compound.findtext("compoundname"))
            missing += [member.findtext("name") for member in compound.iter("memberdef")
                        if member.get("kind") == "typedef" and "(*" in (member.findtext("definition") or "") and not _is_described(member)]  # fmt: skip
    return sorted(set(missing))


def misplaced(xml: Path):
    """Returns the names whose comment follows something else: doxygen leaves the `<` of the filter's mark in it."""
    return [member.findtext("name") for path in sorted(xml.glob("*.xml")) for member in ElementTree.parse(path).getroot().iter("memberdef")
            if any("".join(member.find(tag).itertext()).lstrip().startswith("<") for tag in ("briefdescription", "detaileddescription"))]  # fmt: skip


def main() -> int:
    """Prints what lacks a description and how many functions there are."""
    wrong = False
    for folder in sys.argv[1:]:
        functions, missing = undocumented(Path(folder))
        missing += undocumented_types(Path(folder))
        for name in missing:
            print(f"undocumented: {name}", file=sys.stderr)
        if functions < 50:
            print(f"only {functions} functions in {folder}: doxygen did not see the headers", file=sys.stderr)
        strays = misplaced(Path(folder))
        for name in strays:
            print(f"a comment that belongs elsewhere: {name}", file=sys.stderr)
        print(f"{folder}: {functions} functions, {len(missing)} undocumented")
        wrong |= bool(missing or strays) or functions < 50
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
