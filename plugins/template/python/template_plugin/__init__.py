"""Where this package's plugin is: torch_backend asks when somebody wants it by name, or looks for hardware."""

from pathlib import Path


def path() -> str:
    """Gives the absolute path of the plugin's file. Keep it cheap and without imports: it may run at every `import torch`."""
    return str(Path(__file__).resolve().parent / "libhal_template.so")
