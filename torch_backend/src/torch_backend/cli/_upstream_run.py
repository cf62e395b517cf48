"""Runs files of PyTorch's tests in processes, and goes on after a test that crashes or does not end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Result:
    """A test's outcome: "passed", "failed", "skipped", "crashed" or "hung", with its error or the reason."""

    outcome: str
    message: str = ""
    seconds: float = 0.0


@dataclass
class Plan:
    """What runs: `device` is a plugin, or "cpu"; `limit` is in seconds, of one test; `only` are names of tests, none: all."""

    device: str
    expression: str = ""
    limit: float = 300.0
    config: str = ""
    every: bool = False
    only: tuple = ()
    jobs: int = 1
    log: object = None  # a text file for what pytest prints
    openreg: bool = False  # the files are tests of openreg: all of their tests run
    stop: threading.Event = field(default_factory=threading.Event)  # set: the processes are ended


@dataclass
class _Share:
    """The tests of one process of a file: every `shares`-th one."""

    file: Path
    share: int
    shares: int
    results: dict = field(default_factory=dict)
    running: str = ""  # the test that has started and not ended
    error: str = ""  # why the file could not be collected
    alive: int = -1  # the end of a pipe that is open for as long as this process needs the share's


def _lines(path, offset):
    """Returns (the complete lines from `offset` on, the offset after them) of a file that another process writes."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            text = file.read()
    except FileNotFoundError:
        return [], offset
    whole = text[: text.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)


def _note(share: _Share, line: dict, show) -> None:
    if "start" in line:
        share.running = line["start"]
    elif "end" in line:
        share.results[line["end"]] = Result(line["outcome"], line["message"], line["seconds"])
        share.running = ""
        show()


def _process(share: _Share, plan: Plan, folder: Path, log: Path) -> subprocess.Popen:
    """Starts pytest for the tests of a share that have no result. It ends itself if this process ends first: no process
    has the other end of the pipe `alive` then."""
    alive, share.alive = os.pipe()
    settings = {"alive": alive, "device": plan.device, "config": plan.config, "all": plan.every, "only": list(plan.only), "done": list(share.results),
                "share": share.share, "shares": share.shares, "log": str(log), "openreg": plan.openreg}  # fmt: skip
    settings_file = folder / f"{log.stem}.settings.json"
    settings_file.write_text(json.dumps(settings))
    environment = {**os.environ, "TORCH_BACKEND_UPSTREAM": str(settings_file), "PYTORCH_TESTING_DEVICE_EXCEPT_FOR": "",
                   "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu" if plan.device == "cpu" else "privateuse1",
                   "TORCH_BACKEND": "" if plan.device == "cpu" else plan.device}  # fmt: skip
    if plan.device == "cpu":
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    command = [sys.executable, "-P", "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "--rootdir", str(share.file.parent), "-p", "no:cacheprovider",
               "-p", "no:xdist", "-p", "torch_backend.cli._upstream_tests", str(share.file)]  # fmt: skip
    if plan.expression:
        command += ["-k", plan.expression]
    try:
        with open(log.with_suffix(".out"), "wb") as out:
            return subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True, pass_fds=[alive])
    finally:
        os.close(alive)


def _printed(log: Path, plan: Plan) -> str:
    """Returns the last error that a process printed, and copies all lines to the plan's log."""
    text = log.with_suffix(".out").read_text(errors="replace")
    if plan.log:
        plan.log.write(text)
    return last_error(text)


def last_error(text: str) -> str:
    """Returns the last line of an error that pytest or Python printed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for start in ("E  ", "INTERNALERROR> "):
        found = [line for line in lines if line.startswith(start)]
        if found:
            return found[-1].removeprefix(start).strip()
    return lines[-1] if lines else ""


def _watch(share: _Share, plan: Plan, process: subprocess.Popen, log: Path, show) -> bool:
    """Reads results until the process ends. Returns whether it was ended, because a test took longer than the limit or
    the run was stopped."""
    offset, since = 0, time.monotonic()
    while True:
        ended = process.poll() is not None
        lines, offset = _lines(log, offset)
        for line in lines:
            _note(share, line, show)
            since = time.monotonic()
        if ended:
            return False
        if plan.stop.is_set() or (share.running and time.monotonic() - since > plan.limit):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.05)


def _run_share(share: _Share, plan: Plan, folder: Path, show) -> _Share:
    """Runs the tests of a share. Each crash ends one process; the next one begins after the test that crashed."""
    for attempt in range(1_000_000):
        log = folder / f"{share.file.stem}.{share.share}.{attempt}.jsonl"
        process = _process(share, plan, folder, log)
        hung = _watch(share, plan, process, log, show)
        os.close(share.alive)
        printed = _printed(log, plan)
        if plan.stop.is_set():
            return share
        if not share.running:
            if process.returncode not in (0, 1, 5):  # all passed, some failed, none was selected
                share.error = f"pytest ended with code {process.returncode}: {printed}"
            return share
        code = process.returncode
        what = f"no end within {plan.limit:g} s" if hung else f"signal {signal.Signals(-code).name}" if code < 0 else f"the process ended with code {code}"
        share.results[share.running] = Result("hung" if hung else "crashed", what)
        share.running = ""
    return share


def run(files, plan: Plan, show=lambda: None) -> tuple:
    """Runs all files, and calls `show`, of any thread, after each test. Returns ({test: Result}, {file name: why it could
    not be run}). An exception in this thread, such as KeyboardInterrupt, ends all processes."""
    with tempfile.TemporaryDirectory(prefix="torch-backend-upstream.") as name, ThreadPoolExecutor(plan.jobs) as pool:
        shares = [_Share(Path(file).resolve(), share, plan.jobs) for file in files for share in range(plan.jobs)]
        try:
            done = list(pool.map(lambda share: _run_share(share, plan, Path(name), show), shares))
        except BaseException:
            plan.stop.set()
            raise
    results, errors = {}, {}
    for share in done:
        results.update(share.results)
        if share.error:
            errors[share.file.name] = share.error
    return results, errors
