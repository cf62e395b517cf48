"""Each message that docs/troubleshooting.md explains is one of the sources: a message that no longer exists fails here."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
FOLDERS = ("hal/src", "hal/sdk", "csrc", "plugins", "codegen", "cmake", "hal/cmake", "torch_backend/src/torch_backend", "torch_backend/cmake")
KINDS = (".c", ".h", ".cpp", ".py", ".cmake", ".in")
GAP = "…"  # in the page: a value


def messages():
    """Returns the text of the sources, where each value within a message is a gap."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in KINDS]
    text = "\n".join(path.read_text() for path in files)
    text = re.sub(r'"\s*\n\s*f?"', "", text)  # literals that follow one another
    text = re.sub(r'",[^";]*?,\s*"|" \+ [^";]*? \+\s*"', GAP, text)  # C++: "text ", value, " text"
    text = re.sub(r"%(?:\.?\*?\d*s|\.?\d*(?:ll|z)?[a-z])", GAP, text)  # printf
    return re.sub(r"\{[^{}\n]*\}", GAP, text)  # f-strings


def quoted():
    """Returns the messages that entries of the page begin with."""
    entries = re.findall(r"^- (`.*?`)(?=:(?:\s|$))", PAGE, re.M | re.S)
    return [" ".join(message.split()) for entry in entries for message in re.findall(r"`([^`]*)`", entry)]


def is_said(message, text):
    """Whether the pieces of a message are on one line of the sources in this order; a piece may follow a value."""
    pieces = [re.escape(piece.strip()) for piece in message.split(GAP) if piece.strip(" :;,")]
    return re.search("[^\n]{0,160}?".join(pieces), text) is not None


def test_the_page_has_many_entries_and_a_wrong_quote_is_found():
    assert len(quoted()) > 60
    assert not is_said("rank … of … did not join the party within … s", messages())


TEXT = messages()


@pytest.mark.parametrize("message", quoted())
def test_a_quoted_message_is_one_of_the_sources(message):
    assert is_said(message, TEXT), message


def test_every_entry_has_a_cure():
    for entry in re.findall(r"^- `(?:.(?!^- |^#))*", PAGE, re.M | re.S):
        assert "Cure:" in entry or "Cure" in entry, entry
