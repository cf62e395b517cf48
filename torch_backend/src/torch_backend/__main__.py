"""``python -m torch_backend``: the command line, which is also installed as ``torch-backend``."""

import sys

from torch_backend.cli import main

if __name__ == "__main__":
    sys.exit(main())
