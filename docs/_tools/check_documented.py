"""Fails when a public function, function-like type or struct of the headers has no sentence: reads doxygen's XML."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def undocumented(xml: Path):
    """Gives (number of functions, names without a description)."""
    functions, missing = 0, []
    for path in sorted(xml.glob("*.xml")):
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            for member in compound.iter("memberdef"):
                if member.get("kind") != "function":
                    continue
                functions += 1
                text = "".join(part for tag in ("briefdescription", "detaileddescription") for part in member.find(tag).itertext())
                if not text.strip():
                    missing.append(f"{compound.findtext('compoundname')}: {member.findtext('name')}")
    return functions, sorted(set(missing))


def main() -> int:
    """Prints what lacks a sentence."""
    functions, missing = undocumented(Path(sys.argv[1]))
    for name in missing:
        print(f"undocumented: {name}", file=sys.stderr)
    if functions < 50:
        print(f"only {functions} functions found: doxygen did not see the headers", file=sys.stderr)
        return 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
