"""Runs a stress program until it fails, or for HAL_TEST_SECONDS, at least once: repeat.py PROGRAM [ARGUMENT...].

Prints the output of the last run, and how many there were. The exit code is that of the last run; 128 + N after signal N.
"""

import os
import subprocess
import sys
import time


def main() -> int:
    end = time.monotonic() + float(os.environ.get("HAL_TEST_SECONDS") or 0)
    runs = 0
    while True:
        done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        runs += 1
        # A report that does not end the program is a failure, too.
        if done.returncode or b"Sanitizer" in done.stdout or b"runtime error:" in done.stdout or time.monotonic() >= end:
            break
    sys.stdout.buffer.write(done.stdout)
    print(f"{runs} run{'s' * (runs != 1)}", flush=True)
    return 128 - done.returncode if done.returncode < 0 else done.returncode


sys.exit(main())
