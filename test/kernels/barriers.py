"""Checks the positions of the barriers of the portable kernels: in no branch, in no region of items, and last in each
loop that contains one.

Usage: barriers.py [--compiler CC]

PoCL 3.1 compiles other kernels incorrectly, and only for some sizes. Each instance of a template is preprocessed as
OpenCL C, so that barriers in macros are found. A message names the file and the line of the barrier, or of the macro
that contains it. The exit code is 1 if a barrier is at an invalid position.
"""
import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))

import entries  # noqa: E402
import kernels as codegen  # noqa: E402

_MARKER = re.compile(r'#(?:line)? (\d+) "(.*?)"')
_TOKEN = re.compile(r'\w+|"(?:\\.|[^"])*"|[^\w\s]')
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass
class Statement:
    """kind: block, branch, loop, items (a loop over the items of a group), barrier or plain."""

    kind: str
    place: str  # file:line
    parts: list = field(default_factory=list)  # Statements


def preprocess(compiler, text):
    """The text of an instance as OpenCL C, with the markers of files and lines."""
    folders = [f"-I{ROOT / 'hal' / folder}" for folder in ("kernels", ".", "include")]
    command = [compiler, "-E", "-x", "c", "-D__OPENCL_VERSION__=120", "-Dcl_khr_fp64=1", *folders, "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"barriers: {result.stderr[:1000]}")
    return result.stdout


def tokens_of(text):
    """Yields (token, file:line) in order."""
    file, line, tokens = "", 0, []
    for row in text.split("\n"):
        marker = _MARKER.match(row)
        if marker:
            line, file = int(marker[1]), os.path.relpath(marker[2], ROOT) if os.path.isabs(marker[2]) else marker[2]
            continue
        if not row.lstrip().startswith("#"):  # a pragma
            tokens += [(token, f"{file}:{line}") for token in _TOKEN.findall(row)]
        line += 1
    return tokens


class Parser:
    """Parses the bodies of functions, as far as barriers need it: statements, not expressions."""

    def __init__(self, tokens):
        self.tokens, self.at = tokens, 0

    def peek(self):
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def bodies(self):
        """The blocks that are in no other: bodies of functions, and other braces."""
        while self.at < len(self.tokens):
            if self.peek() == "{":
                yield self.statement()
            else:
                self.at += 1

    def bracket(self):
        """Skips a bracket; returns the tokens in it."""
        begin, open_brackets = self.at, []
        while True:
            token = self.peek()
            if token in _CLOSING:
                open_brackets.append(_CLOSING[token])
            elif open_brackets and token == open_brackets[-1]:
                open_brackets.pop()
            self.at += 1
            if not open_brackets or self.at >= len(self.tokens):
                return [token for token, _ in self.tokens[begin:self.at]]

    def plain(self):
        """Skips a declaration or an expression including its semicolon; returns its tokens."""
        found = []
        while self.peek() not in (";", "}", ""):
            found += self.bracket()
        self.at += self.peek() == ";"
        return found

    def statement(self):
        word, place = self.tokens[self.at]
        if word == "{":
            return self.block(place)
        if word in ("if", "switch", "for", "while"):
            return self.controlled(word, place)
        if word == "do":
            self.at += 1
            body = self.statement()
            self.plain()  # while (...);
            return Statement("loop", place, [body])
        if word in ("case", "default"):
            while self.peek() != ":":
                self.at += 1
            self.at += 1
            return self.statement() if self.peek() != "}" else Statement("plain", place)
        return Statement("barrier" if "barrier" in self.plain() else "plain", place)

    def block(self, place):
        self.at += 1
        parts = []
        while self.peek() not in ("}", ""):
            if self.peek() == ";":
                self.at += 1
            else:
                parts.append(self.statement())
        self.at += 1
        return Statement("block", place, parts)

    def controlled(self, word, place):
        self.at += 1
        head = self.bracket()
        parts = [self.statement()]
        if word == "if" and self.peek() == "else":
            self.at += 1
            parts.append(self.statement())
        if word in ("if", "switch"):
            return Statement("branch", place, parts)
        return Statement("items" if "get_local_id" in head else "loop", place, parts)


def ends_with_barrier(statement):
    if statement.kind == "block" and statement.parts:
        return ends_with_barrier(statement.parts[-1])
    return statement.kind == "barrier"


def barriers(statement):
    """The positions of the barriers in a statement."""
    if statement.kind == "barrier":
        return [statement.place]
    return [place for part in statement.parts for place in barriers(part)]


def problems(statement):
    """The errors in a statement, as (position, message)."""
    found = barriers(statement)
    if not found:
        return []
    if statement.kind == "branch":
        return [(place, f"a PK_SYNC in a branch, that of {statement.place}") for place in found]
    if statement.kind == "items":
        return [(place, f"a PK_SYNC in a region of items, that of {statement.place}") for place in found]
    wrong = [problem for part in statement.parts for problem in problems(part)]
    if statement.kind == "loop" and not ends_with_barrier(statement.parts[0]):
        wrong.append((statement.place, "a loop with a PK_SYNC in it ends with none"))
    return wrong


def check(text):
    """The errors in preprocessed text, and the number of barriers in it."""
    bodies = list(Parser(tokens_of(text)).bodies())
    return [problem for body in bodies for problem in problems(body)], sum(len(barriers(body)) for body in bodies)


def self_test():
    """The rules find violations, and nothing else."""
    sync, each = "barrier(1);", "for (int l = get_local_id(0), l_1 = 1; l_1; l_1 = 0)"
    right = (sync, f"for (;;) {{ f(); {{ f(); {sync} }} }}", f"for (;;) f(); {sync}", f"do {{ f(); {sync} }} while (a < b); f();",
             f"{each} {{ if (a) {{ f(); }} }} {sync}", f"if (a) f(); else {{ f(); }} {sync} int a[2] = {{1, 2}};")
    wrong = (f"if (a) {{ {sync} }}", f"if (a) f(); else {sync}", f"for (;;) {{ {sync} f(); }}", f"while (a) {{ for (;;) {{ {sync} }} }}",
             f"{each} {{ {sync} }}", f"do {{ {sync} f(); }} while (a);", f"switch (a) {{ case 1: {sync} }}", f"for (;;) if (a) {sync}")
    for text, expected in [(text, False) for text in right] + [(text, True) for text in wrong]:
        found, count = check(f"void f(void) {{ {text} }}")
        if bool(found) != expected or count != 1:
            sys.exit(f"barriers: the check itself is wrong about: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default=os.environ.get("CC", "cc"), help="a preprocessor of C")
    options = parser.parse_args()
    self_test()
    files = codegen.collect_instances(entries.load())
    texts = [codegen.instance_source(pairs) for pairs in files.values()]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(lambda text: check(preprocess(options.compiler, text)), texts))
    count = sum(number for _, number in results)
    wrong = sorted({problem for found, _ in results for problem in found})
    for place, sentence in wrong:
        print(f"{place}: {sentence}")
    print(f"{count} barriers in {len(texts)} units, {len(wrong)} places are wrong")
    if wrong or not count:
        sys.exit(1)


if __name__ == "__main__":
    main()
