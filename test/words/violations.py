"""Tests words.py: each entry of the list reports its bad line and accepts its good one, and each rule finds its defect.

    violations.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import prose
import words

HERE = Path(__file__).resolve().parent
LIST = words.Words(HERE / "words.toml")
LONG = "w " * 26


def messages(file, text):
    return [message for _, _, message in words.problems(LIST, file, text)]


def entries():
    """Each entry reports `bad` in every kind of file, and accepts `good`."""
    for word in LIST.words:
        assert [found for found, _ in LIST.in_prose(word["bad"]) if found is word], f"{word['old']}: accepts {word['bad']!r}"
        assert not list(LIST.in_prose(word["good"])), f"{word['old']}: reports {word['good']!r}"
        for name in word["names"]:
            assert messages("x.c", f"int hal_{name}_all(void);\n"), f"{word['old']}: accepts the name {name}"


def kinds_of_files():
    """Prose is found in each kind of file, and code is not prose."""
    for file, text in {
        "x.c": "int x; /* one\n * that tells */\n",
        "x.h": "#define X 1  // that tells\n",
        "x.cpp": 'throw Error("it tells");\n',
        "hal/x.def": "/* tells */\nHAL_OP(1)\n",
        "x.py": '"""Module."""\n\nx = f"it tells {1}"\n',
        "y.py": "x = 1  # tells\n",
        "test_x.py": "def test_it_tells_the_name():\n    assert x\n",
        "test_x.c": "Test(suite, it_tells_the_name) {\n}\n",
        "CMakeLists.txt": "# tells\n",
        "x.yaml": "a: 1 # tells\n",
        "x.md": "One `tells`.\n\nTwo tells.\n",
        "y.md": "```python\nx = 1  # tells\n```\n",
        "z.md": "<!-- test: none -->\n```c\n/* tells */\n```\n",
    }.items():
        assert len(messages(file, text)) == 1, f"{file}: {text!r}: {messages(file, text)}"
    for file, text in {
        "x.c": "int tells = 1;\n",
        "x.py": "tells = 1\n",
        "x.md": "`tells` and [a link](tells.md)\n\n```c\nint tells;\n```\n",
        "x.yaml": "tells: 1\n",
    }.items():
        assert not messages(file, text), f"{file}: {messages(file, text)}"


def limits():
    """Lines of Markdown, YAML and comments, and cells of tables."""
    line, cell = "x " * 61, f"| one | {LONG} |"
    assert "122 characters" in messages("x.md", line)[0] and "122 characters" in messages("x.yaml", f"{line}\n")[0]
    assert messages("x.c", f"/* {line} */\n") and messages("x.py", f"# {line}\n") and messages("CMakeLists.txt", f"# {line}\n")
    assert not messages("x.py", f"x = '{line}'\n") and not messages("x.md", "- " + "x" * 200)
    assert [text for text in messages("x.md", cell) if "26 words in a cell" in text]
    assert not messages("x.md", f"{LONG}\n\n| one | two |\n")


def the_command():
    """Each problem is printed with file and line; all files are checked unless some are named."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)

        def run(*arguments):
            return subprocess.run([sys.executable, HERE / "words.py", "--root", root, *arguments], capture_output=True, text=True)

        (root / "a.md").write_text("It tells.\n")
        (root / "b.md").write_text("It returns.\n")
        done = run()
        assert done.returncode == 1 and "a.md:1: error: 'tells': write returns" in done.stderr, done.stderr
        assert run("a.md").returncode == 1 and run("b.md").returncode == 0
        (root / "c.md").symlink_to("a.md")  # the file itself is checked
        (root / "a.md").write_text("It returns.\n")
        done = run()
        assert done.returncode == 0 and not done.stderr, done.stderr


def main() -> int:
    """Runs the tests above."""
    assert prose.is_text("Makefile") and prose.is_text("a.md") and not prose.is_text("a.png")
    for test in (entries, kinds_of_files, limits, the_command):
        test()
    print(f"{len(LIST.words)} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
