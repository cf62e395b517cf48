"""Checks that the first line of a file names the file: `/* flush.c: ...`."""
import re

FOLDERS = ("hal/", "plugins/", "csrc/")
FIRST = re.compile(r"(?:/\*|//) ([\w.-]+): \S")


def check(sources):
    """`sources`: the first lines of files, by their paths."""
    for path, line in sources.items():
        if not path.startswith(FOLDERS):
            continue
        found, name = FIRST.match(line), path.rsplit("/", 1)[-1]
        if not found:
            yield f"{path}: the first line is not a comment that begins with '{name}: ' and describes the file"
        elif found.group(1) != name:
            yield f"{path}: the first line names {found.group(1)}; write {name}"
