"""The statements of the guides about collectives: all functions and cases are named, and listings exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = (ROOT / "docs/collectives-library.md").read_text()


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
