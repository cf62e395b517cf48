"""How the commands print."""

from __future__ import annotations

import json


def print_json(document) -> None:
    """Prints a document for programs."""
    print(json.dumps(document, indent=1))
