#!/usr/bin/env python3
"""Runs a command and shows that it is running, with or without a terminal.

    progress.py [--log FILE] [--meanwhile COMMAND --meanwhile-log FILE] WHAT COMMAND...

Without --log, lines of the command are printed. Lines that only report a step ("[12/680] Building ...", "Collecting
...") take one line of a terminal; elsewhere one of them is printed every few seconds. With --log, all output goes to
FILE, and the screen shows the stage, a bar if the command counts its steps, and the elapsed time. If the command
fails, the end of FILE and its path are printed. The exit code is that of the command.

--meanwhile runs a second command of the shell until the first one ends. The second is terminated then, and its exit
code is ignored: a later stage completes its work.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time

QUIET = 5.0  # seconds after which a line reports that the command is running
BAR = 24  # characters
TAIL = 40  # lines of the log that are printed after a failure
COUNTED = re.compile(r"\s*\[(\d+)/(\d+)\]\s*(.*)")  # ninja
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
    """Standard output: permanent lines, and steps of which a terminal shows the last."""

    def __init__(self, what: str):
        self.what = what
        self.begin = self.spoke = time.monotonic()
        self.terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.open_step = False

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begin

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
            self.step(f"at work for {self.elapsed:.0f} s")

    def close(self) -> None:
        if self.open_step:
            self._write("\r\x1b[K", False)

    def _write(self, text: str, open_step: bool) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self.open_step, self.spoke = open_step, time.monotonic()


class Printed:
    """Prints the command's lines; those that report a step share one line of a terminal."""

    def __init__(self, screen: Screen):
        self.screen = screen

    def line(self, text: str) -> None:
        if text:
            (self.screen.step(text.lstrip()) if STEP.match(text) else self.screen.line(text))

    def still(self) -> None:
        self.screen.still()

    def end(self, code: int) -> None:
        pass


class Logged:
    """Writes the command's lines to a file; the screen shows the progress."""

    def __init__(self, screen: Screen, path: str):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.screen, self.path, self.file = screen, path, open(path, "w", encoding="utf-8")
        self.tail, self.state = collections.deque(maxlen=TAIL), ""

    def line(self, text: str) -> None:
        self.file.write(text + "\n")
        self.tail.append(text)
        counted = COUNTED.match(text)
        if counted:
            done, of = int(counted[1]), max(int(counted[2]), 1)
            filled = BAR * done // of
            self.state = f"[{'#' * filled}{'.' * (BAR - filled)}] {done}/{of}, {{elapsed}}"
        elif text and not self.state.startswith("["):
            self.state = "{elapsed}, " + text.strip().replace("{", "{{").replace("}", "}}")
        self.still()

    def still(self) -> None:
        self.screen.step((self.state or "{elapsed}").format(elapsed=f"{self.screen.elapsed:.0f} s"))

    def end(self, code: int) -> None:
        self.file.close()
        if code:
            self.screen.close()
            self.screen.line("\n".join(self.tail))
            self.screen.line(f"{self.screen.what}: the whole output is in {self.path}")


def run(command: list, screen: Screen, output) -> int:
    """Runs the command, passes each line of its output to `output`, and returns its exit code."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    except OSError as error:
        output.line(f"cannot run {command[0]!r}: {error.strerror}")
        return 127
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    rest = b""
    while True:
        if not selector.select(QUIET if not screen.terminal else 1.0):
            output.still()
            continue
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            output.line(line.decode(errors="replace").rstrip())
        output.still()  # an incomplete line, such as pytest's dots, is not shown yet
    if rest:
        output.line(rest.decode(errors="replace").rstrip())
    return process.wait()


@contextlib.contextmanager
def meanwhile(command: str, log: str):
    """Runs the command of the shell during the block; the end of the block terminates it and its children."""
    os.makedirs(os.path.dirname(log) or ".", exist_ok=True)
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(["sh", "-c", command], stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", help="the file that the command's output goes to")
    parser.add_argument("--meanwhile", metavar="COMMAND", help="a command of the shell that runs until the other one ends")
    parser.add_argument("--meanwhile-log", metavar="FILE", default=os.devnull, help="the file that its output goes to")
    parser.add_argument("what", metavar="WHAT")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("expected a command after WHAT")
    screen = Screen(options.what)
    screen.line(f"{options.what} ...")
    output = Logged(screen, options.log) if options.log else Printed(screen)
    with meanwhile(options.meanwhile, options.meanwhile_log) if options.meanwhile else contextlib.nullcontext():
        code = run(options.command, screen, output)
    output.end(code)
    screen.close()
    screen.line(f"{screen.what}: {'done in' if code == 0 else 'failed after'} {screen.elapsed:.0f} s")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
