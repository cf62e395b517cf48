#!/usr/bin/env python3
"""progress.py WHAT COMMAND...: runs a command so that nobody wonders whether it still runs, with or without a terminal.

Steps ("[12/680] Building ...", lines of pip and CMake that say one more thing is done) take one line of a terminal; elsewhere
one of them is printed every few seconds. While the command says nothing, a line tells how long it has run. All other lines
are passed on. The exit code is the command's.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import sys
import time

QUIET = 5.0  # seconds
STEP = re.compile(
    r"\s*\[\d+/\d+\]"  # ninja
    r"|\s*(--|\*\*\*) |\s*(Installing|Up-to-date): "  # CMake, scikit-build-core
    r"|\s*(adding|copying|creating) "  # wheels
    r"|\s*(Collecting|Using cached|Obtaining|Downloading|Requirement already satisfied|Processing|Looking in|Using pip|Created|Removed|"
    r"Preparing metadata|Running command|Building wheels?|Created wheel|Stored in|Attempting uninstall|Found existing|Uninstalling|"
    r"Link requires|Non-user|Removing|Checking if|Added|Source in|changing mode|Generating|Getting requirements|Value for|"
    r"Will try|Ignoring|Entering|Get:|Hit:|Selecting|Preparing to|Unpacking|Setting up|\(Reading)\b"
)


class Screen:
    """Standard output: lines that stay, and steps of which a terminal shows the last."""

    def __init__(self, what: str):
        self.what = what
        self.begin = self.spoke = time.monotonic()
        self.terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.open_step = False

    def line(self, text: str) -> None:
        self._write(("\r\x1b[K" if self.open_step else "") + text + "\n", False)

    def step(self, text: str) -> None:
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            self._write("\r\x1b[K" + f"{self.what}: {text}"[:width], True)
        elif time.monotonic() - self.spoke >= QUIET:
            self._write(f"{self.what}: {text}\n", False)

    def still(self) -> None:
        if time.monotonic() - self.spoke >= QUIET:
            self.step(f"at work for {time.monotonic() - self.begin:.0f} s")

    def close(self) -> None:
        if self.open_step:
            self._write("\r\x1b[K", False)

    def _write(self, text: str, open_step: bool) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self.open_step, self.spoke = open_step, time.monotonic()


def main() -> int:
    if len(sys.argv) < 3:
        sys.exit("usage: progress.py WHAT COMMAND...")
    screen = Screen(sys.argv[1])
    screen.line(f"{sys.argv[1]} ...")
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    rest = b""
    while True:
        if not selector.select(QUIET):
            screen.still()
            continue
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            show(screen, line)
        screen.still()  # a line that grows for long, such as pytest's dots, is not shown yet
    if rest:
        show(screen, rest)
    code = process.wait()
    screen.close()
    took = time.monotonic() - screen.begin
    screen.line(f"{screen.what}: done in {took:.0f} s" if code == 0 else f"{screen.what}: failed after {took:.0f} s")
    return code if code >= 0 else 128 - code


def show(screen: Screen, line: bytes) -> None:
    text = line.decode(errors="replace").rstrip()
    if not text:
        return
    (screen.step(text.lstrip()) if STEP.match(text) else screen.line(text))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
