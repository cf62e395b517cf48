"""Instructions that the CUDA plugin adds to a launch, counted by callgrind on the mock libraries.

Usage: python cuda_launch.py [--check] [--build build/release].

Counts the instructions of hal_plugin_kernel_launch without the calls into the driver, over 1,000 launches of four
arguments on a stream that is synchronized every hundred launches. With --check the exit code is 1 if there are more
than 1,000.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import launch  # noqa: E402  found by the line above

TARGET = 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", type=Path, default=launch.ROOT / "build/release")
    options = parser.parse_args()
    build = options.build.resolve()
    own, driver = launch.measure(build, "cuda", "libcuda.so", LD_LIBRARY_PATH=str(build / "test/doubles/cuda_mock"))
    print(f"launch through plugins/cuda: {own:.0f} instructions of its own (target {TARGET}), {driver:.0f} in the driver")
    return int(options.check and own > TARGET)


if __name__ == "__main__":
    sys.exit(main())
