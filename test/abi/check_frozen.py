"""Fails when a file of a frozen version of the plugin ABI is another one than SHA256SUMS says, is missing, or was added."""
import hashlib
import sys
from pathlib import Path

wrong = []
versions = sorted(path.parent for path in Path(__file__).resolve().parent.glob("*/SHA256SUMS"))
for folder in versions:
    listed = dict(reversed(line.split("  ", 1)) for line in (folder / "SHA256SUMS").read_text().splitlines())
    present = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
               for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS"}
    wrong += [f"{folder.name}/{name}" for name in sorted(listed.keys() | present.keys()) if listed.get(name) != present.get(name)]
if wrong or not versions:
    sys.exit(f"files of a released version of the plugin ABI were changed: {', '.join(wrong) or 'there is none'}; put them back")
print(f"{len(versions)} versions are as they were")
