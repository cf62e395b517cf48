"""Checks the words of comments, messages, test names and documents, and the lengths of lines and of cells of tables.

    words.py [--root DIR] [--count] [FILE...]

Reads words.toml, which lists the old words. Without FILE, checks all files that git tracks or would add. --count prints the
number of lines that match each entry.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

try:
    import tomllib
except ImportError:
    sys.exit("words.py: error: Python 3.11 or later is required (module tomllib); set PYTHON= to one")

import prose

HERE = Path(__file__).resolve().parent


class Words:
    """The list: patterns, limits, and the files to which they do not apply."""

    def __init__(self, path):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        self.limits, self.words = data["limits"], data["word"]
        self.skipped = [entry["path"] for entry in data["skip"] if entry["reason"]]
        self.exceptions = {(entry["file"], entry["old"]) for entry in data["exception"] if entry["reason"]}
        for word in self.words:
            word["pattern"] = re.compile(word["pattern"], re.I)
            word["allow"] = [re.compile(context, re.I) for context in word.get("allow", ())]
            word["names"] = frozenset(word.get("names", ()))
        self.any = re.compile("|".join(f"(?:{word['pattern'].pattern})" for word in self.words), re.I)
        known = {word["old"] for word in self.words}
        if unknown := sorted(old for _, old in self.exceptions if old not in known):
            sys.exit(f"{path}: error: an exception names an unknown entry: {unknown}")

    def skips(self, file):
        return any(file == path or path.endswith("/") and file.startswith(path) for path in self.skipped)

    def in_prose(self, text):
        """Yields (entry, the words that match) for one line of prose."""
        for word in self.words if self.any.search(text) else ():
            for match in word["pattern"].finditer(text):
                spans = (allowed.span() for context in word["allow"] for allowed in context.finditer(text))
                if not any(start <= match.start() and match.end() <= end for start, end in spans):
                    yield word, match[0].strip()

    def in_names(self, text):
        """Yields (entry, the identifier) for one line of code."""
        for name in re.findall(r"[A-Za-z_]\w+", text):
            parts = {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
            for word in self.words:
                if parts & word["names"]:
                    yield word, name


def problems(words, file, text):
    """Yields (line number, entry or None, message) for one file."""
    parts = prose.split(file, text)
    for number, line in parts.prose:
        for word, found in words.in_prose(line):
            if (file, word["old"]) not in words.exceptions:
                yield number, word, f"'{found}': write {word['new']} (entry '{word['old']}')"
    for number, line in parts.code:
        for word, found in words.in_names(line):
            if (file, word["old"]) not in words.exceptions:
                yield number, word, f"the name {found}: write {word['new']} (entry '{word['old']}')"
    longest = words.limits["line"]
    for number, line in parts.measured:
        if len(line) > longest and " " in line.strip().lstrip("-#*/ "):  # else there is no place to break it
            yield number, None, f"{len(line)} characters in a line: expected at most {longest}"
    for number, cell in parts.cells:
        if (count := len(cell.split())) > words.limits["cell"]:
            yield number, None, f"{count} words in a cell: expected at most {words.limits['cell']}; write prose under the table"


def tracked(root):
    """Returns the files that git knows or would add."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True, text=True)
    return sorted(file for file in set(listed.stdout.splitlines()) if prose.is_text(file) and (root / file).is_file() and not (root / file).is_symlink())


def count(words, root, files):
    """Prints how many lines of all files match each entry, and returns how many match any."""
    lines, total = {}, set()
    for file in files:
        for number, word, _ in problems(words, file, (root / file).read_text(encoding="utf-8")):
            key = word["old"] if word else "lengths of lines and cells"
            lines.setdefault(key, set()).add((file, number))
            total.add((file, number))
    for key, found in sorted(lines.items(), key=lambda item: -len(item[1])):
        print(f"{len(found):6} {key}")
    print(f"{len(total):6} lines in {len({file for file, _ in total})} files; {len(words.exceptions)} exceptions")


def main() -> int:
    """Prints each problem. Returns 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE.parents[1])
    parser.add_argument("--count", action="store_true")
    parser.add_argument("files", nargs="*", help="check only these")
    options = parser.parse_args()
    words = Words(HERE / "words.toml")
    files = [file for file in options.files or tracked(options.root) if not words.skips(file)]
    if options.count:
        count(words, options.root, files)
        return 0
    wrong = 0
    for file in files:
        text = (options.root / file).read_text(encoding="utf-8")
        for number, _, message in sorted(problems(words, file, text), key=lambda problem: problem[0]):
            print(f"{file}:{number}: error: {message}", file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
