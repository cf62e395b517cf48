"""Runs only the tests that the file UPSTREAM_ONLY names, where it is set (run.py)."""

import os
from pathlib import Path


def pytest_collection_modifyitems(config, items):
    if chosen := os.environ.get("UPSTREAM_ONLY"):
        names = set(Path(chosen).read_text().split())
        config.hook.pytest_deselected(items=[item for item in items if item.name not in names])
        items[:] = [item for item in items if item.name in names]
