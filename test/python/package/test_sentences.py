"""Statements in the sources that become outdated: "not used yet" of a plugin's function must be true, and no comment
may repeat a number that a generator owns."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))

import plugin_functions  # noqa: E402

CALLS = re.compile(r"hal_call_(\w+)\(|HAL_CALL_[A-Z]+\([^,]+, (\w+)")
SOURCES = [path for folder in ("hal", "csrc", "plugins", "codegen", "cmake") for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]


def called() -> set:
    """Returns the names of the plugin's functions that the host calls."""
    return {one or other for path in (ROOT / "hal" / "src").rglob("*.[ch]") for one, other in CALLS.findall(path.read_text())}


def test_functions_that_the_host_does_not_call_are_documented_as_unused():
    text = (ROOT / "hal" / "include" / "hal" / "plugin_ops.def").read_text()
    functions = list(plugin_functions._OP.finditer(text))
    assert len(functions) > 60
    unused = {f["name"] for f in functions if plugin_functions.UNUSED in " ".join(f["text"].split())}
    wrong = sorted(f["name"] for f in functions if (f["name"] in unused) == (f["name"] in called()))
    assert not wrong, f"the comments of {wrong} in plugin_ops.def: 'Not used yet.' stands where no code of the host calls the function"


@pytest.mark.parametrize("header", ["plugin.h", "plugin_shared_event.h", "hal.h"])
def test_headings_do_not_speak_of_what_is_unused(header):
    """A section whose functions become used one by one would keep the words of its heading."""
    text = (ROOT / "hal" / "include" / "hal" / header).read_text()
    wrong = [line for line in text.splitlines() if line.startswith("/* ----") and "not used yet" in line.lower()]
    assert not wrong, wrong


def test_comments_do_not_repeat_the_numbers_of_generators():
    sys.path.insert(0, str(ROOT / "codegen"))
    try:
        import aten_files
    finally:
        sys.path.remove(str(ROOT / "codegen"))
    number = rf"\b{aten_files.OPERATORS_PER_SHARD} (operators|registrations)"
    wrong = [str(path) for path in SOURCES if path.suffix in (".txt", ".cmake", ".h", ".cpp", ".py", ".md") and re.search(number, path.read_text())]
    assert not wrong, wrong
