"""Instructions that a plugin of a vendor's driver adds to a launch, counted by callgrind: those of
hal_plugin_kernel_launch without the calls into the driver."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CALLS = 1000
NAME = re.compile(r"^(c?ob)=(\(\d+\))(?: (.*))?$")


def split(path, plugin, library):
    """Returns (all instructions, those of calls from the plugin into the driver) of a callgrind file; both arguments
    are parts of file names."""
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
            if f"libhal_{plugin}" in own and library in other:
                driver += cost
            other = own
        elif re.match(r"^[+\-*\d]\S* \d+$", line):
            total += int(line.split()[1])
    return total, driver


def measure(build, plugin, library, **settings):
    """Returns the instructions of one launch: the plugin's own and the driver's."""
    environment = dict(os.environ, HAL_PLUGIN_TRIAL="0", HAL_PLUGIN_PATH=str(build / "plugins"), HAL_ALLOW_UNSAFE_PLUGINS="1", **settings)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=hal_plugin_kernel_launch",
                   f"--callgrind-out-file={out}", str(build / "test/bench_driver_launch"), plugin, str(CALLS)]  # fmt: skip
        subprocess.run(command, env=environment, check=True, stderr=subprocess.PIPE)
        total, driver = split(out, plugin, library)
    if not driver or total <= driver:
        raise RuntimeError(f"callgrind saw {total} instructions, {driver} of them in the driver")
    return (total - driver) / CALLS, driver / CALLS
