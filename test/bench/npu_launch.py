"""Instructions that the Level Zero plugin adds to a launch, counted by callgrind on the CPU driver of test/doubles.

Usage: python npu_launch.py [--check] [--build build/release].

What hal_plugin_kernel_launch takes in all, less what the calls into the loader and the driver take, over 1,000 launches of four arguments in a
stream that is synchronised every hundred. With --check the exit code is 1 when it is more than 1,500.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET, CALLS = 1500, 1000
NAME = re.compile(r"^(c?ob)=(\(\d+\))(?: (.*))?$")


def split(path):
    """Gives (all instructions, those of calls from the plugin into the loader) of a callgrind file."""
    objects, own, other, total, driver = {}, "", "", 0, 0
    lines = iter(path.read_text().splitlines())
    for line in lines:
        named = NAME.match(line)
        if named:
            objects.setdefault(named[2], named[3])
            if named[1] == "ob":
                own = objects[named[2]]
            else:
                other = objects[named[2]]
        elif line.startswith("fn="):
            other = own
        elif line.startswith("calls="):
            cost = int(next(lines).split()[1])
            if "libhal_npu" in own and "libze_" in other:
                driver += cost
            other = own
        elif re.match(r"^[+\-*\d]\S* \d+$", line):
            total += int(line.split()[1])
    return total, driver


def measure(build):
    """Gives the instructions of one launch: the plugin's own and the driver's."""
    settings = dict(os.environ, ZE_ENABLE_ALT_DRIVERS=str(build / "test/doubles/ze_cpu_driver/libze_cpu_driver.so"), HAL_PLUGIN_TRIAL="0",
                    HAL_PLUGIN_PATH=str(build / "plugins"), HAL_ALLOW_UNSAFE_PLUGINS="1")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=hal_plugin_kernel_launch",
                   f"--callgrind-out-file={out}", str(build / "test/bench_npu_launch"), str(CALLS)]  # fmt: skip
        subprocess.run(command, env=settings, check=True, stderr=subprocess.PIPE)
        total, driver = split(out)
    if not driver or total <= driver:
        raise RuntimeError(f"callgrind saw {total} instructions, {driver} of them in the driver")
    return (total - driver) / CALLS, driver / CALLS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    options = parser.parse_args()
    own, driver = measure(options.build.resolve())
    print(f"launch through plugins/npu: {own:.0f} instructions of its own (target {TARGET}), {driver:.0f} in loader and driver")
    return int(options.check and own > TARGET)


if __name__ == "__main__":
    sys.exit(main())
