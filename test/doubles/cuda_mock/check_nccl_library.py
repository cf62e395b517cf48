"""Opens the real libnccl.so.2 and looks up each function that the plugin calls. It needs no GPU.

Usage: check_nccl_library.py. The library is that of the wheel nvidia-nccl-cu13 or -cu12 if this Python has it, or the
file that NCCL_LIBRARY names; the exit code is 77 if there is none.
"""

import ctypes
import importlib.util
import os
import re
import sys
from pathlib import Path

API = Path(__file__).resolve().parents[3] / "plugins/cuda/comm/nccl_api.h"


def library():
    """The file of the real library; None if there is none."""
    if "NCCL_LIBRARY" in os.environ:
        return Path(os.environ["NCCL_LIBRARY"])
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations if found else ():
        for path in Path(root).glob("nccl/lib/libnccl.so.2"):
            return path
    return None


def main():
    path = library()
    if path is None:
        print("skipped: no libnccl.so.2 (pip install nvidia-nccl-cu13, or set NCCL_LIBRARY)")
        return 77
    names = set(re.findall(r"X\((nccl[A-Z]\w+),\s*\\?\s*\(", API.read_text()))
    assert {"ncclCommShrink", "ncclGetLastError", "ncclRedOpCreatePreMulSum", "ncclRecv"} <= names, names
    nccl = ctypes.CDLL(str(path))
    missing = [name for name in sorted(names) if not hasattr(nccl, name)]
    version, identity = ctypes.c_int(), ctypes.create_string_buffer(b"\xaa" * 256, 256)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    results = nccl.ncclGetVersion(ctypes.byref(version)), nccl.ncclGetUniqueId(identity)
    unchanged = identity.raw[128:] == b"\xaa" * 128
    print(f"{path}: version {version.value}, {len(names)} functions, missing {missing}, results {results}, id within 128 bytes: {unchanged}")
    return 0 if not missing and results[0] == 0 and version.value >= 21900 and unchanged else 1


if __name__ == "__main__":
    sys.exit(main())
