"""The location of this package's plugin. torch_backend calls `path` if the plugin is requested by name, or when it
searches for hardware.
"""

from pathlib import Path


def path() -> str:
    """Returns the absolute path of the plugin's file. Keep it fast and without imports: it may run at every `import
    torch`.
    """
    return str(Path(__file__).resolve().parent / "libhal_template.so")
