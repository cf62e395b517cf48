"""The guides' statements about collectives are correct: messages are those of the sources, all functions and cases are
named, listings exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = (ROOT / "docs/collectives-library.md").read_text()
FOLDERS = ("hal/src/comm", "csrc/distributed", "csrc/python", "torch_backend/src/torch_backend/distributed")
GAP = "…"


def messages():
    """Returns the text of the sources, where each value within a message is a gap."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".c", ".cpp", ".py")]
    text = "\n".join(path.read_text() for path in files)
    text = re.sub(r'"\s*\n\s*f?"', "", text)  # literals that follow one another
    text = re.sub(r'",[^";]*?,\s*"|" \+ [^";]*? \+\s*"', GAP, text)  # C++: "text ", value, " text"
    text = re.sub(r"%(?:\.\*s|\.?\d*(?:ll|z)?[a-z])", GAP, text)  # printf
    return re.sub(r"\{[^{}\n]*\}", GAP, text)  # f-strings


def symptoms():
    """Returns the quoted messages of the table, each in pieces that stand between its gaps."""
    section = re.search(r"^## Troubleshooting\n(.*?)^## ", (ROOT / "docs/distributed.md").read_text(), re.S | re.M)[1]
    rows = [line.split(" | ")[0].lstrip("| ") for line in section.splitlines() if line.startswith("| ")]
    return [quoted for row in rows for quoted in re.findall(r"`([^`]*)`", row)]


def test_the_table_has_many_rows_and_a_wrong_quote_is_found():
    assert len(symptoms()) > 15
    assert not is_said("rank … of … did not join the party within … s", messages())


def is_said(quoted, text):
    """Whether the pieces of a message stand in this order on one line of the sources; a piece may follow a value that
    the guide leaves out."""
    pieces = [re.escape(piece.strip()) for piece in quoted.split(GAP) if piece.strip(" :;,")]
    return re.search("[^\n]{0,160}?".join(pieces), text) is not None


@pytest.mark.parametrize("quoted", symptoms())
def test_quoted_message_is_one_of_the_sources(quoted):
    assert is_said(quoted, messages()), quoted


def test_every_function_of_the_group_is_in_the_guide():
    text = (ROOT / "hal/include/hal/plugin_ops.def").read_text()
    slots = re.findall(r"HAL_OP\(\d+, \w, COMM(?:_REGISTER)?, \w+, (\w+)", text)
    assert len(slots) >= 11
    assert {name for name in slots if f"hal_plugin_{name}`" not in LIBRARY} == set()


def test_every_case_of_the_suite_is_in_the_guide():
    cases = {f"comm.{name}" for name in re.findall(r"CTS_CASE\(comm, (\w+)", (ROOT / "hal/cts/cases.def").read_text())}
    assert cases and set(re.findall(r"`(comm\.\w+)`", LIBRARY)) - {"comm.h"} == cases


def test_listings_begin_and_end_where_the_sources_do():
    listings = re.findall(r"\{literalinclude\} (\S+)\n(.*?)```", LIBRARY, re.S)
    assert len(listings) == 2
    for path, options in listings:
        source = (ROOT / "docs" / path).read_text()
        for marker in re.findall(r":(?:start-at|end-before): (.*)", options):
            assert source.count(marker) == 1, f"{path}: {marker}"
