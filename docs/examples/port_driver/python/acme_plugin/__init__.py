"""The acme device. torch_backend calls `path` to find the plugin."""

from pathlib import Path


def path() -> str:
    """Returns the absolute path of the plugin."""
    return str(Path(__file__).parent / "libhal_acme.so")
